"""What a user may say about training. The options travel through the pipeline as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from infeed.components.base import schema
from infeed.components.base.annotations import Placeholder, Positive
from infeed.components.base.checks import about, as_tuples, check_fields, refused, require
from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import Augment, FeedOptions, Normalise

CUSTOM_CONFIG_KEY = "infeed"  # under which the options travel in the Trainer's custom_config

Task = Literal["classification", "regression"]
ExamplesAre = Literal["raw", "transformed"]
OtherBaseModel = Literal["error", "ignore"]
Strategy = Literal["auto", "one_device", "mirrored", "multi_worker_mirrored", "tpu"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)
OVERRIDES = ("epochs", "batch_size", "strategy")  # options that flags and runtime parameters set for one run


def check_strategy(name: str) -> None:
    """Raises InfeedError unless there is a distribution strategy of that name."""
    if name not in STRATEGIES:
        raise InfeedError(
            f"there is no strategy {name!r}", where="option strategy", do=f"use one of {', '.join(STRATEGIES)}"
        )


@dataclass(frozen=True)
class TrainOptions:
    """How a model is trained.

    Attributes:
      model_fn: `package.module:function` or `path/file.py:function`, called as `function(spec: ModelSpec)`; it
        returns a compiled Keras model.
      label: name of the label among the transformed features: a class or a number, several numbers of a fixed shape, or
        a mask.
      task: whether the label is a class (int64 index) or a number (float32).
      strategy: distribution strategy: auto, one_device, mirrored, multi_worker_mirrored or tpu.
        `distribution.make_strategy` describes each.
      epochs: maximum number of epochs. If `TrainArgs.num_steps` is given, training ends after so many steps.
      patience: number of epochs without a better validation loss before training stops with the best weights; None
        never stops.
      steps_per_call: number of training steps in one call of a TensorFlow function. None takes the compiled
        `steps_per_execution` if it is above 1, else 16. 16 makes a step of a tiny model about four times cheaper.
        Metrics and callbacks see every call, not every step.
      hparams: hyperparameters for `model_fn`. The best hyperparameters of a Tuner take precedence.
      callbacks_fn: function like `model_fn`, called as `function(spec: CallbackSpec)`, that returns Keras callbacks.
      class_weight: weight of the examples of each class in the loss of training, by class name; 1 for other classes.
        `balanced` is scikit-learn's rule: rows / (classes x rows of the class), as ingest counted them.
      mixed_precision: type of computations, `float16` (GPU) or `bfloat16` (TPU, newer GPUs and CPUs). Weights stay
        float32.
      xla: whether XLA compiles the training step; None leaves the choice to the model. True requires one device.
      checkpoint_seconds: minimum number of seconds between two checkpoints; None writes no checkpoints. Writing takes
        at most a hundredth of the time, so large models are saved less often.
      checkpoint_dir: folder that outlives this execution, so that a new execution can resume. Each training has its own
        folder there, and removes it after success. None keeps checkpoints in the model run, for a restart of the same
        execution.
      other_base_model: what to do if the weights of the base model do not fit: `error` stops, `ignore` starts from
        random weights and logs the reason.
      profile_steps: first and last step, counted from 1, of a profiler trace in the model run.
      stage_seconds: seconds to measure the stages of the input pipeline after training, for InputReport; 0 for none.
        If training waited, each change that is tried takes as long. None measures for up to 4 seconds, and only after
        a training of at least 120 seconds.
      threshold: probability above which serving returns the second class, for models with one output for two classes.
      input_fn: function like `model_fn`, called as `function(spec: InputSpec)` once for training and once for
        evaluation. Its batches replace those of the Examples. Of `feed`, only `batch_size` and `seed` apply then.
      feed: options of the batches.
      augment: random changes to the images in training; None for none.
      normalise: how pixels become the model's float inputs; None feeds them as they are.
      images: transformed features that hold pixels, [height, width, channels], 0 to 255. A transform graph can return
        them only as float32; the feed delivers and caches them as uint8.
      masks: transformed features that hold the class of each pixel, [height, width] or [height, width, channels].
        `augment` moves them with the images. The feed delivers float32 as uint8, as it does images. The label may be a
        mask.
      boxes: transformed features that hold boxes of objects, float32 [n, 4] or lists of 4 n numbers: ymin, xmin, ymax,
        xmax as shares of height and width. `augment` moves them with the images.
      source_options: options of the format of the source files, by format, such as {"csv": {"delimiter": ";"}}. The
        model keeps them, and `infeed predict` reads tables in the same way.
      examples_are: `raw` examples go through the transform graph; Transform has materialized `transformed` examples.
    """

    model_fn: str
    label: str
    task: Task = "classification"
    strategy: Annotated[str, Placeholder("NAME")] = "auto"
    epochs: Positive = 10
    patience: Positive | None = None
    steps_per_call: Positive | None = None
    hparams: Mapping[str, Any] = field(default_factory=dict)
    callbacks_fn: str | None = None
    class_weight: Mapping[str, float] | Literal["balanced"] = field(default_factory=dict)
    mixed_precision: Literal["float16", "bfloat16"] | None = None
    xla: bool | None = None
    checkpoint_seconds: float | None = 60.0
    checkpoint_dir: str | None = None
    other_base_model: OtherBaseModel = "error"
    profile_steps: Sequence[int] | None = None
    stage_seconds: float | None = None
    threshold: float = 0.5
    input_fn: str | None = None
    feed: FeedOptions = field(default_factory=FeedOptions)
    augment: Augment | None = None
    normalise: Normalise | None = None
    images: Sequence[str] = ("image",)
    masks: Sequence[str] = ()
    boxes: Sequence[str] = ()
    source_options: Mapping[str, Any] = field(default_factory=dict)
    examples_are: ExamplesAre = "raw"

    def __post_init__(self) -> None:
        as_tuples(self, "images", "masks", "boxes", "profile_steps")
        check_fields(self)
        with about(self, "strategy"):
            check_strategy(self.strategy)
        if self.checkpoint_seconds is not None:
            require(self.checkpoint_seconds > 0, self, "checkpoint_seconds", "use a number above 0, or None for none")
        require((self.stage_seconds or 0) >= 0, self, "stage_seconds", "use seconds, or 0 for no measurement")
        require(0 < self.threshold < 1, self, "threshold", "use a probability between 0 and 1")
        if self.class_weight:
            self._check_class_weight()
        steps = self.profile_steps
        if steps is not None and not (len(steps) == 2 and 1 <= steps[0] <= steps[1]):
            what = f"profile_steps is {list(steps)}"
            raise refused(self, "profile_steps", "give the first and the last step, such as [20, 40]", what)
        if self.label in self.masks:
            self._check_mask_as_label()
        if self.augment:
            do = "change pictures in input_fn; augment is for the feed's batches"
            require(not self.input_fn, self, "augment", do)
            require(self.normalise, self, "normalise", "say how augmented pixels are normalized: normalise=Normalise()")

    def _check_class_weight(self) -> None:
        require(self.task == "classification", self, "class_weight", "use it with the task classification alone")
        if not isinstance(self.class_weight, str):
            return
        require(self.class_weight == "balanced", self, "class_weight", "use balanced, or a weight for each class")
        by_name = "give weights by the classes' names: what is trained on is not as frequent as what ingest has counted"
        require(not self.input_fn, self, "class_weight", by_name)
        require(not (self.feed.class_shares or self.feed.mix), self, "class_weight", by_name)

    def _check_mask_as_label(self) -> None:
        """Raise OptionError for weights of examples: Keras would multiply them with the pixels' losses."""
        do = "leave it out, and weigh pixels in the loss: the label is a mask"
        require(not self.class_weight, self, "class_weight", do)
        with about(self, "feed"):
            require(self.feed.weight is None, self.feed, "weight", do)
            require(not self.feed.static_shapes, self.feed, "static_shapes", do)
        require(self.strategy != "tpu", self, "strategy", "use another one: tpu pads batches with rows of weight 0")

    def option(self, name: str) -> Any:
        return getattr(self if kind_of_option(name) is TrainOptions else self.feed, name)

    def override(self, given: Mapping[str, Any]) -> TrainOptions:
        """Return a copy with other values of options of training or of its feed."""
        own = {name: value for name, value in given.items() if kind_of_option(name) is TrainOptions}
        feed = dataclasses.replace(self.feed, **{name: value for name, value in given.items() if name not in own})
        return dataclasses.replace(self, **own, feed=feed)

    @property
    def user_functions(self) -> dict[str, str]:
        """The user's own functions that training calls, by the option that names them."""
        named = {"model_fn": self.model_fn, "callbacks_fn": self.callbacks_fn, "input_fn": self.input_fn}
        named |= {option: one.name for option, one in self.feed.maps.items()}
        return {option: function for option, function in named.items() if function}

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for the `custom_config` of a Trainer; `schema.read` gives equal options back."""
        return schema.to_plain(self)


def kind_of_option(name: str) -> Any:
    """Return the class of an option of training, which is `FeedOptions` for an option of its feed."""
    return TrainOptions if name in {f.name for f in dataclasses.fields(TrainOptions)} else FeedOptions
