"""Local cache between runs, in one folder. Every entry can be recreated.

FOLDER/KIND-KEY.json   a small file, such as the statistics of a shard; the key is a digest of its inputs
FOLDER/KEY/            a folder of files, such as columns; `.KEY.lock` is held while a process writes it
FOLDER/SPAN-KEY/       the Examples of a span

An entry appears when it is complete. Its modification time is its last use. Each write of an entry first evicts
entries unused for thirty days, then the least recently used small files beyond a gigabyte, then the least recently
used folders until there is room. Other content of the folder is kept.

The cache also remembers which files match their checksums, so that `verify` reads each version of a file once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import posixpath
import re
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.base.locks import alone
from infeed.components.dataset import files, records

T = TypeVar("T")
CACHE_DIR = "~/.cache/tfx-infeed"
_log = logging.getLogger(__name__)
_MAX_AGE_SECONDS = 30 * 24 * 3600
_MAX_FILE_BYTES = 1 << 30  # of all small files
_PAUSE_SECONDS = 60.0  # minimum seconds between searches for old entries when small files are written
_FILE = re.compile(r"\.?(?:counted|look|sample|shapes|statistics|verified)-[\w-]+\.(?:arrow|json)(?:\.[0-9a-f]{32})?")
_FOLDER = re.compile(r"counted-[0-9a-f]{32}|\.?\d+-[0-9a-f]{16}(?:\.unfinished)?")
_COLUMN_FILE = re.compile(r"columns\.json|\d+\.(values|splits\.\d+)|verified-[0-9a-f]{32}\.json")
_looked: dict[str, float] = {}  # folder -> time of the last search for old entries by this process


def digest(lines: Iterable[str]) -> str:
    """Return the key of an entry with these inputs: a digest of 32 hexadecimal digits."""
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def kept_file(folder: str, name: str) -> bytes | None:
    """Return the content of a small file. None if it does not exist or cannot be read."""
    path = Path(folder).expanduser() / name
    try:
        content = files.read_bytes(str(path))
    except (OSError, InfeedError):
        return None
    touch(path)
    return content


def keep_file(folder: str, name: str, content: bytes) -> None:
    """Write a small file if the folder is writable."""
    assert _FILE.fullmatch(name), f"{name} would never be removed"
    home = Path(folder).expanduser()
    with suppress(OSError, InfeedError):
        files.write_bytes(str(home / name), content)
        if time.monotonic() - _looked.get(str(home), -_PAUSE_SECONDS) >= _PAUSE_SECONDS:
            remove_old(home)


def kept_folder(
    folder: str, key: str, write: Callable[[Path], object], opened: Callable[[Path], T], takes: float, do: str
) -> T:
    """Open the entry FOLDER/KEY. If it is missing or damaged, write it first. It takes about `takes` bytes.

    `write` fills a new folder, and `opened` raises an error if the entry is damaged. One process writes at a time.
    Raises InfeedError, with the remedy `do`, if the entry cannot be written.
    """
    home = Path(folder).expanduser()
    entry = home / key
    try:
        home.mkdir(parents=True, exist_ok=True)
        with alone(_lock_of(entry), doing="another process writes the entry", where=str(home), do=do, wait=True):
            # Look only under the lock: the process that held it may have written this entry.
            found = _opened_or_none(entry, opened)
            if found is None:
                _remove_unfinished(entry)
                remove_old(home, takes)
                _write(entry, write)
                found = opened(entry)
            touch(entry)
            return found
    except OSError as error:
        raise InfeedError(f"cannot write the cache: {error.strerror or error}", where=str(home), do=do) from error


def touch(entry: Path) -> None:
    """Record the last use of an entry."""
    with suppress(OSError):  # another process has removed the entry, or the disk is read-only
        os.utime(entry)


def size_on_disk(folder: str) -> int:
    """Return the bytes that our entries take on the disk."""
    return sum(map(_disk_bytes, _entries(Path(folder).expanduser())))


def remove_old(home: Path, takes: float = 0) -> None:
    """Remove leftovers of killed writers, old entries, and the least recently used ones until there is room."""
    _looked[str(home)] = time.monotonic()
    used = dict[Path, float]()
    for entry in _entries(home):
        with suppress(FileNotFoundError):  # another process has removed it
            used[entry] = entry.lstat().st_mtime
    # Small files have a separate limit, so that they cannot evict columns that took minutes to write.
    small = {entry: _disk_bytes(entry) for entry in used if _FILE.fullmatch(entry.name)}
    excess = sum(small.values()) - _MAX_FILE_BYTES
    for entry in sorted(used, key=used.__getitem__):
        is_old = time.time() - used[entry] > _MAX_AGE_SECONDS
        if entry in small:
            if is_old or excess > 0:
                entry.unlink(missing_ok=True)
                excess -= small[entry]
        # A hidden folder is a leftover of a killed writer, unless the lock is held.
        elif is_old or entry.name.startswith(".") or shutil.disk_usage(home).free < takes:
            with suppress(InfeedError), alone(_lock_of(entry), doing="in use", where=str(entry), do="wait"):
                shutil.rmtree(entry, ignore_errors=True)


def _entries(home: Path) -> Iterator[Path]:
    """Yield the cache's entries, including unfinished ones. Skip other content of the folder."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for entry in home.iterdir():
            with suppress(FileNotFoundError):
                if _is_ours(entry):
                    yield entry


def _is_ours(entry: Path) -> bool:
    if entry.is_symlink() or not entry.is_dir():
        return entry.is_file() and bool(_FILE.fullmatch(entry.name))
    inside = [file.name for file in entry.iterdir()]
    return bool(_FOLDER.fullmatch(entry.name) or (inside and all(map(_COLUMN_FILE.fullmatch, inside))))


def _disk_bytes(entry: Path) -> int:
    there = (Path(place, name) for place, _, names in os.walk(entry) for name in names) if entry.is_dir() else [entry]
    total = 0
    for file in there:
        with suppress(FileNotFoundError):
            total += file.lstat().st_blocks * 512
    return total


def _lock_of(entry: Path) -> Path:
    """Return the lock file of an entry. Unfinished entries are named FOLDER/.x.KEY and FOLDER/.KEY.unfinished."""
    return entry.with_name(f".{entry.name.removesuffix('.unfinished').rpartition('.')[2]}.lock")


def _opened_or_none(entry: Path, opened: Callable[[Path], T]) -> T | None:
    if not os.path.lexists(entry):
        return None
    try:
        return opened(entry)
    except (OSError, TypeError, ValueError) as error:
        _log.warning("cache entry %s is damaged and will be written again: %s", entry, error)
        return None


def _remove_unfinished(entry: Path) -> None:
    """Remove a damaged entry and the leftovers of its killed writers."""
    for left in (entry, *entry.parent.glob(f".*.{entry.name}")):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        else:
            left.unlink(missing_ok=True)


def _write(entry: Path, write: Callable[[Path], object]) -> None:
    unfinished = Path(tempfile.mkdtemp(prefix=".", suffix=f".{entry.name}", dir=entry.parent))
    try:
        write(unfinished)
        unfinished.rename(entry)
    except BaseException:  # Ctrl-C must not leave a partial entry either
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


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
