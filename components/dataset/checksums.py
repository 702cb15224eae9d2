"""Verify files against the checksums of a manifest or a cache, once per version of a file.

A file is read to its end the first time, and again after any change of it. What was found right is kept in
CACHE_DIR/verified-*.json, one file for each folder, and in this process where that cannot be written.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from infeed.components import schema
from infeed.components.dataset import files, records
from infeed.components.dataset.files import FileStat
from infeed.components.errors import InfeedError

_THREADS = 8  # most threads wait for a store
_DO = "write the dataset again: the file was damaged or replaced after it was written"
_seen: set[tuple[str, str]] = set()  # (path, what it was found to be) in this process


@dataclass(frozen=True)
class Expected:
    """A file as it was written: `crc32c` of its bytes on disk, in hex."""

    path: str
    bytes: int
    crc32c: str


class WrongFileError(InfeedError):
    """The file at `path` differs from the file that was written."""

    def __init__(self, path: str, what: str, do: str = _DO) -> None:
        self.path = path
        super().__init__(what, where=path, do=do)

    def __reduce__(self) -> tuple[object, ...]:
        return WrongFileError, (self.path, self.what, self.do)


def verify(expected: Sequence[Expected], cache_dir: str | None = None) -> None:
    """Compares every file with what is expected, unless that was done since it last changed.

    Args:
      cache_dir: where to remember it beyond this process; None for nowhere.

    Raises:
      WrongFileError: a file is missing, or its size or checksum is another one.
    """
    folders: dict[str, list[Expected]] = defaultdict(list)
    for one in expected:
        folders[posixpath.dirname(one.path)].append(one)
    for folder, some in folders.items():
        _verify_folder(some, cache_dir and _marks(cache_dir, folder))


def remember(written: Iterable[Expected], cache_dir: str) -> None:
    """Notes files of one folder as right that this process has just written, so that they are not read back."""
    found = {one.path: _mark(one, files.stat(one.path)) for one in written}
    for folder in {posixpath.dirname(path) for path in found}:
        _write(_marks(cache_dir, folder), found)


def _verify_folder(expected: Iterable[Expected], marks: str | None) -> None:
    kept = _read(marks) if marks else {}
    with ThreadPoolExecutor(_THREADS) as threads:
        found = dict(threads.map(partial(_verified, kept=kept), expected))
    _seen.update(found.items())
    if marks and found.items() - kept.items():
        _write(marks, {**kept, **found})


def _verified(one: Expected, kept: Mapping[str, str]) -> tuple[str, str]:
    """(path, what it was found to be), read only where that is not known already."""
    try:
        stat = files.stat(one.path)
    except FileNotFoundError:
        raise WrongFileError(one.path, "a file of the dataset is missing") from None
    if stat.size != one.bytes:
        raise WrongFileError(one.path, f"not the file that was written: {stat.size:,} bytes, expected {one.bytes:,}")
    mark = _mark(one, stat)
    if (one.path, mark) in _seen or kept.get(one.path) == mark:
        return one.path, mark
    if (found := records.file_crc32c(one.path)) != one.crc32c:
        raise WrongFileError(one.path, f"not the file that was written: checksum {found}, expected {one.crc32c}")
    return one.path, mark


def _read(path: str) -> dict[str, str]:
    """Of a damaged file nothing is known, and everything is compared again."""
    try:
        return schema.read_json(dict[str, str], files.read_bytes(path))
    except (OSError, ValueError, InfeedError):
        return {}


def _write(path: str, marks: Mapping[str, str]) -> None:
    with suppress(OSError, InfeedError):  # then everything is compared again the next time
        files.write_bytes(path, json.dumps(marks).encode())


def _marks(cache_dir: str, folder: str) -> str:
    return files.join(cache_dir, f"verified-{hashlib.sha256(folder.encode()).hexdigest()[:32]}.json")


def _mark(one: Expected, stat: FileStat) -> str:
    return f"{files.version(stat)} {one.crc32c}"
