"""What a user may say about training. The options travel through the pipeline as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from infeed.components.errors import InfeedError
from infeed.components.feed.options import Augment, FeedOptions, Normalise
from infeed.components.trainer.strategy import check_name

CUSTOM_CONFIG_KEY = "infeed"  # under which the options travel in the Trainer's custom_config

Task = Literal["classification", "regression"]
ExamplesAre = Literal["raw", "transformed"]
Precision = Literal["float16", "bfloat16"]


@dataclass(frozen=True)
class TrainOptions:
    """How a model is trained.

    Attributes:
      model_fn: `package.module:function` or `path/file.py:function`, called as `function(spec: ModelSpec)`; it
        returns a compiled Keras model.
      label: name of the label among the transformed features.
      task: whether the label is a class (int64 index) or a number (float32).
      strategy: name of a distribution strategy, see `strategy.NAMES`.
      epochs: most epochs to train; `TrainArgs.num_steps`, where given, ends training earlier.
      patience: epochs without a better validation loss before training stops with the best weights; None never stops.
      steps_per_call: training steps run in one call of a TensorFlow function; None takes the `steps_per_execution` that
        the model was compiled with where that is above 1, else 16, which made a tiny model about four times cheaper a
        step. Metrics and callbacks see every call, not every step.
      hparams: handed to `model_fn`; those of a Tuner, where the Trainer is given any, come on top.
      callbacks_fn: a function like `model_fn`, called as `function(spec: CallbackSpec)`; it returns Keras callbacks.
      class_weight: weight of a class's examples in the loss of training, by class name; classes left out weigh 1.
      mixed_precision: `float16` (GPU) or `bfloat16` (TPU, newer GPUs and CPUs) computes in it; weights stay float32.
      xla: whether XLA compiles the training step; None leaves it to the model, True is for one device.
      checkpoint_seconds: seconds between two checkpoints, at least; None writes none. Writing takes at most a
        hundredth of the time, so large models are saved less often.
      checkpoint_dir: a folder that outlives this execution, so that a new one can resume; each training has a folder of
        its own in there, removed when it has succeeded. None keeps checkpoints in the model run: they serve where the
        same execution is started again.
      profile_steps: first and last step, counted from 1, of which a profiler trace is written into the model run.
      input_fn: a function like `model_fn`, called as `function(spec: InputSpec)` once for training and once for
        evaluation; the batches that it returns are fed instead of those of the Examples. Of `feed`, only `batch_size`
        and `seed` count then.
      feed: how batches are made.
      augment: random changes to the images in training; None for none.
      normalise: how pixels become the model's float inputs; None feeds them as they are.
      images: transformed features that hold pixels, [height, width, channels], 0 to 255. A transform graph can give
        them as float32 only; they are fed, and cached, as uint8.
      examples_are: `raw` examples go through the transform graph, `transformed` ones were materialised by Transform.
    """

    model_fn: str
    label: str
    task: Task = "classification"
    strategy: str = "auto"
    epochs: int = 10
    patience: int | None = None
    steps_per_call: int | None = None
    hparams: Mapping[str, Any] = field(default_factory=dict)
    callbacks_fn: str | None = None
    class_weight: Mapping[str, float] = field(default_factory=dict)
    mixed_precision: Precision | None = None
    xla: bool | None = None
    checkpoint_seconds: float | None = 60.0
    checkpoint_dir: str | None = None
    profile_steps: Sequence[int] | None = None
    input_fn: str | None = None
    feed: FeedOptions = field(default_factory=FeedOptions)
    augment: Augment | None = None
    normalise: Normalise | None = None
    images: Sequence[str] = ("image",)
    examples_are: ExamplesAre = "raw"

    def __post_init__(self) -> None:
        check_name(self.strategy)
        for name, allowed in (("task", get_args(Task)), ("examples_are", get_args(ExamplesAre))):
            if getattr(self, name) not in allowed:
                raise _invalid(name, getattr(self, name), f"Use one of {', '.join(allowed)}.")
        for name in ("epochs", "steps_per_call", "patience"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise _invalid(name, value, "Use a whole number of at least 1.")
        if self.mixed_precision not in (None, *get_args(Precision)):
            raise _invalid("mixed_precision", self.mixed_precision, f"Use one of {', '.join(get_args(Precision))}.")
        if self.checkpoint_seconds is not None and not self.checkpoint_seconds > 0:
            raise _invalid("checkpoint_seconds", self.checkpoint_seconds, "Use a number above 0, or None for none.")
        if self.class_weight and self.task != "classification":
            raise _invalid("class_weight", dict(self.class_weight), "Use it with the task classification alone.")
        if self.profile_steps is not None and not _is_range(self.profile_steps):
            raise _invalid("profile_steps", self.profile_steps, "Give the first and the last step, such as [20, 40].")
        if self.input_fn and self.strategy == "parameter_server":
            do = "Train on the Examples: under parameter_server workers make the batches, and call no Python."
            raise _invalid("input_fn", self.input_fn, do)
        if self.augment and self.input_fn:
            raise _invalid("augment", self.augment, "Change pictures in input_fn; augment is for the feed's batches.")
        if self.augment and not self.normalise:
            raise _invalid("normalise", None, "Say how augmented pixels are normalised: normalise=Normalise().")

    @property
    def user_functions(self) -> dict[str, str]:
        """The user's own functions that training calls, by the option that names them."""
        named = {"model_fn": self.model_fn, "callbacks_fn": self.callbacks_fn, "input_fn": self.input_fn}
        return {option: function for option, function in named.items() if function}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `from_dict` gives equal options back."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrainOptions:
        """Options from plain data.

        Raises:
          InfeedError: an option that does not exist, or a value that is out of range.
        """
        known = {f.name for f in dataclasses.fields(cls)}
        unknown = sorted(set(data) - known)
        if unknown:
            raise _invalid(unknown[0], data[unknown[0]], f"The options are: {', '.join(sorted(known))}.")
        nested = {"feed": FeedOptions, "augment": Augment, "normalise": Normalise}
        built = {name: kind(**data[name]) for name, kind in nested.items() if data.get(name) is not None}
        return cls(**{**data, **built})


def _is_range(steps: Sequence[int]) -> bool:
    return len(steps) == 2 and 1 <= steps[0] <= steps[1]


def _invalid(name: str, value: object, do: str) -> InfeedError:
    return InfeedError(f"{name} is {value!r}", where="TrainOptions", do=do)
