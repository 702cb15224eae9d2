"""What to do while ingesting, whatever the source: one frozen object, checked when built, that travels as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from infeed.components.dataset.shards import ShardOptions
from infeed.components.dataset.splits import ByLabel, SplitBy, split_by_from_dict
from infeed.components.errors import InfeedError

Compression = Literal["gzip", "none"]
Compat = Literal["none", "tfx"]
OnBadRow = Literal["fail", "reject"]
Sampling = Literal["over", "under"]


@dataclass(frozen=True)
class Balance:
    """Every label as often as every other, on chosen splits only. Rows without a label are left as they are.

    Args:
      label: the column whose values are balanced.
      splits: which splits; evaluation is better left as it is.
      sampling: "over" repeats rows until every label is as frequent as the most frequent one; "under" drops rows until
        every label is as rare as the rarest. Which rows depends on `shuffle_seed`.
    """

    label: str
    splits: tuple[str, ...] = ("train",)
    sampling: Sampling = "over"

    def __post_init__(self) -> None:
        _one_of("sampling", self.sampling, get_args(Sampling))


@dataclass(frozen=True)
class IngestOptions:
    """How rows become shards.

    Args:
      shards: how many shards a split gets.
      compression: "gzip" names files `.gz`; "none" trades disk for the CPU time of every later reader.
      level: of gzip; 0 to 3 are isal's, 4 to 9 zlib's. isal's 1 takes a sixteenth of the time of zlib's 6 and gives
        files about a fifth larger.
      shuffle_seed: rows are shuffled over the whole split, the same way for any number of workers; None keeps the
        order of the input.
      split_by: how rows go to splits; None leaves it to TFX's hash of the record.
      columns: what to write; None writes all. The filter, the splits and the balance may use others.
      filter: rows to keep: an expression such as `fare > 0 and company in ["A", "B"]`, or `package.module:function`
        from a record batch to a boolean array. A null does not pass.
      balance: over- or under-sampling by label.
      on_bad_row: "fail" at the first row that cannot be read, or "reject" it into `rejected.jsonl`.
      bad_row_limit: more rejected rows than this are an error.
      compat: "tfx" writes an empty cell as a present but empty list, byte for byte as TFX's CsvExampleGen does;
        "none" leaves the feature out, which is what `FixedLenFeature` with a default needs.
      block_bytes: how much input is held at a time, in bytes.
    """

    shards: ShardOptions = field(default_factory=ShardOptions)
    compression: Compression = "gzip"
    level: int = 1
    shuffle_seed: int | None = 0
    split_by: SplitBy | None = None
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    balance: Balance | None = None
    on_bad_row: OnBadRow = "fail"
    bad_row_limit: int = 1_000
    compat: Compat = "none"
    block_bytes: int = 8 << 20

    def __post_init__(self) -> None:
        _one_of("compression", self.compression, get_args(Compression))
        _one_of("compat", self.compat, get_args(Compat))
        _one_of("on_bad_row", self.on_bad_row, get_args(OnBadRow))
        if not 0 <= self.level <= 9:
            raise InfeedError(f"level={self.level}", where="IngestOptions", do="give a gzip level from 0 to 9")
        if self.shuffle_seed is not None and self.shuffle_seed < 0:
            raise InfeedError(
                f"shuffle_seed={self.shuffle_seed}", where="IngestOptions", do="give a seed of 0 or more, or None"
            )
        if self.block_bytes < 1 << 10:
            raise InfeedError(f"block_bytes={self.block_bytes}", where="IngestOptions", do="give at least 1024 bytes")
        if self.bad_row_limit < 0:
            raise InfeedError(f"bad_row_limit={self.bad_row_limit}", where="IngestOptions", do="give 0 or more")
        if self.columns is not None and not 0 < len(self.columns) == len(set(self.columns)):
            do = "name one or more, each once, or leave it None for all"
            raise InfeedError(f"columns={self.columns}", where="IngestOptions", do=do)
        self._check_that_strata_are_shuffled()

    @property
    def gzip_level(self) -> int | None:
        return self.level if self.compression == "gzip" else None

    @property
    def strata(self) -> tuple[str | None, str | None]:
        """The column that splits are stratified by, and the one that is balanced."""
        by_label = self.split_by.column if isinstance(self.split_by, ByLabel) else None
        return by_label, self.balance.label if self.balance else None

    def as_dict(self) -> dict[str, Any]:
        """The options as given, of JSON's types only."""
        fields: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return fields

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> IngestOptions:
        """What `as_dict` gave."""
        given = dict(fields)
        given["shards"] = ShardOptions(**given["shards"])
        given["split_by"] = split_by_from_dict(given["split_by"]) if given["split_by"] else None
        given["columns"] = tuple(given["columns"]) if given["columns"] else None
        if given["balance"]:
            given["balance"] = Balance(**{**given["balance"], "splits": tuple(given["balance"]["splits"])})
        return cls(**given)

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> IngestOptions:
        return cls.from_dict(json.loads(text))

    def _check_that_strata_are_shuffled(self) -> None:
        if self.shuffle_seed is None and any(self.strata):
            raise InfeedError(
                "rows of a label are divided at random, but shuffle_seed=None keeps the input's order",
                where="IngestOptions",
                do="give a shuffle_seed, or leave out ByLabel and balance",
            )


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InfeedError(f"{name}={value!r}", where="IngestOptions", do=f"choose one of {', '.join(allowed)}")
