"""What a user may say about training. The options travel through the pipeline as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from infeed.components.errors import InfeedError
from infeed.components.feed.options import Augment, FeedOptions, Normalise
from infeed.components.trainer.strategy import check_name

Task = Literal["classification", "regression"]
ExamplesAre = Literal["raw", "transformed"]


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
      steps_per_call: training steps run in one call of a TensorFlow function. Sixteen made a call of a tiny model about
        four times cheaper a step; metrics and callbacks see every call, not every step.
      hparams: handed to `model_fn` as they are.
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
    steps_per_call: int = 16
    hparams: Mapping[str, Any] = field(default_factory=dict)
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
        if self.augment and not self.normalise:
            raise _invalid("normalise", None, "Say how augmented pixels are normalised: normalise=Normalise().")

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


def _invalid(name: str, value: object, do: str) -> InfeedError:
    return InfeedError(f"{name} is {value!r}", where="TrainOptions", do=do)
