"""Settings of ingest, with the same names on the command line and under `ingest:` in a config.

settings = read_ingest({"split": {"train": 8, "eval": 1, "test": 1}, "filter": "fare > 0"}, "ingest")
settings.options, settings.shares  # IngestOptions, and the share of each split
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

from infeed.components.base import schema
from infeed.components.base.annotations import Count, Placeholder, Positive, help_of
from infeed.components.base.checks import check_fields
from infeed.components.base.errors import InfeedError, OptionError
from infeed.components.dataset.options import (
    Balance,
    Compat,
    Compression,
    IngestOptions,
    Level,
    OnBadRow,
    Sampling,
    ShardOptions,
)
from infeed.components.dataset.splits import ByColumns, ByLabel, ByName, ByRecord, ByTime, SplitBy
from infeed.components.dataset.time_formats import ISO, check_format

Column = Annotated[str, Placeholder("COLUMN")]
Columns = Annotated[tuple[str, ...], Placeholder("COLUMN")]

RULES = ("split_by", "split_salt", "split_label", "split_time", "cut", "time_format", "split_name")
_LISTS = ("split", "split_by", "cut", "columns", "drop", "balance_split", "required")
_NEEDS = {"cut": "split_time", "time_format": "split_time"}
_ALSO = {"splits": "split", "cuts": "cut"}  # option names that differ in the Python API


@dataclass(frozen=True)
class IngestSettings:
    """Options of `infeed ingest` that pipelines also accept.

    Attributes:
      split: split and its share. Defaults to train=2 and eval=1, or in a pipeline to train, eval and test shares for
          the number of rows.
      split_by: column whose equal values keep rows in one split. If repeated, rows must agree in all columns.
      split_salt: text that changes the assignment of rows to splits, for splits by hash.
      split_label: column to stratify the splits by.
      split_time: column of times to split by. Requires `cut`.
      cut: time at which the next split begins, in ISO 8601 or the column's format.
      time_format: format of `split_time` if it is not ISO 8601, such as %m/%d/%Y, or epoch_s for seconds since 1970.
      split_name: column that contains the split of each row.
      balance: column whose classes are balanced.
      balance_by: balance by repeating rows (over) or dropping rows (under).
      balance_split: split to balance.
      shards: number of shards of each split. Defaults to a number for the size.
      target_shard_mb: approximate size of a shard in megabytes of records.
      no_shuffle: keep the order of the input.
      no_statistics: skip the column statistics.

    `IngestOptions` describes the other options.
    """

    split: Annotated[tuple[str, ...], Placeholder("NAME[=SHARE]")] = ()
    split_by: Columns = ()
    split_salt: Annotated[str, Placeholder("TEXT")] = ""
    split_label: Column | None = None
    split_time: Column | None = None
    cut: Annotated[tuple[str, ...], Placeholder("TIME")] = ()
    time_format: Annotated[str | None, Placeholder("FORMAT")] = None
    split_name: Column | None = None
    columns: Annotated[tuple[str, ...] | None, Placeholder("A,B,...")] = None
    drop: Columns = ()
    filter: Annotated[str | None, Placeholder("EXPRESSION")] = None
    required: Columns = ()
    balance: Column | None = None
    balance_by: Sampling = "over"
    balance_split: Annotated[tuple[str, ...], Placeholder("NAME")] = ("train",)
    shards: Positive | None = None
    target_shard_mb: Positive | None = None
    compression: Compression = IngestOptions.compression
    level: Level = IngestOptions.level
    shuffle_seed: Count = 0
    no_shuffle: bool = False
    on_bad_row: OnBadRow = IngestOptions.on_bad_row
    bad_row_limit: Count = IngestOptions.bad_row_limit
    max_row_mb: Positive = IngestOptions.max_row_mb
    allow_outside: bool = IngestOptions.allow_outside
    compat: Compat = IngestOptions.compat
    no_statistics: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        check_format(self, "time_format")

    @property
    def options(self) -> IngestOptions:
        """The options for ingest. Raises OptionError if an option is out of range."""
        balance = Balance(self.balance, self.balance_split, self.balance_by) if self.balance else None
        shards = ShardOptions(count=self.shards)
        if self.target_shard_mb is not None:  # no additional shards for parallel readers
            target = self.target_shard_mb * 1_000_000
            least = min(target, shards.min_bytes)
            shards = replace(shards, target_bytes=target, min_bytes=least, readers_per_host=1)
        own = {
            "shards": shards,
            "shuffle_seed": None if self.no_shuffle else self.shuffle_seed,
            "split_by": next(iter(self._rules), None),
            "balance": balance,
            "statistics": not self.no_statistics,
        }
        alike = {field.name for field in fields(IngestOptions)} & set(NAMES)
        return IngestOptions(**{name: getattr(self, name) for name in alike} | own)

    @property
    def shares(self) -> dict[str, int] | None:
        """Share of each split. None if no split is set."""
        shares = [text.partition("=") for text in self.split]
        return {name: int(share or 1) for name, _, share in shares} or None

    @property
    def _rules(self) -> list[SplitBy]:
        by_record = ByRecord(self.split_salt) if self.split_salt else None
        rules: list[SplitBy | None] = [
            ByColumns(self.split_by, self.split_salt) if self.split_by else by_record,
            ByLabel(self.split_label) if self.split_label else None,
            ByTime(self.split_time, self.cut, self.time_format or ISO) if self.split_time else None,
            ByName(self.split_name) if self.split_name else None,
        ]
        return [rule for rule in rules if rule]

    def check(self, where: str) -> None:
        """Raise InfeedError if options conflict. For `where`, see `read_ingest`."""
        for text in self.split:
            name, equals, share = text.partition("=")
            if equals and not share.isdecimal():
                place = f"{_named('split', where)} {text}"
                raise InfeedError(f"share {share!r}", where=place, do="use an integer, such as train=2")
            if [one.partition("=")[0] for one in self.split].count(name) > 1:
                raise InfeedError(f"split {name!r} occurs twice", where=_named("split", where), do="use each name once")
        for name, needed in _NEEDS.items():
            if getattr(self, name) and not getattr(self, needed):
                name, needed = _named(name, where), _named(needed, where)
                raise InfeedError(f"{name} without {needed}", do=f"add {needed}")
        if len(self._rules) > 1:
            names = ", ".join(_named(name, where) for name in ("split_by", "split_label", "split_time"))
            what = f"split by {' and by '.join(rule.how for rule in self._rules)}"
            raise InfeedError(what, where=where, do=f"use either {names} or {_named('split_name', where)}")
        try:
            _ = self.options
        except OptionError as error:
            raise InfeedError(error.what, where=_named(error.option, where), do=error.do) from error


def read_ingest(given: Mapping[str, Any], where: str = "") -> IngestSettings:
    """Read and check ingest settings.

    Args:
      given: values by name. A single value may replace a list, and a mapping of shares may replace the splits.
      where: config setting that contains them. Empty for the command line.

    Raises:
      InfeedError: a setting does not exist, is invalid, or conflicts with another.
    """
    plain = {_ALSO.get(name, name): value for name, value in given.items() if value is not None}
    lists = {name: _as_list(name, value) for name, value in plain.items() if name in _LISTS}
    settings = schema.read(IngestSettings, {**plain, **lists}, where)
    settings.check(where)
    return settings


def over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge settings. `above` takes precedence, and its split rule replaces the other completely."""
    new_rule = any(name in above for name in RULES)
    kept = {_ALSO.get(name, name): value for name, value in below.items()}
    return {**{name: value for name, value in kept.items() if not (new_rule and name in RULES)}, **above}


def _as_list(name: str, value: Any) -> Any:
    """Convert a single value, a mapping of shares, or unquoted YAML dates to a list."""
    if isinstance(value, Mapping):
        return [f"{split}={share}" for split, share in value.items()]
    if isinstance(value, str):
        return value.split(",") if name == "columns" else [value]
    values = value if isinstance(value, list | tuple) else [value]
    dates = (datetime.date, datetime.datetime)
    return [one.isoformat() if isinstance(one, dates) else one for one in values]


def _named(name: str, where: str) -> str:
    """Return the option as the user writes it."""
    return f"{where}.{name}" if where else f"--{name.replace('_', '-')}"


NAMES = tuple(f.name for f in fields(IngestSettings))
HELP = {**dict.fromkeys(NAMES, ""), **help_of(IngestOptions), **help_of(IngestSettings)}  # help of each setting
