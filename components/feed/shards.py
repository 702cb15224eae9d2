"""The files of a split: which to read, how many records each holds, which of those are corrupt, and who reads which.

A manifest says how many there are; without one they are counted once. TensorFlow tells a corrupt record by a byte
offset, without its file, and cannot go on after it in the same file: it is named here where it stops a training, or
left out beforehand where that is asked for.
"""

from __future__ import annotations

import atexit
import itertools
import posixpath
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from infeed.components.dataset import files, records
from infeed.components.dataset.checksums import Expected, WrongFileError, verify
from infeed.components.dataset.reading import check_listed, manifest_of
from infeed.components.errors import InfeedError
from infeed.components.feed.options import WorkerContext

_RUN_NUMBER = re.compile(r"_-?\d+$")
_WRITE_RECORDS = 1024
# The copies live as long as this process, so time counts for more than their size.
_FAST_GZIP = 1


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
    count = sum(shard.records for shard in shards)
    if count < workers.count:
        raise InfeedError(
            f"{count:,} records cannot be shared by {workers.count:,} workers: some would read nothing",
            do=f"use at most {count:,} workers, or more data",
        )
    first, end = (count * index // workers.count for index in (workers.index, workers.index + 1))
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


@dataclass(frozen=True)
class Corrupt:
    """Records `first` to `last` of a file, counted from 0, that cannot be read, and why."""

    file: str
    first: int
    last: int
    reason: str

    def __str__(self) -> str:
        numbers = f"record {self.first}" if self.first == self.last else f"records {self.first} to {self.last}"
        return f"{self.file}, {numbers}: {self.reason}"


@contextmanager
def corrupt_record_context(shards: Sequence[ShardFile]) -> Iterator[None]:
    """Turns TensorFlow's error about corrupt data into one that names file and record.

    Raises:
      InfeedError: in the body a corrupt or truncated record of these files was read.
    """
    import tensorflow as tf

    try:
        yield
    except tf.errors.DataLossError as error:
        for shard in shards:
            _name_first(shard, error)
        raise


def check_files(shards: Sequence[ShardFile], cache_dir: str) -> None:
    """Compares the files with their checksums, once each; what was found right is remembered in `cache_dir`.

    Raises:
      InfeedError: a file is missing, damaged (with the first record that is) or replaced by another one.
    """
    try:
        verify([shard.expected for shard in shards if shard.crc32c], str(Path(cache_dir).expanduser()))
    except WrongFileError as error:
        for shard in shards:
            if shard.path == error.path and files.exists(error.path):
                _name_first(shard, error)
        raise


def _name_first(shard: ShardFile, error: Exception) -> None:
    for corrupt in corrupt_records(shard):
        raise InfeedError(
            f"corrupt record: {corrupt.reason}",
            where=f"{corrupt.file}, record {corrupt.first}",
            do="write the dataset again, or leave such records out with FeedOptions(skip_corrupt=...)",
        ) from error


def without_corrupt(shards: Sequence[ShardFile], limit: int) -> tuple[tuple[ShardFile, ...], tuple[Corrupt, ...]]:
    """Reads all files once; those that hold corrupt records are replaced by copies without them.

    The copies are removed when this process ends.

    Raises:
      InfeedError: more than `limit` records are corrupt, or every one is.
    """
    found = [tuple(corrupt_records(shard)) for shard in shards]
    corrupt = tuple(itertools.chain(*found))
    count = sum(one.last - one.first + 1 for one in corrupt)
    if count > limit or count == sum(shard.records for shard in shards):
        raise InfeedError(
            f"{count:,} records are corrupt, and {limit:,} may be left out",
            where="; ".join(map(str, corrupt[:5])),
            do="write the dataset again, or raise FeedOptions.skip_corrupt",
        )
    if not corrupt:
        return tuple(shards), ()
    folder = tempfile.mkdtemp(prefix="infeed-sound-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    sound = [
        _copy(shard, bad, f"{folder}/{number}-{files.name(shard.path)}") if bad else shard
        for number, (shard, bad) in enumerate(zip(shards, found, strict=True))
    ]
    return tuple(shard for shard in sound if shard.records), corrupt


def corrupt_records(shard: ShardFile) -> Iterator[Corrupt]:
    """Single records with a wrong checksum, and all those after a place that cannot be passed."""
    number = 0
    try:
        for payload in records.scan_records(shard.path):
            if payload is None:
                yield Corrupt(shard.path, number, number, "wrong checksum")
            number += 1
    except InfeedError as error:
        yield Corrupt(shard.path, number, max(number, shard.records - 1), error.what)


def _copy(shard: ShardFile, bad: Collection[Corrupt], path: str) -> ShardFile:
    left_out = {number for one in bad for number in range(one.first, one.last + 1)}
    scanned = itertools.islice(records.scan_records(shard.path), shard.records)
    kept = (payload for number, payload in enumerate(_until_unreadable(scanned)) if number not in left_out)
    framed = (records.frame_records(pa.array(some, pa.large_binary())) for some in _batched(kept))
    level = _FAST_GZIP if path.endswith(".gz") else None
    written = records.write_records(path, framed, gzip_level=level)
    count = shard.records - len(left_out)
    return replace(shard, path=path, records=count, bytes=written.bytes, crc32c=written.crc32c)


def _until_unreadable(scanned: Iterator[bytes | None]) -> Iterator[bytes | None]:
    try:
        yield from scanned
    except InfeedError:
        return  # counted already


def _batched(payloads: Iterator[bytes | None]) -> Iterator[list[bytes | None]]:
    while some := list(itertools.islice(payloads, _WRITE_RECORDS)):
        yield some
