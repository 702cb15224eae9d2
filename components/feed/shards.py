"""Which files to read and how many records each holds: by manifest where there is one, else counted once."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infeed.components.dataset.manifest import manifest_of
from infeed.components.errors import InfeedError
from infeed.components.feed.options import Workers


@dataclass(frozen=True)
class ShardFile:
    """One TFRecord file of a `split`; `bytes` is its size on disk, `crc32c` of the file as it lies there, in hex."""

    path: str
    records: int
    bytes: int
    crc32c: str = ""
    split: str = ""

    @property
    def identity(self) -> tuple[str, int, int, str]:
        """The same wherever a file of this content lies."""
        return posixpath.basename(self.path), self.records, self.bytes, self.crc32c


@dataclass(frozen=True)
class Part:
    """Some of the records of one file: `records` of them after the first `skip`, or all after those."""

    path: str
    skip: int
    records: int
    to_end: bool


def parts_of(shards: Sequence[ShardFile], workers: Workers, *, evenly: bool = False) -> tuple[Part, ...]:
    """What one worker reads: whole files where they divide evenly, else its own range of all records.

    No two workers read the same record, and together they read all of them.

    Args:
      evenly: always ranges, which differ by one record at most.

    Raises:
      InfeedError: a worker would have nothing to read.
    """
    if workers.count == 1 or (len(shards) % workers.count == 0 and not evenly):
        return tuple(Part(shard.path, 0, shard.records, True) for shard in shards[workers.index :: workers.count])
    records = sum(shard.records for shard in shards)
    if records < workers.count:
        raise InfeedError(
            f"{records:,} records cannot be shared by {workers.count:,} workers: some would read nothing",
            do=f"Use at most {records:,} workers, or more data.",
        )
    first, end = (records * index // workers.count for index in (workers.index, workers.index + 1))
    return tuple(_within(shards, first, end))


def _within(shards: Sequence[ShardFile], first: int, end: int) -> Iterator[Part]:
    """The parts of files that hold records `first` to `end` of all, counted through."""
    before = 0
    for shard in shards:
        skip, stop = max(first - before, 0), min(end - before, shard.records)
        if skip < stop:
            yield Part(shard.path, skip, stop - skip, stop == shard.records)
        before += shard.records


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
        ShardFile(posixpath.join(root, shard.file), shard.records, shard.bytes, shard.crc32c, split)
        for shard in splits[split].shards
        if shard.records
    ]
