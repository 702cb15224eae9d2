"""What a look at the data found, as plain data: a `TableSurvey` or an `ImageSurvey`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.errors import InfeedError
from infeed.components.example_gen.sources.folders import FileRef
from infeed.components.transform.feature import Feature
from infeed.components.transform.kinds.image import Resize

Task = Literal["classification", "regression"]
_SHOWN = 3  # values of a column, in an error
_LONGEST = 40  # characters of one


@dataclass(frozen=True)
class Leak:
    """Why a column alone gives the label away.

    Attributes:
      why: in words, for people.
      score: how much of each class the column alone predicts, or R squared of a quantity.
      sure: whether the way in which it predicts is itself a sign; if not, the column may be an honest measurement.
    """

    why: str
    score: float
    sure: bool = True

    @property
    def reason(self) -> str:
        """Why the column is left out."""
        return f"it gives the label away: {self.why}"


@dataclass(frozen=True)
class Group:
    """A column whose values name groups of rows, such as a user.

    Attributes:
      column: its name.
      agreement: how much more two rows of one group agree in the label than any two: from 0, by chance, to 1, always.
      shared: of the groups in the files of other splits, the share that train has too; None without such files.
    """

    column: str
    agreement: float
    shared: float | None = None


@dataclass(frozen=True)
class Repeats:
    """Rows that repeat other rows.

    Attributes:
      rows: that were compared.
      copies: equal another row in all columns.
      alike: equal another row that is not their copy in all columns that are learned from.
      scored: rows in the files of other splits than train.
      shared: of these, equal a row of train in all columns that are learned from.
    """

    rows: int = 0
    copies: int = 0
    alike: int = 0
    scored: int = 0
    shared: int = 0


LABEL_OF_PICTURES = "label/text"
# Columns that ImageExampleGen writes, with their types; features name them.
IMAGE_COLUMNS = {
    **dict.fromkeys(("image/encoded", "image/format", "image/filename", LABEL_OF_PICTURES), "bytes"),
    **dict.fromkeys(("image/height", "image/width", "image/channels", "label"), "int"),
}


@dataclass(frozen=True)
class ColumnSurvey:
    """One column of a table. `type` is what it becomes in a tf.Example: "int", "float" or "bytes".

    Attributes:
      rows: rows in the table.
      missing: cells that are empty, or hold no finite number.
      distinct: different values; None where there are more than 10,000.
      mean, std: of the numbers; 0 for text.
      commonest: rows that hold the commonest value; 0 where there are too many values to count.
      is_list: whether a row may hold several values, which are then all counted.
      features: what it calls for; none where nothing can be learned from it.
      useless: why nothing can be learned from it; empty where something can.
      advice: what would make more of it; empty where there is nothing to say.
      leak: how it gives the label away; None if it does not.
      statistics: all that was counted of it.
    """

    name: str
    type: str
    rows: int
    missing: int
    distinct: int | None
    mean: float
    std: float
    commonest: int
    is_list: bool = False
    features: tuple[Feature, ...] = ()
    useless: str = ""
    advice: str = ""
    leak: Leak | None = None
    statistics: ColumnStatistics | None = field(default=None, compare=False, repr=False)

    @property
    def is_withheld(self) -> bool:
        """Whether nothing is learned from it because it gives the label away."""
        return self.leak is not None and self.useless == self.leak.reason

    @property
    def sample(self) -> str:
        """Some of its values, the commonest first: "'Bern', 'Basel'"."""
        return sample_of(self.statistics) if self.statistics else ""


def sample_of(column: ColumnStatistics) -> str:
    """Some of the values of a column, the commonest first."""
    return ", ".join(_shown(value) for value, _ in islice(column.counts.items(), _SHOWN))


def _shown(value: bytes | float) -> str:
    text = repr(value.decode("utf-8", "replace") if isinstance(value, bytes) else value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


@dataclass(frozen=True)
class Layout:
    """`splits` has a pattern for each split if folders name them; `unused` says what lies beside them.

    `rejected` rows of a CSV name no picture or no label, `unlabeled` of them no label.
    """

    images: tuple[FileRef, ...]
    splits: Mapping[str, str]
    unused: str = ""
    rejected: int = 0
    unlabeled: int = 0


@dataclass(frozen=True)
class TableSurvey:
    """A table: its columns without the label, the label, and whether that is a class or a quantity.

    `classes` are in the order of their index, each with its rows in `class_rows`; none of a quantity. `rejected` are
    bad rows, which are counted nowhere else; `unlabeled` of them have no label. `patterns` has a pattern for each split
    that has files of its own, and `rows_of` about its rows. `unlabeled_files` are of a split and have no label, and
    `beside` are of no split: neither is in the rows. `groups` are columns that name groups of rows, `repeats` counts
    rows that repeat others.

    `numbers` are the text columns that are read as numbers, each with an example of its format, as the option `numbers`
    of the sources takes them, and `numbers_remark` says so. `not_read` are columns without a place in an example, each
    with the reason.
    """

    columns: tuple[ColumnSurvey, ...]
    label: ColumnSurvey
    task: Task
    rows: int
    classes: tuple[str, ...] = ()
    class_rows: tuple[int, ...] = ()
    rejected: int = 0
    unlabeled: int = 0
    words: tuple[str, ...] = ()
    patterns: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()
    repeats: Repeats = Repeats()
    numbers: Mapping[str, str] = field(default_factory=dict)
    numbers_remark: str = ""
    not_read: Mapping[str, str] = field(default_factory=dict)
    rows_of: Mapping[str, int] = field(default_factory=dict)
    unlabeled_files: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()

    @property
    def undivided(self) -> int:
        """About how many rows are in files that do not say which are trained on."""
        return self.rows_of.get("train", self.rows)

    @property
    def left_out(self) -> dict[str, str]:
        """Columns that no feature is made of, with the reason."""
        return {column.name: column.useless for column in self.columns if column.useless}

    @property
    def guess(self) -> float:
        """What a model has to beat: the share of the commonest class, or the variance of the quantity."""
        return self.label.commonest / self.rows if self.task == "classification" else self.label.std**2


@dataclass(frozen=True)
class RepeatedPictures:
    """Pictures that are copies of another one.

    Attributes:
      divided: copies that lie in the folders of several splits, or that are divided like all others.
      contrary: copies that lie in several classes.
      example: names of two copies.
    """

    divided: int = 0
    contrary: int = 0
    example: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImageSurvey:
    """Pictures in class folders. `height`, `width` and `channels` are those of most pictures, `most` so many.

    `rejected` are files that are no pictures, which are counted nowhere else; `written` are the columns to learn from.
    `resize` says how pictures of other sizes become that one; see `DecodeImage`.
    """

    layout: Layout
    classes: tuple[str, ...]
    class_rows: tuple[int, ...]
    rows: int
    height: int
    width: int
    channels: int
    most: int

    rejected: int = 0
    task: Task = "classification"
    written: tuple[str, ...] = tuple(IMAGE_COLUMNS)
    repeats: RepeatedPictures = RepeatedPictures()
    resize: Resize = "stretch"

    @property
    def unlabeled(self) -> int:
        """Those of the rejected that a CSV gives no label."""
        return self.layout.unlabeled

    @property
    def patterns(self) -> Mapping[str, str]:
        """A pattern for each split that has a folder of its own."""
        return self.layout.splits

    @property
    def rows_of(self) -> Mapping[str, int]:
        """The pictures of each split that has a folder of its own."""
        names = Counter(image.filename.partition("/")[0] for image in self.layout.images)
        return {split: names[pattern.partition("/")[0]] for split, pattern in self.patterns.items()}

    @property
    def undivided(self) -> int:
        """Pictures in folders that do not say which are trained on."""
        return self.rows_of.get("train", self.rows)

    @property
    def guess(self) -> float:
        """What a model has to beat: the share of the commonest class."""
        return max(self.class_rows) / self.rows


Survey = TableSurvey | ImageSurvey


def with_sample(error: InfeedError, survey: Survey) -> InfeedError:
    """The error with some values of the columns that it names in quotes."""
    columns = (*survey.columns, survey.label) if isinstance(survey, TableSurvey) else ()
    named = [column for column in columns if f"'{column.name}'" in error.where or f'"{column.name}"' in error.where]
    told = [f"column {column.name!r} holds {column.sample}" for column in named if column.sample]
    return InfeedError(error.what, where="; ".join([error.where, *told]), do=error.do)
