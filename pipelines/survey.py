"""Looks the user's data over before anything starts: what is there, what can be learned from it, what is wrong with it.

One bounded pass that needs neither TFX nor TensorFlow. The templates decide on features and model from what it finds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from infeed.components.dataset import files
from infeed.components.errors import InfeedError
from infeed.components.example_gen.sources import images
from infeed.pipelines.column_survey import MAX_DISTINCT, ColumnSums
from infeed.pipelines.column_survey import ColumnSurvey as ColumnSurvey
from infeed.pipelines.sources import Source, blocks, open_table

Task = Literal["classification", "regression"]

# An integer label with at most so many values is a class, with more a quantity.
_MAX_INTEGER_CLASSES = 20


@dataclass(frozen=True)
class TableSurvey:
    """A table: its columns without the label, the label, and whether that is a class or a quantity."""

    columns: tuple[ColumnSurvey, ...]
    label: ColumnSurvey
    task: Task
    rows: int

    @property
    def left_out(self) -> dict[str, str]:
        """Columns that no feature is made of, with the reason."""
        return {column.name: column.useless for column in self.columns if column.useless}

    @property
    def guess(self) -> float:
        """What a model has to beat: the share of the commonest class, or the variance of the quantity."""
        return self.label.commonest / self.rows if self.task == "classification" else self.label.std**2


@dataclass(frozen=True)
class ImageSurvey:
    """Pictures in class folders. `height`, `width` and `channels` are those of most pictures."""

    classes: tuple[str, ...]
    rows: int
    height: int
    width: int
    channels: int
    commonest: int

    task: Task = "classification"

    @property
    def guess(self) -> float:
        """What a model has to beat: the share of the commonest class."""
        return self.commonest / self.rows


Survey = TableSurvey | ImageSurvey


def survey_table(
    path: str,
    label: str,
    task: Task | None = None,
    source: Source = "csv",
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> TableSurvey:
    """Reads a table once.

    Args:
      path: file or folder of files.
      label: the column to learn.
      task: what the label is; None tells it from the values: text and up to 20 different integers are classes.
      source: kind of the files.
      settings: what the kind can be told of them, such as the delimiter of a CSV.

    Raises:
      InfeedError: no file, no rows, no such label column, rows without a label, or a label that has one value only.
    """
    table = open_table(path, source, settings)
    if label not in table.schema.names:
        raise InfeedError(
            f"there is no column {label!r} to learn",
            where=path,
            do=f"Name one of its columns with --label: {', '.join(table.schema.names)}.",
        )
    sums = {field.name: ColumnSums(field) for field in table.schema}
    for block in blocks(table):
        for name, values in zip(block.schema.names, block.columns, strict=True):
            sums[name].add(values)
    surveyed = {name: column.survey() for name, column in sums.items()}
    target = surveyed.pop(label)
    return TableSurvey(tuple(surveyed.values()), target, _checked_task(target, task, path), target.rows)


def survey_images(path: str) -> ImageSurvey:
    """Reads the header of every picture.

    Raises:
      InfeedError: no pictures, an empty class folder, a file that is not a picture, or a single class.
    """
    index = images.find_images(path)
    if len(index.classes) < 2:
        raise InfeedError(f"there is one class only: {index.classes[0]!r}", where=path, do="Give at least two classes.")
    sizes = Counter(_size(image.path) for image in index.images)
    (height, width, channels), _ = sizes.most_common(1)[0]
    return ImageSurvey(
        classes=index.classes,
        rows=len(index.images),
        height=height,
        width=width,
        channels=channels,
        commonest=max(Counter(image.text for image in index.images).values()),
    )


def _size(path: str) -> tuple[int, int, int]:
    """Height, width and channels to decode to: grey pictures as grey, all others as RGB."""
    with files.open_input(path) as file:
        header = images.read_header(file, path)
    return header.height, header.width, 1 if header.channels == 1 else 3


def _checked_task(label: ColumnSurvey, task: Task | None, path: str) -> Task:
    where = f"{path}, column {label.name!r}"
    if label.is_list:
        raise InfeedError("the label is a list", where=where, do="Name a column of one value a row.")
    if label.missing:
        raise InfeedError(
            f"{label.missing:,} of {label.rows:,} rows have no label",
            where=where,
            do="Remove those rows, or fill them in.",
        )
    if label.distinct == 1:
        raise InfeedError("every row has the same label", where=where, do="Name a column whose values differ.")
    told = task or _told(label)
    if told == "regression" and label.type == "bytes":
        raise InfeedError("a text cannot be a quantity", where=where, do="Use --task classification.")
    if told == "classification" and label.distinct is None:
        raise InfeedError(
            f"there are more than {MAX_DISTINCT:,} classes",
            where=where,
            do="Name another label, or --task regression.",
        )
    return told


def _told(label: ColumnSurvey) -> Task:
    if label.type == "bytes":
        return "classification"
    few = label.distinct is not None and label.distinct <= _MAX_INTEGER_CLASSES
    return "classification" if label.type == "int" and few else "regression"
