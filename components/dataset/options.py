"""Options of ingest that apply to every source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Literal

from infeed.components.base.annotations import Count, Positive, Range, Tagged
from infeed.components.base.checks import as_tuples, at_least, check_fields, refused, require
from infeed.components.dataset.shards import ShardOptions
from infeed.components.dataset.spans import Spans
from infeed.components.dataset.splits import ByLabel, ByRecord, SplitBy

Compression = Literal["gzip", "none"]
Compat = Literal["none", "tfx"]
OnBadRow = Literal["fail", "reject"]
Sampling = Literal["over", "under"]
Level = Annotated[int, Range(0, 9)]
MAX_ROW_MB = 256


@dataclass(frozen=True)
class Balance:
    """Balance the classes of a column in the chosen splits. Rows without a label are unchanged.

    Attributes:
      label: column whose values are balanced.
      splits: splits to balance. Do not balance evaluation splits.
      sampling: "over" repeats rows until all labels are as frequent as the most frequent label. "under" drops rows
          until all labels are as rare as the rarest label. `shuffle_seed` selects the rows.
    """

    label: str
    splits: tuple[str, ...] = ("train",)
    sampling: Sampling = "over"

    def __post_init__(self) -> None:
        as_tuples(self, "splits")
        check_fields(self)


@dataclass(frozen=True)
class IngestOptions:
    """Options of ingest.

    Attributes:
      shards: bounds of the number of shards of a split.
      compression: compression of the shards. "gzip" writes `.gz` files. "none" takes more disk space and saves CPU
          time in every reader.
      level: compression level of gzip. 0 to 3 use isal, 4 to 9 zlib. Level 1 is 16 times as fast as zlib's level 6,
          and its files are about 20 % larger.
      shuffle_seed: seed of the shuffle over the whole split. The order does not depend on the number of workers. None
          keeps the order of the input.
      split_by: rule that assigns rows to splits. None uses TFX's hash of the record.
      fractions: integer columns to write as floats.
      words: boolean columns to write as the texts true and false. Other boolean columns are written as 1 and 0.
      required: column that must have a value. A row with a null, NaN, infinity or empty list there is a bad row.
      labeled: label columns. Rows without a label are dropped and counted as filtered. Empty text counts as missing, an
          empty list does not.
      columns: columns to write. None writes all. The filter, the splits and the balance may use other columns.
      drop: column not to write. The filter, the splits and the balance may use the column.
      filter: rows to keep, for example `fare > 0 and company in ["A", "B"]`. An expression, or
          `package.module:function`, which maps a record batch to a boolean array. A null result drops the row.
      balance: oversampling or undersampling by label.
      on_bad_row: stop at the first bad row (fail), or write bad rows to `rejected.jsonl` (reject).
      bad_row_limit: maximum number of rejected rows.
      compat: how to write an empty cell or a null. "tfx" writes an empty list, byte-identical to TFX's ExampleGens.
          "none" omits the feature, which `FixedLenFeature` with a default requires.
      block_bytes: bytes of input held in memory at a time.
      max_row_mb: maximum size of a decoded row or image in megabytes. Larger rows are errors, larger files bad rows.
          Readers need a few times this memory.
      allow_outside: let a list of images, or the log of a table, name files outside its folder. Links are always
          followed.
      statistics: whether to gather column statistics into `statistics-SPLIT.json`.
      spans: spans of the input that an ExampleGen reads. None if the input has no spans.
    """

    shards: ShardOptions = field(default_factory=ShardOptions)
    compression: Compression = "gzip"
    level: Level = 1
    shuffle_seed: Count | None = 0
    split_by: Annotated[SplitBy, Tagged("how")] | None = None
    fractions: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    labeled: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    filter: str | None = None
    balance: Balance | None = None
    on_bad_row: OnBadRow = "fail"
    bad_row_limit: Count = 1_000
    compat: Compat = "none"
    block_bytes: int = 8 << 20
    max_row_mb: Positive = MAX_ROW_MB
    allow_outside: bool = False
    statistics: bool = True
    spans: Spans | None = None

    def __post_init__(self) -> None:
        as_tuples(self, "columns", "drop", "fractions", "labeled", "words", "required")
        check_fields(self)
        at_least(self, 1 << 10, "block_bytes")
        if self.columns is not None:
            named_once = 0 < len(self.columns) == len(set(self.columns))
            require(named_once, self, "columns", "use one or more distinct names, or None for all")
        if self.shuffle_seed is None and (self.divides_later or any(self.strata)):
            what = "shuffle_seed is None, but exact shares and balance change the order of the rows"
            raise refused(self, "shuffle_seed", "set a shuffle_seed, or leave out ByLabel, exact and balance", what)

    def written(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the columns to write, given the names of the input's columns."""
        return tuple(name for name in self.columns or names if name not in self.drop)

    @property
    def gzip_level(self) -> int | None:
        return self.level if self.compression == "gzip" else None

    @property
    def divides_later(self) -> bool:
        """Whether all rows must be counted before they are assigned to splits."""
        return isinstance(self.split_by, ByLabel) or (isinstance(self.split_by, ByRecord) and self.split_by.exact)

    @property
    def strata(self) -> tuple[str | None, str | None]:
        """Columns of the stratified split and of the balance."""
        by_label = self.split_by.column if isinstance(self.split_by, ByLabel) else None
        return by_label, self.balance.label if self.balance else None
