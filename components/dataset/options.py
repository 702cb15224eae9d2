"""What to do while ingesting, whatever the source: one frozen object, checked when built, that travels as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from infeed.components.dataset.shards import ShardOptions
from infeed.components.errors import InfeedError

Compression = Literal["gzip", "none"]
Compat = Literal["none", "tfx"]


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
      compat: "tfx" writes an empty cell as a present but empty list, byte for byte as TFX's CsvExampleGen does;
        "none" leaves the feature out, which is what `FixedLenFeature` with a default needs.
      block_bytes: how much input is held at a time, in bytes.
    """

    shards: ShardOptions = field(default_factory=ShardOptions)
    compression: Compression = "gzip"
    level: int = 1
    shuffle_seed: int | None = 0
    compat: Compat = "none"
    block_bytes: int = 8 << 20

    def __post_init__(self) -> None:
        _one_of("compression", self.compression, get_args(Compression))
        _one_of("compat", self.compat, get_args(Compat))
        if not 0 <= self.level <= 9:
            raise InfeedError(f"level={self.level}", where="IngestOptions", do="give a gzip level from 0 to 9")
        if self.shuffle_seed is not None and self.shuffle_seed < 0:
            raise InfeedError(
                f"shuffle_seed={self.shuffle_seed}", where="IngestOptions", do="give a seed of 0 or more, or None"
            )
        if self.block_bytes < 1 << 10:
            raise InfeedError(f"block_bytes={self.block_bytes}", where="IngestOptions", do="give at least 1024 bytes")

    @property
    def gzip_level(self) -> int | None:
        return self.level if self.compression == "gzip" else None

    def as_dict(self) -> dict[str, Any]:
        """The options as given, of JSON's types only."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> IngestOptions:
        """What `as_dict` gave."""
        return cls(**{**fields, "shards": ShardOptions(**fields["shards"])})

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> IngestOptions:
        return cls.from_dict(json.loads(text))


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InfeedError(f"{name}={value!r}", where="IngestOptions", do=f"choose one of {', '.join(allowed)}")
