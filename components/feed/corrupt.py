"""Corrupt records: named where one stops a training, or left out beforehand where that is asked for.

TensorFlow tells a corrupt record by a byte offset, without its file, and cannot go on after it in the same file.
"""

from __future__ import annotations

import atexit
import itertools
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import tensorflow as tf

from infeed.components.dataset import files, records
from infeed.components.dataset.checksums import WrongFileError, verify
from infeed.components.errors import InfeedError
from infeed.components.feed.shards import ShardFile

_WRITE_RECORDS = 1024
# The copies live as long as this process, so time counts for more than their size.
_FAST_GZIP = 1


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
