"""Shards of a split: record counts, corrupt records, and the assignment to workers.

Record counts come from the manifest. Without a manifest, the feed counts the records once. TensorFlow reports a corrupt
record by a byte offset without the file, and cannot read the rest of the file. This module names the record in the
error, or skips corrupt records before training if `FeedOptions.skip_corrupt` is set.

`stored_blocks` reads files in stores that TensorFlow cannot open, with pyarrow.
"""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from infeed.components.base.errors import InfeedError
from infeed.components.base.units import percent
from infeed.components.dataset import files, records
from infeed.components.dataset.cache import Expected, WrongFileError, verify
from infeed.components.dataset.reading import check_listed, manifest_of
from infeed.components.dataset.record_blocks import read_blocks
from infeed.components.feed.options import WorkerContext

_RUN_NUMBER = re.compile(r"_-?\d+$")
_WRITE_RECORDS = 1024
_UNEVEN = 1.25  # a shard is uneven from this multiple of a reader's share of records
# The copies exist only while this process runs, so speed matters more than size.
_FAST_GZIP = 1


@dataclass(frozen=True)
class ShardFile:
    """A TFRecord file of a split. `bytes` and `crc32c` (in hex) are those of the file on disk."""

    path: str
    records: int
    bytes: int
    crc32c: str = ""
    split: str = ""

    @property
    def identity(self) -> tuple[str, int, int, str]:
        """Values that identify the content, independent of the file's path."""
        return posixpath.basename(self.path), self.records, self.bytes, self.crc32c

    @property
    def expected(self) -> Expected:
        return Expected(self.path, self.bytes, self.crc32c)


def uneven(shards: Sequence[ShardFile], readers: int) -> str:
    """Return advice on a shard that keeps one reader busy after all others have finished. Empty if there is none.

    A shard is read sequentially, so the largest shard limits the speed, whatever the number of readers.
    """
    largest, records = max(shards, key=lambda one: one.records), sum(one.records for one in shards)
    if len(shards) < 2 or largest.records < _UNEVEN * records / min(readers, len(shards)):
        return ""
    share = f"{posixpath.basename(largest.path)} has {percent(largest.records / records)} of the records"
    do = "write the dataset again in shards of equal size, as infeed ingest does"
    return f"{do}: {share}, and one reader reads it alone"


@dataclass(frozen=True)
class RecordRange:
    """A range of one file: `records` records after the first `skip`. `to_end` marks a range that ends the file."""

    path: str
    skip: int
    records: int
    to_end: bool


