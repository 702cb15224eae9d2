"""Findings of a survey of the data, as plain data: a `TableSurvey` or an `ImageSurvey`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice
from typing import Literal

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.example_gen.sources.folders import FileRef
from infeed.components.transform.feature import Feature
from infeed.components.transform.kinds.image import Resize

Task = Literal["classification", "regression", "multilabel"]
_SHOWN = 3  # values of a column in an error
_LONGEST = 40  # characters of a value


@dataclass(frozen=True)
class Leak:
    """Leak: a column that alone gives the label away."""

    why: str  # reason, for people
    score: float  # share of each class that the column alone predicts, or R squared of a quantity
    sure: bool = True  # whether the kind of the prediction proves a leak; if not, the column may be a valid measurement
    label: str = ""  # the label that is given away. Empty if there is only one

    @property
    def reason(self) -> str:
        return f"it gives {self.subject} away: {self.why}"

    @property
    def subject(self) -> str:
        """The label, as messages name it."""
        return f"the label {self.label!r}" if self.label else "the label"


@dataclass(frozen=True)
class Group:
    """A column whose values name groups of rows, such as a user."""

    column: str
    agreement: float  # excess agreement in the label of two rows of a group: from 0, by chance, to 1, always
    # Whether the nearest row predicts the label much better if rows of the same group are allowed.
    near: bool = False
    # Share of the groups in the files of other splits that also occur in train. None without such files.
    shared: float | None = None


@dataclass(frozen=True)
class Repeats:
    """Rows that repeat other rows."""

    rows: int = 0  # number of compared rows
    equal: int = 0  # rows that equal another row in all feature columns except `ignored`
    copies: int = 0  # rows of `equal` that equal another row in all columns
    alike: int = 0  # rows of `equal` that differ from the other row in a column without features
    scored: int = 0  # rows in the files of splits other than train
    shared: int = 0  # rows of `scored` that equal a row of train in all feature columns except `ignored`
    ignored: tuple[str, ...] = ()  # feature columns with a different number in each row
    expected: int = 0  # rows that equal another row, if chance explains them; `equal` and `copies` are 0 then
    # Rows divided by the mean number of rows that equal a row, if chance explains the equal rows. A hash, which keeps
    # equal rows together, divides the table as unevenly as this number of distinct rows.
    effective: float = math.inf


LABEL_OF_PICTURES = "label/text"
# Columns that ImageExampleGen writes, with their types. Features refer to these names.
IMAGE_COLUMNS = {
    **dict.fromkeys(("image/encoded", "image/format", "image/filename", LABEL_OF_PICTURES), "bytes"),
    **dict.fromkeys(("image/height", "image/width", "image/channels", "label"), "int"),
}


@dataclass(frozen=True)
class ColumnSurvey:
    """One column of a table. `type` is its type in a tf.Example: "int", "float" or "bytes"."""

    name: str
    type: str
    rows: int
    missing: int  # cells that are empty or not finite
    distinct: int | None  # number of different values; None above 10,000
    mean: float  # mean, std: mean and standard deviation of numbers; 0 for text
    std: float
    commonest: int  # rows with the commonest value; 0 if there are too many values to count
    is_list: bool = False  # whether a row may hold several values; all of them are counted
    features: tuple[Feature, ...] = ()  # proposed features; empty if the column is useless
    useless: str = ""  # why the column has no features; empty if it has
    advice: str = ""  # how to make better use of the column; may be empty
    leak: Leak | None = None  # how the column gives the label away; None if it does not
    statistics: ColumnStatistics | None = field(default=None, compare=False, repr=False)  # statistics of the column

    @property
    def is_withheld(self) -> bool:
        """Whether the column is left out because it gives the label away."""
        return self.leak is not None and self.useless == self.leak.reason

    @property
    def sample(self) -> str:
        """Commonest values, for example "'Bern', 'Basel'"."""
        return sample_of(self.statistics) if self.statistics else ""


def sample_of(column: ColumnStatistics) -> str:
    """Return some values of a column, the commonest first."""
    values = (value for value, _ in islice(column.counts.items(), _SHOWN))
    texts = [repr(value.decode("utf-8", "replace") if isinstance(value, bytes) else value) for value in values]
    return ", ".join(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..." for text in texts)


@dataclass(frozen=True)
class Layout:
    """Image files of a data set."""

    images: tuple[FileRef, ...]
    splits: Mapping[str, str]  # file pattern of each split, if folders name splits
    unused: str = ""  # folders that belong to no split
    rejected: int = 0  # bad rows of a CSV
    unlabeled: int = 0  # rows of a CSV that are dropped because they have no label


@dataclass(frozen=True)
class LabelSurvey:
    """Survey of a label of a table."""

    column: ColumnSurvey
    task: Task
    classes: tuple[str, ...] = ()  # names of the classes in order of their index; empty for a regression
    class_rows: tuple[int, ...] = ()  # rows of each class


@dataclass(frozen=True)
class TableSurvey:
    """Survey of a table."""

    columns: tuple[ColumnSurvey, ...]  # columns without the labels
    label: ColumnSurvey  # label, task, classes, class_rows: the label whose metric decides about the blessing
    task: Task
    rows: int  # number of good rows
    classes: tuple[str, ...] = ()
    class_rows: tuple[int, ...] = ()
    others: tuple[LabelSurvey, ...] = ()  # the other labels. Empty if there is only one
    rejected: int = 0  # bad rows; no other count includes them
    unlabeled: int = 0  # rows that are dropped because they have no label; no other count includes them
    words: tuple[str, ...] = ()  # boolean columns that keep their words, true and false
    patterns: Mapping[str, str] = field(default_factory=dict)  # file pattern of each split that has its own files
    groups: tuple[Group, ...] = ()  # columns that name groups of rows
    repeats: Repeats = Repeats()  # counts of repeated rows
    # Text columns that are read as numbers, with an example of the format; see the option `numbers`.
    numbers: Mapping[str, str] = field(default_factory=dict)
    nulls: tuple[str, ...] = ()  # words that are read as missing values, because their columns hold numbers
    codes: tuple[str, ...] = ()  # columns of whole numbers that are read as words, because cells have leading zeros
    # Notes (topic, text) on `nulls`, `numbers` and `codes`, and on other numbers that may be codes.
    remarks: tuple[tuple[str, str], ...] = ()
    # Columns that cannot be stored in an example, with the reason.
    not_read: Mapping[str, str] = field(default_factory=dict)
    rows_of: Mapping[str, int] = field(default_factory=dict)  # approximate rows of each split in `patterns`
    unlabeled_files: tuple[str, ...] = ()  # patterns of the splits whose files have no label
    beside: tuple[str, ...] = ()  # files and folders that belong to no split

    @property
    def labels(self) -> tuple[LabelSurvey, ...]:
        """All labels."""
        return LabelSurvey(self.label, self.task, self.classes, self.class_rows), *self.others

    @property
    def all_columns(self) -> tuple[ColumnSurvey, ...]:
        """Columns with the labels."""
        return *self.columns, *(one.column for one in self.labels)

    def about(self, label: str) -> TableSurvey:
        """Return the survey with another label as the one that decides about the blessing."""
        [first] = (one for one in self.labels if one.column.name == label)
        others = tuple(one for one in self.labels if one.column.name != label)
        return replace(
            self,
            label=first.column,
            task=first.task,
            classes=first.classes,
            class_rows=first.class_rows,
            others=others,
        )

    @property
    def undivided(self) -> int:
        """Approximate number of rows in files that the shares divide."""
        return self.rows_of.get("train", self.rows)

    @property
    def left_out(self) -> dict[str, str]:
        """Columns without features, with the reason."""
        return {column.name: column.useless for column in self.columns if column.useless}

    @property
    def guess(self) -> float:
        """Score of guessing: the share of the commonest class, the variance of the quantity, or F1 of sets of classes.

        F1 is over all classes of all rows. The best guess gives the commonest classes to every row.
        """
        if self.task == "classification":
            return self.label.commonest / self.rows
        if self.task == "regression":
            return self.label.std**2
        right = accumulate(sorted(self.class_rows, reverse=True))
        return max(2 * rows / (count * self.rows + sum(self.class_rows)) for count, rows in enumerate(right, start=1))


@dataclass(frozen=True)
class RepeatedPictures:
    """Counts of copied images."""

    divided: int = 0  # copies in the folders of several splits, or among images that the shares divide
    contrary: int = 0  # copies in several classes
    example: tuple[str, ...] = ()  # names of two copies


@dataclass(frozen=True)
class ImageSurvey:
    """Survey of images."""

    layout: Layout
    classes: tuple[str, ...]  # names of the classes in order of their index
    class_rows: tuple[int, ...]  # number of images of each class
    rows: int  # number of images
    height: int  # height, width, channels: most frequent size
    width: int
    channels: int
    most: int  # number of images of this size
    rejected: int = 0  # files that are not images; no other count includes them
    task: Task = "classification"
    written: tuple[str, ...] = tuple(IMAGE_COLUMNS)  # columns to learn from
    repeats: RepeatedPictures = RepeatedPictures()  # counts of copied images
    resize: Resize = "stretch"  # how images of other sizes are resized; see `DecodeImage`

    @property
    def unlabeled(self) -> int:
        """Number of rejected images, which have no label in the CSV."""
        return self.layout.unlabeled

    @property
    def patterns(self) -> Mapping[str, str]:
        """File pattern of each split that has its own folder."""
        return self.layout.splits

    @property
    def rows_of(self) -> Mapping[str, int]:
        """Number of images of each split that has its own folder."""
        names = Counter(image.filename.partition("/")[0] for image in self.layout.images)
        return {split: names[pattern.partition("/")[0]] for split, pattern in self.patterns.items()}

    @property
    def undivided(self) -> int:
        """Number of images that the shares divide."""
        return self.rows_of.get("train", self.rows)

    @property
    def guess(self) -> float:
        """Score of guessing: the share of the commonest class."""
        return max(self.class_rows) / self.rows


Survey = TableSurvey | ImageSurvey


def with_sample(error: InfeedError, survey: Survey) -> InfeedError:
    """Return the error with sample values of the columns that its `where` quotes."""
    columns = survey.all_columns if isinstance(survey, TableSurvey) else ()
    named = [column for column in columns if f"'{column.name}'" in error.where or f'"{column.name}"' in error.where]
    told = [f"column {column.name!r} holds {column.sample}" for column in named if column.sample]
    return InfeedError(error.what, where="; ".join([error.where, *told]), do=error.do)
