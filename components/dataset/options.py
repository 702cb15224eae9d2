"""Options of ingestion, the same for every source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from infeed.components.annotations import Tagged
from infeed.components.checks import as_tuples, at_least, check_choices, refused, require
from infeed.components.dataset.shards import ShardOptions
from infeed.components.dataset.splits import ByLabel, SplitBy

Compression = Literal["gzip", "none"]
Compat = Literal["none", "tfx"]
OnBadRow = Literal["fail", "reject"]
Sampling = Literal["over", "under"]
MAX_ROW_MB = 256


@dataclass(frozen=True)
class Balance:
    """Balance the classes of a column in the chosen splits. Rows without a label are unchanged.

    Attributes:
      label: the column whose values are balanced.
      splits: splits to balance; do not balance evaluation splits.
      sampling: "over" repeats rows until every label is as frequent as the most frequent one; "under" drops rows until
        every label is as rare as the rarest. Which rows depends on `shuffle_seed`.
    """

    label: str
    splits: tuple[str, ...] = ("train",)
    sampling: Sampling = "over"

    def __post_init__(self) -> None:
        as_tuples(self, "splits")
        check_choices(self)


@dataclass(frozen=True)
class IngestOptions:
    """How rows become shards.

    Attributes:
      shards: how many shards a split gets.
      compression: "gzip" names files `.gz`; "none" trades disk for the CPU time of every later reader.
      level: of gzip; 0 to 3 are isal's, 4 to 9 zlib's. isal's 1 takes a sixteenth of the time of zlib's 6 and gives
        files about a fifth larger.
      shuffle_seed: rows are shuffled over the whole split, the same way for any number of workers; None keeps the
        order of the input.
      split_by: how rows go to splits; None leaves it to TFX's hash of the record.
      fractions: columns of whole numbers that are written as numbers with fractions.
      words: boolean columns that are written as the words true and false; the others become 1 and 0.
      required: columns without which a row is a bad row: a null, a NaN or an infinite number there, or an empty list.
      columns: what to write; None writes all. The filter, the splits and the balance may use others.
      filter: rows to keep: an expression such as `fare > 0 and company in ["A", "B"]`, or `package.module:function`
        from a record batch to a boolean array. A null does not pass.
      balance: over- or under-sampling by label.
      on_bad_row: "fail" at the first row that cannot be read, or "reject" it into `rejected.jsonl`.
      bad_row_limit: more rejected rows than this are an error.
      compat: "tfx" writes an empty cell as a present but empty list, byte for byte as TFX's CsvExampleGen does;
        "none" leaves the feature out, which is what `FixedLenFeature` with a default needs.
      block_bytes: how much input is held at a time, in bytes.
      max_row_mb: a row or picture that decodes to more megabytes is an error, or a bad row where it is a whole file;
        readers use a few times as much memory.
      allow_outside: whether links and lists of pictures in the data may lead to files outside of its folder.
      statistics: whether what is known of the columns is counted on the way, into `statistics-SPLIT.json`.
    """

    shards: ShardOptions = field(default_factory=ShardOptions)
    compression: Compression = "gzip"
    level: int = 1
    shuffle_seed: int | None = 0
    split_by: Annotated[SplitBy, Tagged("how")] | None = None
    fractions: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    balance: Balance | None = None
    on_bad_row: OnBadRow = "fail"
    bad_row_limit: int = 1_000
    compat: Compat = "none"
    block_bytes: int = 8 << 20
    max_row_mb: int = MAX_ROW_MB
    allow_outside: bool = False
    statistics: bool = True

    def __post_init__(self) -> None:
        as_tuples(self, "columns", "fractions", "words", "required")
        check_choices(self)
        require(0 <= self.level <= 9, self, "level", "use a gzip level from 0 to 9")
        at_least(self, 0, "shuffle_seed", "bad_row_limit")
        at_least(self, 1 << 10, "block_bytes")
        at_least(self, 1, "max_row_mb")
        if self.columns is not None:
            named_once = 0 < len(self.columns) == len(set(self.columns))
            require(named_once, self, "columns", "name one or more, each once, or leave it None for all")
        self._check_that_strata_are_shuffled()

    @property
    def gzip_level(self) -> int | None:
        return self.level if self.compression == "gzip" else None

    @property
    def strata(self) -> tuple[str | None, str | None]:
        """The column that splits are stratified by, and the one that is balanced."""
        by_label = self.split_by.column if isinstance(self.split_by, ByLabel) else None
        return by_label, self.balance.label if self.balance else None

    def _check_that_strata_are_shuffled(self) -> None:
        if self.shuffle_seed is None and any(self.strata):
            what = "rows of a label are divided at random, but shuffle_seed is None, which keeps the input's order"
            raise refused(self, "shuffle_seed", "give a shuffle_seed, or leave out ByLabel and balance", what)