def worker_ranges(
    shards: Sequence[ShardFile], workers: WorkerContext, *, evenly: bool = False
) -> tuple[RecordRange, ...]:
    """Return the ranges that one worker reads: whole files if these divide evenly, else an equal share of all records.

    The workers share all records without overlap. If `evenly`, their shares differ by at most one record. Raises
    InfeedError if a worker has no records.
    """
    if workers.count == 1 or (len(shards) % workers.count == 0 and not evenly):
        return tuple(
            RecordRange(shard.path, 0, shard.records, True) for shard in shards[workers.index :: workers.count]
        )
    # A worker with fewer records would reach its end while the others wait for it in a collective.
    count = sum(shard.records for shard in shards)
    if count < workers.count:
        what = f"{count:,} records cannot be shared by {workers.count:,} workers: some would read nothing"
        raise InfeedError(what, do=f"use at most {count:,} workers, or more data")
    first, end = (count * index // workers.count for index in (workers.index, workers.index + 1))
    ranges, before = [], 0
    for shard in shards:
        skip, stop = max(first - before, 0), min(end - before, shard.records)
        if skip < stop:
            ranges.append(RecordRange(shard.path, skip, stop - skip, stop == shard.records))
        before += shard.records
    return tuple(ranges)


def shard_files(patterns: Sequence[str], cache_dir: str | None = None) -> tuple[ShardFile, ...]:
    """Return the non-empty shards that match TFX's file patterns (`.../Split-train/*`), in a stable order.

    `ShardFile.split` is the name of the split. For one split of several datasets, it is the name of the dataset (see
    `dataset_names`). For several splits of several datasets, it is `dataset/split`. `cache_dir` caches the record
    counts of datasets without a manifest. Raises InfeedError if the matching files hold no records.
    """
    folders = [posixpath.dirname(pattern) for pattern in patterns]
    called = _names_of(folders)
    shards = list[ShardFile]()
    for folder in folders:
        root, split = posixpath.dirname(folder), _split_of(folder)
        splits = manifest_of(root, cache_dir).splits
        if split not in splits:
            do = f"name one of the splits: {', '.join(sorted(splits))}"
            raise InfeedError(f"there is no split {split!r}", where=root, do=do)
        found = [
            ShardFile(posixpath.join(root, shard.file), shard.records, shard.bytes, shard.crc32c, called[folder])
            for shard in splits[split].shards
        ]
        # The patterns of TFX match every file, so that its own readers would read a leftover one.
        check_listed(folder, {posixpath.basename(shard.path) for shard in found})
        shards += [shard for shard in found if shard.records]
    if not shards:
        do = "check that the split exists and is not empty: `split_names` of the Examples artifact lists them"
        raise InfeedError("there are no records to read", where=", ".join(patterns), do=do)
    return tuple(shards)


def dataset_names(roots: Sequence[str]) -> dict[str, str]:
    """Name datasets by the first component of their paths in which all differ, or else by the whole path.

    In TFX, the path contains the id of the component that wrote the dataset. Vertex AI adds a run number, which the
    name omits if the rest differs: `Clicks_-123/examples` and `Views_456/examples` become Clicks and Views.
    """
    for parts in zip(*(root.split("/") for root in roots), strict=False):
        for names in ([_RUN_NUMBER.sub("", part) for part in parts], parts):
            if len(set(names)) == len(roots):
                return dict(zip(roots, names, strict=True))
    return dict(zip(roots, roots, strict=True))


def _names_of(folders: Sequence[str]) -> dict[str, str]:
    """Name each split folder so that all names are distinct."""
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


@dataclass(frozen=True)
class Corrupt:
    """Unreadable records `first` to `last` of a file, counted from 0, and the reason."""

    file: str
    first: int
    last: int
    reason: str

    def __str__(self) -> str:
        numbers = f"record {self.first}" if self.first == self.last else f"records {self.first} to {self.last}"
        return f"{self.file}, {numbers}: {self.reason}"


@contextmanager
def corrupt_record_context(shards: Sequence[ShardFile]) -> Iterator[None]:
    """Convert TensorFlow's error about corrupt data into an InfeedError that names the file and the record.

    Raises InfeedError if the body of the `with` statement read a corrupt or truncated record of these files.
    """
    import tensorflow as tf

    try:
        yield
    except tf.errors.DataLossError as error:
        for shard in shards:
            _name_first(shard, error)
        raise
    except tf.errors.OpError as error:
        if ours := InfeedError.told_in(error.message):  # a dataset that calls Python returns its error as text
            raise ours from error
        raise


def check_files(shards: Sequence[ShardFile], cache_dir: str) -> None:
    """Compare each file with its checksum once, and remember correct files in `cache_dir`.

    Raises InfeedError if a file is missing, damaged or replaced. For damage, the error names the first corrupt record.
    """
    try:
        verify([shard.expected for shard in shards if shard.crc32c], cache_dir)
    except WrongFileError as error:
        for shard in shards:
            if shard.path == error.path and files.exists(error.path):
                _name_first(shard, error)
        raise


def _name_first(shard: ShardFile, error: Exception) -> None:
    for corrupt in corrupt_records(shard):
        where = f"{corrupt.file}, record {corrupt.first}"
        do = "write the dataset again, or skip such records with FeedOptions(skip_corrupt=...)"
        raise InfeedError(f"corrupt record: {corrupt.reason}", where=where, do=do) from error


def without_corrupt(shards: Sequence[ShardFile], limit: int) -> tuple[tuple[ShardFile, ...], tuple[Corrupt, ...]]:
    """Scan all files, and replace files that hold corrupt records by copies without them.

    The copies are deleted when this process exits. Raises InfeedError if more than `limit` records are corrupt, or all
    of them.
    """
    found = [tuple(corrupt_records(shard)) for shard in shards]
    corrupt = tuple(itertools.chain(*found))
    count = sum(one.last - one.first + 1 for one in corrupt)
    if count > limit or count == sum(shard.records for shard in shards):
        what = f"{count:,} records are corrupt, and skip_corrupt is {limit:,}"
        do = "write the dataset again, or raise FeedOptions.skip_corrupt"
        raise InfeedError(what, where="; ".join(map(str, corrupt[:5])), do=do)
    if not corrupt:
        return tuple(shards), ()
    folder = files.folder_until_exit("infeed-sound-")
    sound = [
        _copy(shard, bad, f"{folder}/{number}-{files.name(shard.path)}") if bad else shard
        for number, (shard, bad) in enumerate(zip(shards, found, strict=True))
    ]
    return tuple(shard for shard in sound if shard.records), corrupt


def corrupt_records(shard: ShardFile) -> Iterator[Corrupt]:
    """Yield each record with a wrong checksum, and the range of records after an unreadable position."""
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
    blocks = iter(lambda: list(itertools.islice(kept, _WRITE_RECORDS)), [])
    framed = (records.frame_records(pa.array(some, pa.large_binary())) for some in blocks)
    level = _FAST_GZIP if path.endswith(".gz") else None
    written = records.write_records(path, framed, gzip_level=level)
    count = shard.records - len(left_out)
    return replace(shard, path=path, records=count, bytes=written.bytes, crc32c=written.crc32c)


def _until_unreadable(scanned: Iterator[bytes | None]) -> Iterator[bytes | None]:
    try:
        yield from scanned
    except InfeedError:
        return  # `corrupt_records` has reported the rest


if TYPE_CHECKING:
    import tensorflow as tf

_UNKNOWN = -1


def stored_blocks(path: Any, start: Any = 0, stop: Any = _UNKNOWN, records: Any = _UNKNOWN) -> tf.data.Dataset:
    """Return records `start` to `stop - 1` of a file in blocks of any length, string [block], with verified checksums.

    The dataset calls Python, so only this process can compute it. All arguments may be tensors: `stop` is -1 for the
    end of the file. `records`, the expected number of records, is -1 if unknown.
    """
    import tensorflow as tf

    arguments = (path, start, stop, records)
    return tf.data.Dataset.from_generator(_blocks, args=arguments, output_signature=tf.TensorSpec([None], tf.string))


def _blocks(path: bytes, start: int, stop: int, records: int) -> Iterator[Any]:
    where, found = path.decode(), 0
    for block in read_blocks(where, int(start), None if stop == _UNKNOWN else int(stop)):
        found += len(block)
        yield np.array(block.payloads(np.arange(len(block))), object)
    if records not in (_UNKNOWN, found):
        what = f"the file holds {found:,} records, expected {records:,}"
        raise InfeedError(what, where=where, do="write the dataset again, with its manifest")
