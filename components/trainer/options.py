"""Options of training. The pipeline stores them as JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from infeed.components.base import schema
from infeed.components.base.annotations import Placeholder, Positive
from infeed.components.base.checks import about, as_tuples, check_fields, refused, require
from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import Augment, FeedOptions, Normalise

CUSTOM_CONFIG_KEY = "infeed"  # key of the options in the Trainer's custom_config

Task = Literal["classification", "regression", "multilabel"]
ExamplesAre = Literal["raw", "transformed"]
OtherBaseModel = Literal["error", "ignore"]
ClassWeight = Mapping[str, float] | Literal["balanced"]
Backend = Literal["tensorflow", "jax"]
Strategy = Literal["auto", "one_device", "mirrored", "multi_worker_mirrored", "tpu"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)
_PROBABILITY = "use a probability between 0 and 1"
OVERRIDES = ("epochs", "batch_size", "strategy")  # options that flags and runtime parameters may set for one run


def check_strategy(name: str) -> None:
    """Raise InfeedError unless there is a distribution strategy with this name."""
    if name not in STRATEGIES:
        do = f"use one of {', '.join(STRATEGIES)}"
        raise InfeedError(f"there is no strategy {name!r}", where="option strategy", do=do)


@dataclass(frozen=True)
class Output:
    """One of several outputs of a model, and its label.

    Attributes:
      task: kind of the label, as in TrainOptions.
      feature: transformed feature that is the label. Empty if it has the name of the output.
      threshold: as in TrainOptions, for this output.
    """

    task: Task = "classification"
    feature: str = ""
    threshold: float = 0.5

    def __post_init__(self) -> None:
        check_fields(self)
        require(0 < self.threshold < 1, self, "threshold", _PROBABILITY)


@dataclass(frozen=True)
class TrainOptions:
    """Options of training.

    Attributes:
      model_fn: `package.module:function` or `path/file.py:function`, called as `function(spec: ModelSpec)`. It returns
          a compiled Keras model.
      label: transformed feature that is the label: a class, a number, several numbers of a fixed shape, or a mask. If
        the model has several outputs, output name -> Output: {"price": Output("regression"), "sold": Output()}.
      task: whether the label is a class (int64 index), a number (float32), or a set of classes (`multilabel`: float32
          [classes], 1 for each class of the row).
      backend: Keras backend of the training. `jax` trains in a separate process, data-parallel over all GPUs or TPUs.
        TensorFlow still reads the data and exports the model.
      strategy: distribution strategy: auto, one_device, mirrored, multi_worker_mirrored or tpu.
        `distribution.make_strategy` describes each. The backend `jax` takes auto and one_device.
      epochs: maximum number of epochs. If `TrainArgs.num_steps` is set, training ends after this number of steps.
      patience: number of epochs without a better validation loss after which training stops and restores the best
          weights. None disables early stopping.
      steps_per_call: number of training steps in one call of a TensorFlow function. None uses the compiled
          `steps_per_execution` if it is above 1, otherwise 16. With 16, a step of a tiny model costs about a quarter.
          Metrics and callbacks are updated once per call.
      hparams: hyperparameters for `model_fn`. The best hyperparameters of a Tuner take precedence.
      callbacks_fn: function like `model_fn`, called as `function(spec: CallbackSpec)`, that returns Keras callbacks.
      class_weight: weight of the examples of each class in the training loss, by class name. Other classes have weight
          1. `balanced` is scikit-learn's rule: rows / (classes x rows of the class), with the counts of ingest.
          With several outputs, a mapping by output: {"sold": {"yes": 3.0}} or {"sold": "balanced"}.
      mixed_precision: compute type, `float16` (GPU) or `bfloat16` (TPU, newer GPUs and CPUs). Weights stay float32.
      xla: whether XLA compiles the training step. None leaves the choice to the model. True requires one device.
      checkpoint_seconds: minimum number of seconds between checkpoints. None writes no checkpoints. Writing takes at
          most 1 % of the time, so large models are saved less often.
      checkpoint_dir: folder that outlives this execution, so that a new execution can resume. Each training has a
          subfolder, which it removes after success. None keeps checkpoints in the model run, to restart the same
          execution.
      other_base_model: behavior if the weights of the base model do not fit: `error` stops, `ignore` starts from
          random weights and logs the reason.
      profile_steps: first and last step, counted from 1, of a profiler trace in the model run.
      stage_seconds: seconds to measure the stages of the input pipeline after training, for InputReport; 0 for none.
        If training waited, each change that is tried takes as long. None measures for up to 4 seconds, and only after
        a training of at least 120 seconds.
      threshold: probability above which serving returns the second class, for models with one output for two classes,
          and a class of a `multilabel`.
      input_fn: function like `model_fn`, called as `function(spec: InputSpec)` once for training and once for
        evaluation. Its batches replace those of the Examples. Then only the options `batch_size` and `seed` of `feed`
        apply.
      feed: options of the batches.
      augment: random changes to the images in training. None disables augmentation.
      normalise: normalization of pixels to the model's float inputs. None passes them unchanged.
      images: transformed features that hold pixels, [height, width, channels], 0 to 255. A transform graph returns
          them as float32. The feed converts and caches them as uint8.
      masks: transformed features that hold the class of each pixel, [height, width] or [height, width, channels].
        `augment` moves them with the images. The feed converts them from float32 to uint8, like images. The label may
        be a mask.
      boxes: transformed features that hold boxes of objects, float32 [n, 4] or lists of 4 n numbers: ymin, xmin, ymax,
        xmax as shares of height and width. `augment` moves them with the images.
      source_options: format options of the source files, by format, such as {"csv": {"delimiter": ";"}}. The model
          stores them, so that `infeed predict` reads tables in the same way.
      examples_are: `raw` if training applies the transform graph, `transformed` if Transform has materialized the
          examples.
    """

    model_fn: str
    label: Mapping[str, Output] | str
    task: Task = "classification"
    backend: Backend = "tensorflow"
    strategy: Annotated[str, Placeholder("NAME")] = "auto"
    epochs: Positive = 10
    patience: Positive | None = None
    steps_per_call: Positive | None = None
    hparams: Mapping[str, Any] = field(default_factory=dict)
    callbacks_fn: str | None = None
    class_weight: Mapping[str, Any] | Literal["balanced"] = field(default_factory=dict)
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
        if self.backend == "jax":
            self._check_jax()
        if self.checkpoint_seconds is not None:
            do = "use a number above 0, or None to disable it"
            require(self.checkpoint_seconds > 0, self, "checkpoint_seconds", do)
        require((self.stage_seconds or 0) >= 0, self, "stage_seconds", "use seconds, or 0 to disable the measurement")
        require(0 < self.threshold < 1, self, "threshold", _PROBABILITY)
        self._check_label()
        if self.class_weight:
            self._check_class_weight()
        steps = self.profile_steps
        if steps is not None and not (len(steps) == 2 and 1 <= steps[0] <= steps[1]):
            what = f"profile_steps is {list(steps)}"
            raise refused(self, "profile_steps", "give the first and the last step, such as [20, 40]", what)
        if self.augment:
            do = "change images in input_fn: augment applies only to the feed's batches"
            require(not self.input_fn, self, "augment", do)
            do = "set the normalization of augmented pixels: normalise=Normalise()"
            require(self.normalise, self, "normalise", do)

    @property
    def outputs(self) -> Mapping[str, Output]:
        """Outputs of the model by name, with the feature of each label. The only output of a model has the name ""."""
        if isinstance(self.label, str):
            return {"": Output(self.task, self.label, self.threshold)}
        return {name: dataclasses.replace(one, feature=one.feature or name) for name, one in self.label.items()}

    @property
    def class_weights(self) -> Mapping[str, ClassWeight]:
        """Class weights of each output that has any, by its name. The only output has the name ""."""
        given: Any = self.class_weight or {}  # __post_init__ has checked its form
        return given if not isinstance(self.label, str) else {"": given} if given else {}

    @property
    def labels(self) -> tuple[str, ...]:
        """Transformed features that are labels."""
        return tuple(dict.fromkeys(one.feature for one in self.outputs.values()))

    @property
    def only_label(self) -> str:
        """The transformed feature that is the label, for a model with one output."""
        assert isinstance(self.label, str), "the model has several outputs"
        return self.label

    def _check_label(self) -> None:
        """Raise OptionError if the label contradicts another option."""
        if not isinstance(self.label, str):
            do = "use output name -> Output, such as {'price': Output('regression')}"
            is_right = isinstance(self.label, Mapping) and all(isinstance(one, Output) for one in self.label.values())
            require(is_right and self.label and all(self.label), self, "label", do)
            require(not any("/" in name for name in self.label), self, "label", "use names without '/'")
            for name, default in (("task", "classification"), ("threshold", 0.5)):
                require(getattr(self, name) == default, self, name, "set it in each output of label")
            require(not set(self.labels) & set(self.masks), self, "masks", "train a mask as the only label")
        if not isinstance(self.label, str) or self.task == "multilabel":
            do = "leave it out, or weight rows with the option weight of the feed: a row has several labels"
            with about(self, "feed"):
                require(not self.feed.class_shares, self.feed, "class_shares", do)
        if self.label in self.masks:  # Keras would apply weights of examples to pixels
            do = "leave it out, and weight pixels in the loss: the label is a mask"
            require(not self.class_weight, self, "class_weight", do)
            with about(self, "feed"):
                require(self.feed.weight is None, self.feed, "weight", do)
                require(not self.feed.static_shapes, self.feed, "static_shapes", do)
            do = "use another strategy: tpu pads batches with rows of weight 0"
            require(self.strategy != "tpu", self, "strategy", do)

    def _check_class_weight(self) -> None:
        """Raise OptionError if an output cannot have the class weights that are given for it."""
        if not isinstance(self.label, str):
            example = next((name for name, one in self.outputs.items() if one.task == "classification"), "sold")
            do = f"name the output, because there are several labels: class_weight={{{example!r}: 'balanced'}}"
            require(isinstance(self.class_weight, Mapping), self, "class_weight", do)
        for name, weights in self.class_weights.items():
            given: Any = weights
            at, output = f"class_weight.{name}" if name else "class_weight", self.outputs.get(name)
            what = f"{at} is {schema.shown(given)}"
            if output is None:
                what = f"class_weight has {schema.shown(given)} for {name!r}, which is no output"
                raise refused(self, at, f"use one of the outputs: {', '.join(self.outputs)}", what)
            if output.task != "classification":
                do = "use it only with the task classification; the option weight of the feed weights whole rows"
                raise refused(self, at, do, f"{what}, but the task is {output.task}")
            if isinstance(given, Mapping):
                if not all(type(one) in (int, float) and 0 <= one < math.inf for one in given.values()):
                    raise refused(self, at, "use a number of at least 0 for each class", what)
            elif given != "balanced":
                raise refused(self, at, "use balanced, or a weight for each class", what)
            elif self.input_fn or self.feed.class_shares or self.feed.mix:
                do = "set weights by class name: the training data does not have the class frequencies that "
                do += "ingest counted"
                raise refused(self, at, do, what)

    def _check_jax(self) -> None:
        """Raise OptionError for options that only TensorFlow's training loop has."""
        use = "leave it out with the backend jax"
        require(self.strategy in ("auto", "one_device"), self, "strategy", f"{use}, which trains on all devices")
        require(self.steps_per_call is None, self, "steps_per_call", f"{use}, whose steps overlap with Python")
        require(self.xla is not False, self, "xla", f"{use}, which always compiles with XLA")
        with about(self, "feed"):
            require(self.feed.tier != "device", self.feed, "tier", f"{use}, which copies batches to devices")

    def option(self, name: str) -> Any:
        return getattr(self if kind_of_option(name) is TrainOptions else self.feed, name)

    def override(self, given: Mapping[str, Any]) -> TrainOptions:
        """Return a copy with other values for options of training or of its feed."""
        own = {name: value for name, value in given.items() if kind_of_option(name) is TrainOptions}
        feed = dataclasses.replace(self.feed, **{name: value for name, value in given.items() if name not in own})
        return dataclasses.replace(self, **own, feed=feed)

    @property
    def user_functions(self) -> dict[str, str]:
        """User functions that training calls, by option."""
        named = {"model_fn": self.model_fn, "callbacks_fn": self.callbacks_fn, "input_fn": self.input_fn}
        named |= {option: one.name for option, one in self.feed.maps.items()}
        return {option: function for option, function in named.items() if function}

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for the `custom_config` of a Trainer. `schema.read` restores equal options."""
        return schema.to_plain(self)


def kind_of_option(name: str) -> Any:
    """Return the class of a training option: `FeedOptions` for options of its feed."""
    return TrainOptions if name in {f.name for f in dataclasses.fields(TrainOptions)} else FeedOptions
