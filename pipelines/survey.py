"""Looks the user's data over before anything starts: what is there, what can be learned from it, what is wrong with it.

One bounded pass that needs neither TFX nor TensorFlow. The templates decide on features and model from what it finds.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.dataset import files
from infeed.components.errors import InfeedError
from infeed.components.example_gen.sources import csv, images

Task = Literal["classification", "regression"]

# Values of a column that are counted one by one; a column with more is known to have many, and that is enough.
_MAX_DISTINCT = 10_000
# An integer label with at most so many values is a class, with more a quantity.
_MAX_INTEGER_CLASSES = 20
# A text of which more than half of the values are different names rows; it does not describe them.
_IDENTIFIER_SHARE = 0.5


@dataclass(frozen=True)
class ColumnSurvey:
    """One column of a table. `type` is what it becomes in a tf.Example: "int", "float" or "bytes".

    Attributes:
      rows: rows in the table.
      missing: empty cells.
      distinct: different values; None where there are more than 10,000.
      mean, std: of the numbers; 0 for text.
      commonest: rows that hold the commonest value; 0 where there are too many values to count.
    """

    name: str
    type: str
    rows: int
    missing: int
    distinct: int | None
    mean: float
    std: float
    commonest: int

    @property
    def useless(self) -> str:
        """Why nothing can be learned from the column; empty where something can."""
        if self.missing == self.rows:
            return "it is empty"
        if self.distinct == 1 and not self.missing:
            return "every row has the same value"
        if self.type == "bytes" and self._is_identifier():
            return "nearly every row has a value of its own"
        return ""

    def _is_identifier(self) -> bool:
        present = self.rows - self.missing
        return self.distinct is None or self.distinct > max(100, present * _IDENTIFIER_SHARE)


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


def survey_table(path: str, label: str, task: Task | None = None, options: csv.CsvOptions | None = None) -> TableSurvey:
    """Reads a CSV file, or a folder of them, once.

    Args:
      path: file or folder.
      label: the column to learn.
      task: what the label is; None tells it from the values: text and up to 20 different integers are classes.
      options: how the files are written.

    Raises:
      InfeedError: no file, no rows, no such label column, rows without a label, or a label that has one value only.
    """
    paths = table_files(path)
    schema = csv.infer_schema(paths, options)
    if label not in schema.names:
        raise InfeedError(
            f"there is no column {label!r} to learn",
            where=path,
            do=f"Name one of its columns with --label: {', '.join(schema.names)}.{_other_delimiter(schema.names)}",
        )
    columns = {field.name: _Column(field) for field in schema}
    for block in (block for file in paths for block in csv.read_blocks(file, schema, options)):
        for name, values in zip(block.schema.names, block.columns, strict=True):
            columns[name].add(values)
    surveyed = {name: column.survey() for name, column in columns.items()}
    target = surveyed.pop(label)
    return TableSurvey(tuple(surveyed.values()), target, _checked_task(target, task, path), target.rows)


def _other_delimiter(columns: list[str]) -> str:
    found = [sign for sign in ";\t|" if len(columns) == 1 and sign in columns[0]]
    return f" The cells seem to be separated by {found[0]!r}: say so with --delimiter." if found else ""


def table_files(path: str) -> list[str]:
    """The CSV files behind a path, sorted; hidden files and markers such as `_SUCCESS` are not data."""
    where = Path(path)
    if where.is_file():
        return [str(where)]
    found = sorted(str(p) for p in where.glob("*") if p.is_file() and not p.name.startswith((".", "_")))
    if not found:
        raise InfeedError(
            "there is no file to read" if where.is_dir() else "there is no such file or folder",
            where=path,
            do="Give a CSV file with a header line, or a folder of such files.",
        )
    return found


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


class _Column:
    """Sums over the blocks of one column."""

    def __init__(self, field: pa.Field) -> None:
        self._name = field.name
        self._numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        self._type = "int" if pa.types.is_integer(field.type) else "float" if self._numeric else "bytes"
        self._rows = self._missing = 0
        self._sum = self._squares = 0.0
        self._counts: Counter[object] | None = Counter()

    def add(self, values: pa.Array) -> None:
        self._rows += len(values)
        self._missing += values.null_count
        if values.null_count == len(values):
            return
        if self._numeric:
            numbers = values.cast(pa.float64(), safe=False)
            self._sum += pc.sum(numbers).as_py() or 0.0
            self._squares += pc.sum(pc.multiply(numbers, numbers)).as_py() or 0.0
        self._count(values)

    def _count(self, values: pa.Array) -> None:
        if self._counts is None:
            return
        counted = pc.value_counts(values.drop_null())
        if len(counted) > _MAX_DISTINCT:
            self._counts = None
            return
        for entry in counted.to_pylist():
            self._counts[entry["values"]] += entry["counts"]
        if len(self._counts) > _MAX_DISTINCT:
            self._counts = None

    def survey(self) -> ColumnSurvey:
        present = max(1, self._rows - self._missing)
        mean = self._sum / present
        return ColumnSurvey(
            name=self._name,
            type=self._type,
            rows=self._rows,
            missing=self._missing,
            distinct=None if self._counts is None else len(self._counts),
            mean=mean,
            std=math.sqrt(max(0.0, self._squares / present - mean * mean)),
            commonest=max(self._counts.values(), default=0) if self._counts else 0,
        )


def _checked_task(label: ColumnSurvey, task: Task | None, path: str) -> Task:
    where = f"{path}, column {label.name!r}"
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
            f"there are more than {_MAX_DISTINCT:,} classes",
            where=where,
            do="Name another label, or --task regression.",
        )
    return told


def _told(label: ColumnSurvey) -> Task:
    if label.type == "bytes":
        return "classification"
    few = label.distinct is not None and label.distinct <= _MAX_INTEGER_CLASSES
    return "classification" if label.type == "int" and few else "regression"
