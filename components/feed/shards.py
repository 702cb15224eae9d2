"""Which files to read and how many records each holds: by manifest where there is one, else counted once."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infeed.components.dataset.checksums import Expected
from infeed.components.dataset.reading import check_listed, manifest_of
from infeed.components.errors import InfeedError
from infeed.components.feed.options import WorkerContext

_RUN_NUMBER = re.compile(r"_-?\d+$")


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

    @property
    def expected(self) -> Expected:
        """What the file has to be."""
        return Expected(self.path, self.bytes, self.crc32c)


@dataclass(frozen=True)
class RecordRange:
    """Some of the records of one file: `records` of them after the first `skip`, or all after those."""

    path: str
    skip: int
    records: int
    to_end: bool


def worker_ranges(
    shards: Sequence[ShardFile], workers: WorkerContext, *, evenly: bool = False
) -> tuple[RecordRange, ...]:
    """What one worker reads: whole files where they divide evenly, else its own range of all records.

    No two workers read the same record, and together they read all of them.

    Args:
      evenly: always ranges, which differ by one record at most.

    Raises:
      InfeedError: a worker would have nothing to read.
    """
    if workers.count == 1 or (len(shards) % workers.count == 0 and not evenly):
        return tuple(
            RecordRange(shard.path, 0, shard.records, True) for shard in shards[workers.index :: workers.count]
        )
    records = sum(shard.records for shard in shards)
    if records < workers.count:
        raise InfeedError(
            f"{records:,} records cannot be shared by {workers.count:,} workers: some would read nothing",
            do=f"use at most {records:,} workers, or more data",
        )
    first, end = (records * index // workers.count for index in (workers.index, workers.index + 1))
    return tuple(_within(shards, first, end))


def _within(shards: Sequence[ShardFile], first: int, end: int) -> Iterator[RecordRange]:
    """The parts of files that hold records `first` to `end` of all, counted through."""
    before = 0
    for shard in shards:
        skip, stop = max(first - before, 0), min(end - before, shard.records)
        if skip < stop:
            yield RecordRange(shard.path, skip, stop - skip, stop == shard.records)
        before += shard.records


def shard_files(patterns: Sequence[str], cache_dir: str | None = None) -> tuple[ShardFile, ...]:
    """The shards behind TFX's file patterns (`.../Split-train/*`), in a stable order, empty ones left out.

    Their `split` is the split's name; where several datasets are read, the name of the dataset, see `dataset_names`;
    where several splits of several datasets are, `dataset/split`.

    Args:
      cache_dir: where the counts of datasets without a manifest are kept; None counts anew each time.

    Raises:
      InfeedError: the patterns hold no record at all.
    """
    folders = [posixpath.dirname(pattern) for pattern in patterns]
    called = _names_of(folders)
    shards = [shard for folder in folders for shard in _split_shards(folder, called[folder], cache_dir)]
    if not shards:
        raise InfeedError(
            "there is no record to read",
            where=", ".join(patterns),
            do="check that the split exists and is not empty: `split_names` of the Examples artifact lists them",
        )
    return tuple(shards)


def dataset_names(roots: Sequence[str]) -> dict[str, str]:
    """What the datasets are called: the first part of their paths in which all differ, else the whole path.

    TFX puts the id of the component that wrote a dataset into its path, and Vertex AI adds a number of the run to it,
    which is left out where the rest differs: `Clicks_-123/examples`, `Views_456/examples` are called Clicks and Views.
    """
    for parts in zip(*(root.split("/") for root in roots), strict=False):
        for names in ([_RUN_NUMBER.sub("", part) for part in parts], parts):
            if len(set(names)) == len(roots):
                return dict(zip(roots, names, strict=True))
    return dict(zip(roots, roots, strict=True))


def _names_of(folders: Sequence[str]) -> dict[str, str]:
    """What each folder of a split is called among these."""
    places = {folder: (posixpath.dirname(folder), _split_of(folder)) for folder in folders}
    roots = list(dict.fromkeys(root for root, _ in places.values()))
    splits = {split for _, split in places.values()}
    if len(roots) == 1:
        return {folder: split for folder, (_, split) in places.items()}
    named = dataset_names(roots)
    if len(splits) == 1:
        return {folder: named[root] for folder, (root, _) in places.items()}
    return {folder: f"{named[root]}/{split}" for folder, (root, split) in places.items()}


def _split_of(folder: str) -> str:
    return posixpath.basename(folder).removeprefix("Split-")


def _split_shards(folder: str, called: str, cache_dir: str | None) -> list[ShardFile]:
    root, split = posixpath.dirname(folder), _split_of(folder)
    splits = manifest_of(root, cache_dir).splits
    if split not in splits:
        raise InfeedError(
            f"there is no split {split!r}", where=root, do=f"name one of the splits: {', '.join(sorted(splits))}"
        )
    shards = [
        ShardFile(posixpath.join(root, shard.file), shard.records, shard.bytes, shard.crc32c, called)
        for shard in splits[split].shards
    ]
    check_listed(folder, {posixpath.basename(shard.path) for shard in shards})
    return [shard for shard in shards if shard.records]
