"""Which files to read and how many records each holds: by manifest where there is one, else counted once."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from infeed.components.dataset.manifest import manifest_of
from infeed.components.errors import InfeedError


@dataclass(frozen=True)
class ShardFile:
    """One TFRecord file of a split; `bytes` is its size on disk."""

    path: str
    records: int
    bytes: int


def shard_files(patterns: Sequence[str]) -> tuple[ShardFile, ...]:
    """The shards behind TFX's file patterns (`.../Split-train/*`), in a stable order, empty ones left out.

    Raises:
      InfeedError: the patterns hold no record at all.
    """
    shards = [shard for pattern in patterns for shard in _split_shards(pattern)]
    if not shards:
        raise InfeedError(
            "there is no record to read",
            where=", ".join(patterns),
            do="Check that the split exists and is not empty: `split_names` of the Examples artifact lists them.",
        )
    return tuple(shards)


def _split_shards(pattern: str) -> list[ShardFile]:
    folder = posixpath.dirname(pattern)
    root, split = posixpath.dirname(folder), posixpath.basename(folder).removeprefix("Split-")
    splits = manifest_of(root).splits
    if split not in splits:
        raise InfeedError(
            f"there is no split {split!r}", where=root, do=f"The splits there are: {', '.join(sorted(splits))}."
        )
    return [
        ShardFile(posixpath.join(root, shard.file), shard.records, shard.bytes)
        for shard in splits[split].shards
        if shard.records
    ]
