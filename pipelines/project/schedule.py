"""How long to train and in what batches, fitted to the number of rows where a config leaves it open.

An epoch of few rows has few steps, so there are many epochs; one of many rows has hundreds, of larger batches, so that
a step's fixed cost is shared by more rows. What a config says, wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infeed.pipelines.surveys import ImageSurvey, Survey

_TRAINED_ON = 2 / 3  # of the rows, where no folder says which: the rest is evaluated on
_STEPS_PER_EPOCH = 128  # wanted: enough that one epoch is worth an evaluation
_STEPS = 3_000  # after which a small model has mostly stopped to get better, Adam's steps being as large as they are
_LEAST_EPOCHS = 10
_MOST_EPOCHS = {"rows": 100, "pictures": 60}
_SMALLEST_BATCH = 64
# Of a table a step of 1,024 rows costs little more than one of 64; a picture costs thousands of times as much as a row.
_LARGEST_BATCH = {"rows": 1024, "pictures": 256}
_PATIENCE = 1 / 8  # of the epochs, so that chance alone does not end training


@dataclass(frozen=True)
class Schedule:
    """The numbers, and why.

    Attributes:
      batch_size: rows of a global batch.
      epochs: at most.
      patience: epochs without a better validation loss before training stops; None never stops.
      reason: in words, for people.
    """

    batch_size: int
    epochs: int
    patience: int | None
    reason: str

    def fill(self, train: Mapping[str, Any]) -> dict[str, Any]:
        """The options of training as a config gives them, and those of this schedule that it leaves out."""
        chosen = {"batch_size": self.batch_size, "epochs": self.epochs, "patience": self.patience}
        return {**chosen, **{name: value for name, value in train.items() if value is not None or name not in chosen}}


def choose_schedule(survey: Survey, given: Mapping[str, Any]) -> Schedule:
    """What fits the rows, around what is given.

    Args:
      survey: counts the rows.
      given: `batch_size`, `epochs` and `patience` as far as somebody has said them; None for `patience` is said, too.
    """
    rows, unit = training_rows(survey), "pictures" if isinstance(survey, ImageSurvey) else "rows"
    said = {name: given[name] for name in ("batch_size", "epochs", "patience") if given.get(name) is not None}
    batch_size = _count(said.get("batch_size")) or _batch_size(rows, _LARGEST_BATCH[unit])
    steps = max(rows // batch_size, 1)
    epochs = _count(said.get("epochs")) or min(max(_STEPS // steps, _LEAST_EPOCHS), _MOST_EPOCHS[unit])
    # Who says how many epochs gets as many.
    patience = given.get("patience", None if "epochs" in said else max(2, round(_PATIENCE * epochs)))
    stops = f", fewer once {patience} in a row bring no better validation loss" if patience else ""
    reason = (
        f"batches of {batch_size:,} and {'at most ' if patience else ''}{epochs:,} epochs{stops}: an epoch of about "
        f"{rows:,} {unit} is {steps:,} steps, {epochs * steps:,} in all{', given ' if said else ''}{' and '.join(said)}"
    )
    return Schedule(batch_size, epochs, patience, reason)


def training_rows(survey: Survey) -> int:
    """About how many are trained on."""
    if isinstance(survey, ImageSurvey) and survey.layout.splits:
        folder = survey.layout.splits["train"].partition("/")[0]
        return sum(image.filename.startswith(f"{folder}/") for image in survey.layout.images)
    return round(_TRAINED_ON * survey.rows)


def _count(given: Any) -> int:
    """What is given, if it is a count; TrainOptions says what is wrong with anything else."""
    return given if isinstance(given, int) and given > 0 else 0


def _batch_size(rows: int, largest: int) -> int:
    """The largest power of two that leaves an epoch its steps."""
    power = 1 << (max(rows // _STEPS_PER_EPOCH, 1).bit_length() - 1)
    return min(max(power, _SMALLEST_BATCH), largest)
