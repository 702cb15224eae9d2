"""Verify files against the checksums of a manifest or a cache, once for each version of a file.

A file is read when it is first verified and after each change. Results are cached in CACHE_DIR/verified-*.json, one
file for each folder, and in memory if the folder cannot be written.
"""

from __future__ import annotations

import json
import posixpath
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files, records
from infeed.components.dataset.cache import digest, keep_file, kept_file

_MISSING = "the file is missing"
_THREADS = 8  # threads mostly wait for the object store
_seen: set[tuple[str, str]] = set()  # (path, mark) of the files verified in this process


@dataclass(frozen=True)
class Expected:
    """Expected size and checksum of a file. `crc32c` is the checksum of its bytes on disk, in hex."""

    path: str
    bytes: int
    crc32c: str


class WrongFileError(InfeedError):
    """The file at `path` differs from the file that was written."""

    def __init__(self, path: str, what: str) -> None:
        self.path = path
        do = "write the dataset again: the file was damaged or replaced after it was written"
        super().__init__(what, where=path, do=do)

    def __reduce__(self) -> tuple[object, ...]:
        return WrongFileError, (self.path, self.what)


def verify(expected: Sequence[Expected], cache_dir: str | None = None) -> None:
    """Compare each file with its expected size and checksum, unless it is unchanged since the last comparison.

    Results are cached on disk in `cache_dir`, or nowhere if it is None. Raises WrongFileError if a file is missing or
    differs.
    """
    folders: dict[str, list[Expected]] = defaultdict(list)
    for one in expected:
        folders[posixpath.dirname(one.path)].append(one)
    for folder, some in folders.items():
        kept: dict[str, str] = {}
        if cache_dir and (marks := kept_file(cache_dir, _marks(folder))):
            with suppress(ValueError):  # with a damaged cache, every file is compared again
                kept = schema.read_json(dict[str, str], marks)
        with ThreadPoolExecutor(_THREADS) as threads:
            found = dict(threads.map(partial(_verified, kept=kept), some))
        _seen.update(found.items())
        if cache_dir and found.items() - kept.items():
            keep_file(cache_dir, _marks(folder), json.dumps({**kept, **found}).encode())


def check_size(one: Expected, size: int | None) -> None:
    """Raise WrongFileError if a file has another size in bytes than the written one. A missing file has size None."""
    if size is None:
        raise WrongFileError(one.path, _MISSING)
    if size != one.bytes:
        raise WrongFileError(one.path, f"the file has changed: {size:,} bytes, expected {one.bytes:,}")


def _verified(one: Expected, kept: Mapping[str, str]) -> tuple[str, str]:
    """Return (path, mark) of a file, reading it only if the mark is unknown."""
    try:
        stat = files.stat(one.path)
    except FileNotFoundError:
        raise WrongFileError(one.path, _MISSING) from None
    check_size(one, stat.size)
    mark = f"{files.version(stat)} {one.crc32c}"
    if (one.path, mark) in _seen or kept.get(one.path) == mark:
        return one.path, mark
    if (found := records.file_crc32c(one.path)) != one.crc32c:
        raise WrongFileError(one.path, f"the file has changed: checksum {found}, expected {one.crc32c}")
    return one.path, mark


def _marks(folder: str) -> str:
    return f"verified-{digest([folder])}.json"
