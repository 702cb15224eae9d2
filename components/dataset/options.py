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
      sampling: "over" repeats rows until every label is as frequent as the most frequent one. "under" drops rows until
        every label is as rare as the rarest. `shuffle_seed` determines which rows.
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
      compression: compression of the shards. "gzip" writes `.gz` files. "none" takes more disk and saves CPU time of
        every reader.
      level: compression level of gzip. 0 to 3 use isal, 4 to 9 zlib. Level 1 takes a sixteenth of the time of zlib's 6
        and writes about a fifth larger files.
      shuffle_seed: seed of the shuffle over the whole split. The order is equal for any number of workers. None keeps
        the order of the input.
      split_by: rule that assigns rows to splits. None uses TFX's hash of the record.
      fractions: integer columns to write as floats.
      words: boolean columns to write as the words true and false. Other boolean columns become 1 and 0.
      required: column that must have a value. A row with a null, NaN, infinity or empty list there is a bad row.
      labeled: column without which a row is left out, and counted as filtered. An empty text counts as missing, too.
      columns: columns to write. None writes all. The filter, the splits and the balance may use other columns.
      drop: column not to write. The filter, the splits and the balance may use the column.
      filter: rows to keep, for example `fare > 0 and company in ["A", "B"]`. An expression, or
        `package.module:function`, which maps a record batch to a boolean array. A null does not pass.
      balance: oversampling or undersampling by label.
      on_bad_row: stop at the first bad row (fail), or write bad rows to `rejected.jsonl` (reject).
      bad_row_limit: maximum number of rejected rows.
      compat: how to write an empty cell or a null. "tfx" writes an empty list, byte for byte like TFX's ExampleGens.
        "none" omits the feature, as `FixedLenFeature` with a default requires.
      block_bytes: bytes of input to hold in memory at a time.
      max_row_mb: maximum size of a decoded row or image in megabytes. Larger rows are errors, larger files bad rows.
        Readers use a few times as much memory.
      allow_outside: allow lists of images and logs of tables to name files outside their folder. Links are followed.
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
        """Return the columns to write, of an input with columns of these names."""
        return tuple(name for name in self.columns or names if name not in self.drop)

    @property
    def gzip_level(self) -> int | None:
        return self.level if self.compression == "gzip" else None

    @property
    def divides_later(self) -> bool:
        """Whether rows are assigned to splits after all of them are counted."""
        return isinstance(self.split_by, ByLabel) or (isinstance(self.split_by, ByRecord) and self.split_by.exact)

    @property
    def strata(self) -> tuple[str | None, str | None]:
        """The columns of the stratified split and of the balance."""
        by_label = self.split_by.column if isinstance(self.split_by, ByLabel) else None
        return by_label, self.balance.label if self.balance else None
