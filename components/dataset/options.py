"""Options of ingest that apply to every source, with the rules for shards and spans."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt

from infeed.components.base.annotations import Count, Positive, Range, Tagged
from infeed.components.base.checks import as_tuples, at_least, check_fields, refused, require
from infeed.components.base.errors import InfeedError
from infeed.components.base.units import size
from infeed.components.dataset import files
from infeed.components.dataset.splits import ByLabel, ByRecord, SplitBy

_PLACEHOLDER = re.compile(r"\{(SPAN|YYYY|MM|DD)\}")
_DIGITS = {"SPAN": r"\d+", "YYYY": r"\d{4}", "MM": r"\d{2}", "DD": r"\d{2}"}
_EPOCH = datetime.date(1970, 1, 1)


def has_spans(path: str) -> bool:
    """Return whether a path has span placeholders."""
    return bool(_PLACEHOLDER.search(path))


@dataclass(frozen=True)
class Spans:
    """Spans of an input, and the number of latest spans to read.

    Attributes:
      pattern: pattern of the files below the input's folder, with {SPAN}, or with {YYYY}, {MM} and {DD}, each once.
      last: number of latest spans to read. None for all.
      cache: folder that caches the Examples of each span.
    """

    pattern: str
    last: int | None = None
    cache: str = ""

    def __post_init__(self) -> None:
        at_least(self, 1, "last")
        names = sorted(_PLACEHOLDER.findall(self.pattern))
        given = names in (["SPAN"], ["DD", "MM", "YYYY"])
        require(given, self, "pattern", "use {SPAN} once, or {YYYY}, {MM} and {DD} once each")

    @property
    def glob(self) -> str:
        """Pattern of the files of all spans."""
        return _PLACEHOLDER.sub("*", self.pattern)

    def window(self, root: str) -> dict[int, str]:
        """Return the file pattern of each span to read, by span number, latest last.

        A date counts as the number of days since 1970, as in TFX. Raises InfeedError if there is no span, or two spans
        have the same number.
        """
        signs = {"*": "[^/]*", "?": "[^/]"}
        signs |= {f"{{{name}}}": f"(?P<{name}>{digits})" for name, digits in _DIGITS.items()}
        parts = re.split(r"(\{(?:SPAN|YYYY|MM|DD)\}|\*|\?)", self.pattern)
        regex = re.compile("".join(signs.get(part, re.escape(part)) for part in parts))
        found: dict[int, str] = {}
        for file in files.glob(root, self.glob):
            if match := regex.fullmatch(files.relative(file.path, root)):
                pattern = _PLACEHOLDER.sub(lambda name: match[name[1]], self.pattern)
                if found.setdefault(number := _number(match, file.path), pattern) != pattern:
                    what = f"{pattern} and {found[number]} are both span {number}"
                    raise InfeedError(what, where=root, do="write all numbers with the same number of digits")
        if not found:
            raise InfeedError("there is no span", where=files.join(root, self.pattern), do="add files that match")
        return {number: found[number] for number in sorted(found)[-self.last if self.last else 0 :]}

    def pattern_of_window(self, root: str) -> str:
        """Return one pattern for the files of all spans to read, such as `{span-1/*.csv,span-2/*.csv}`."""
        patterns = [*self.window(root).values()]
        return f"{{{','.join(patterns)}}}" if len(patterns) > 1 else patterns[0]


def split_path(path: str) -> tuple[str, str]:
    """Split a path into the folder above the first placeholder or wildcard, and the pattern below it."""
    parts = path.split("/")
    first = next(place for place, part in enumerate(parts) if _PLACEHOLDER.search(part) or set("*?") & set(part))
    return "/".join(parts[:first]) or ".", "/".join(parts[first:])


def _number(match: re.Match[str], path: str) -> int:
    named = match.groupdict()
    if "SPAN" in named:
        return int(named["SPAN"])
    try:
        return (datetime.date(int(named["YYYY"]), int(named["MM"]), int(named["DD"])) - _EPOCH).days
    except ValueError as error:
        raise InfeedError(f"not a date: {error}", where=path, do="rename the file or its folder") from error


MIN_BYTES = 10_000_000  # opening a smaller file takes longer than reading it
TARGET_BYTES = 128 << 20  # recommended by object stores and TensorFlow's performance guide
READERS_PER_HOST = 10  # files that a parallel interleave keeps open


@dataclass(frozen=True)
class ShardOptions:
    """Bounds of the shard rule, in bytes of records before compression. `count` overrides the rule."""

    count: int | None = None
    min_bytes: int = MIN_BYTES
    target_bytes: int = TARGET_BYTES
    readers_per_host: int = READERS_PER_HOST
    hosts: int = 1

    def __post_init__(self) -> None:
        at_least(self, 1, "count", "min_bytes", "target_bytes", "readers_per_host", "hosts")
        if self.min_bytes > self.target_bytes:
            what = f"min_bytes is {self.min_bytes}, more than target_bytes, which is {self.target_bytes}"
            raise refused(self, "min_bytes", "use a min_bytes of at most target_bytes", what)


@dataclass(frozen=True)
class ShardPlan:
    """A number of shards, at least 1, and the reason."""

    count: int
    reason: str


@dataclass(frozen=True)
class Part:
    """A run of records and their size in bytes."""

    records: int
    bytes: int


@dataclass(frozen=True)
class Deal:
    """The assignment of records to windows. Every record belongs to exactly one window.

    With `interleave`, records are dealt round-robin, as a shuffle requires. Then every part reaches every window, and
    sizes differ by at most one record. Otherwise, each window is a run of the input of about equal bytes.
    """

    windows: int
    bytes: int
    interleave: bool

    def bounds(self, part: Part, before: Part, windows: range) -> npt.NDArray[np.int64]:
        """Return the starts of neighboring windows in a part, and the end of the last.

        `before` is the number of records before the part. The result, int64 [len(windows) + 1], counts from the first
        record of the part.
        """
        limits = range(windows.start, windows.stop + 1)
        if self.interleave:
            return self._dealt(before.records + part.records, limits) - self._dealt(before.records, limits)
        whole = max(part.bytes * self.windows, 1)  # within a part, records count as equally large
        numerators = (part.records * (limit * self.bytes - before.bytes * self.windows) for limit in limits)
        return np.array([min(max(one // whole, 0), part.records) for one in numerators], np.int64)

    def _dealt(self, records: int, limits: range) -> npt.NDArray[np.int64]:
        """Return how many of the first `records` records go to windows below each limit, dealt round-robin."""
        rounds, left_over = divmod(records, self.windows)
        numbers = np.arange(limits.start, limits.stop, dtype=np.int64)
        before: npt.NDArray[np.int64] = rounds * numbers + np.minimum(left_over, numbers)
        return before


def plan_shards(total_bytes: int, records: int, options: ShardOptions) -> ShardPlan:
    """Choose the number of shards of a split.

    The rule starts with the smallest number that keeps each shard at or below `target_bytes`. It raises the number to
    `readers_per_host * hosts` if shards keep at least `min_bytes`. The result is a multiple of `hosts`, at least 1 and
    at most the number of records.
    """
    by_size = math.ceil(total_bytes / options.target_bytes)
    readers = options.readers_per_host * options.hosts
    most = max(1, total_bytes // options.min_bytes)
    if options.count is not None:
        count, reason = options.count, f"the number is set to {options.count}"
    elif by_size >= readers:
        count = by_size
        reason = f"the smallest number with shards of at most {size(options.target_bytes)} before compression"
    elif most >= readers:
        reason = f"{options.readers_per_host} files to read at once per training host"
        count = readers
    else:
        reason = f"more than {most} would make files smaller than {size(options.min_bytes)} before compression"
        count = most
    if options.count is None and count % options.hosts:
        count = math.ceil(count / options.hosts) * options.hosts
        reason += f"; {count} is a multiple of {options.hosts} hosts"
    if count > max(records, 1):
        count, reason = max(records, 1), f"{reason}; there are only {records} records"
    return ShardPlan(count, reason)


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
