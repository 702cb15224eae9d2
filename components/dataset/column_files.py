"""Columns in files: written once, mapped into memory, kept for the next time that somebody reads the same data.

FOLDER/KEY/columns.json    of each column its type, shape and number of values; of each file its size and checksum
FOLDER/KEY/0.values        the values of column 0, end to end; of strings their bytes
FOLDER/KEY/0.splits.0      of a ragged column, where each row begins and ends; strings have one level more

An entry appears under its key only once it is whole; one that is not as it was written is written again.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import google_crc32c
import numpy as np
import numpy.typing as npt
from filelock import FileLock, Timeout

from infeed.components import schema
from infeed.components.annotations import Count
from infeed.components.dataset.checksums import Expected, remember, verify
from infeed.components.dataset.reading import COUNTED
from infeed.components.errors import InfeedError

T = TypeVar("T")
_log = logging.getLogger(__name__)
_INDEX = "columns.json"
_FILE = re.compile(r"columns\.json|\d+\.(values|splits\.\d+)|verified-[0-9a-f]{32}\.json")  # all that an entry holds
# An entry that nobody has used for so long is removed when another is written.
_MAX_AGE_SECONDS = 30 * 24 * 3600


@dataclass(frozen=True)
class ColumnFile:
    """One file of a column, by the last part of its name, `values` or `splits.0`; `crc32c` is of its bytes, in hex."""

    name: str
    bytes: Count
    crc32c: str


@dataclass(frozen=True)
class CachedColumn:
    """One column on disk: so many values of a type, each of a shape, cut into rows by so many levels of splits.

    Strings have one level more, of their bytes; where `ragged` is False theirs are two, and a row's shape is `shape`.
    """

    type: str
    ragged: bool
    shape: tuple[Count, ...]
    values: Count
    levels: tuple[Count, ...]
    files: tuple[ColumnFile, ...]


@dataclass(frozen=True)
class ColumnIndex:
    """What `columns.json` says; `about` is what the writer of the entry wants to know when it is opened."""

    columns: tuple[CachedColumn, ...]
    crc32c: str
    about: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, columns: Sequence[CachedColumn], about: Mapping[str, Any] | None = None) -> ColumnIndex:
        return cls(tuple(columns), _checksum(columns, about or {}), about or {})

    @property
    def rows(self) -> int:
        """Rows of the split."""
        first = self.columns[0]
        return first.levels[0] - 1 if first.levels else first.values

    @classmethod
    def read(cls, entry: Path) -> ColumnIndex:
        """Raises OSError or ValueError where it is not what was written."""
        path = entry / _INDEX
        index = schema.read_json(cls, path.read_bytes())
        if not index.columns or _checksum(index.columns, index.about) != index.crc32c:
            raise ValueError(f"{path}: wrong checksum")
        return index

    def write(self, entry: Path) -> None:
        (entry / _INDEX).write_text(json.dumps(asdict(self)))

    def files(self, entry: Path) -> list[Expected]:
        """What each file of the entry has to be."""
        return [
            Expected(f"{entry}/{number}.{file.name}", file.bytes, file.crc32c)
            for number, column in enumerate(self.columns)
            for file in column.files
        ]


def _checksum(columns: Sequence[CachedColumn], about: Mapping[str, Any]) -> str:
    described = json.dumps([[asdict(column) for column in columns], about], sort_keys=True)
    return f"{google_crc32c.value(described.encode()):08x}"


def kept(
    folder: str,
    key: str,
    write: Callable[[Path], ColumnIndex],
    opened: Callable[[Path, ColumnIndex], T],
    takes: float,
    do: str = "free some space, or name another folder in cache_dir",
) -> T:
    """What `opened` makes of FOLDER/KEY; where there is no such entry, or a damaged one, `write` makes it first.

    Args:
      folder: a local folder, made where it is missing. Old entries are removed where room is needed.
      key: names the data and all that was done to it.
      write: writes the files of the columns into a folder and returns their index.
      opened: maps what has been found to be as it was written.
      takes: bytes of the entry, about.
      do: what helps where it cannot be written.

    Raises:
      InfeedError: the entry cannot be written.
    """
    home = Path(folder).expanduser()
    entry = home / key
    try:
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(_lock_of(entry)):  # of several processes on one host, one writes
            found = _found(entry, opened)
            if found is None:
                _clear(entry)
                _make_room(home, takes)
                _write(entry, write)
                found = _open(entry, opened)
            os.utime(entry)  # says when it was last used
            return found
    except OSError as error:
        raise InfeedError(
            f"the columns cannot be kept on disk: {error.strerror or error}", where=str(home), do=do
        ) from error


def _found(entry: Path, opened: Callable[[Path, ColumnIndex], T]) -> T | None:
    """What is made of an entry, if there is one and it is as it was written."""
    if not os.path.lexists(entry):
        return None
    try:
        return _open(entry, opened)
    except (OSError, TypeError, ValueError, InfeedError) as error:
        _log.warning("what is kept in %s is damaged, so it is made again: %s", entry, error)
        return None


def _open(entry: Path, opened: Callable[[Path, ColumnIndex], T]) -> T:
    index = ColumnIndex.read(entry)
    verify(index.files(entry), str(entry))
    return opened(entry, index)


def _write(entry: Path, write: Callable[[Path], ColumnIndex]) -> None:
    unfinished = Path(tempfile.mkdtemp(prefix=".", suffix=f".{entry.name}", dir=entry.parent))
    try:
        index = write(unfinished)
        index.write(unfinished)
        unfinished.rename(entry)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    remember(index.files(entry), str(entry))


class FileWriter:
    """Appends arrays to one file, and counts.

    Args:
      path: of the file, whose name is `NUMBER.` and that of the `ColumnFile`.
    """

    def __init__(self, path: str) -> None:
        self._path, self._checksum = path, google_crc32c.Checksum()
        self.bytes = self.items = 0
        Path(path).touch(exist_ok=False)

    def add(self, values: npt.NDArray[Any]) -> None:
        """Items along the first axis."""
        data = values.tobytes()
        self._checksum.update(data)
        with open(self._path, "ab") as file:  # not held open: there may be more of them than a process may have
            file.write(data)
        self.bytes, self.items = self.bytes + len(data), self.items + len(values)

    def written(self) -> ColumnFile:
        """What the file holds now."""
        return ColumnFile(Path(self._path).name.partition(".")[2], self.bytes, self._checksum.digest().hex())


def mapped(path: str, kind: str, values: int, shape: Sequence[int] = ()) -> npt.NDArray[Any]:
    """[values, *shape], whose memory is the file's."""
    if not values or 0 in shape:
        return np.zeros((values, *shape), kind)  # nothing cannot be mapped
    # What is read-only cannot be handed to other libraries without a copy; a page that nobody writes to stays the
    # file's.
    return np.asarray(np.memmap(path, kind, mode="c", shape=(values, *shape)))


def _lock_of(entry: Path) -> Path:
    """The file that is locked while an entry is written, opened or removed; FOLDER/.x.KEY is one being written."""
    return entry.with_name(f".{entry.name.rpartition('.')[2]}.lock")


def _clear(entry: Path) -> None:
    """Removes an entry and what writers of it have left that were killed; the caller holds its lock."""
    for left in (entry, *entry.parent.glob(f".*.{entry.name}")):
        _remove(left)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _make_room(home: Path, wanted: float) -> None:
    """Removes what killed writers left and what is old, and what was used longest ago until there is room."""
    used = {entry: entry.stat().st_mtime for entry in home.iterdir() if _is_ours(entry)}
    for entry in sorted(used, key=used.__getitem__):
        is_left_over = entry.name.startswith(".")  # while its writer lives, it holds the lock
        is_old = time.time() - used[entry] > _MAX_AGE_SECONDS
        if is_left_over or is_old or shutil.disk_usage(home).free < wanted:
            _remove_if_idle(entry)


def _is_ours(entry: Path) -> bool:
    """Whoever names a folder that holds other things as well keeps those."""
    if not entry.is_dir():
        return False
    # Not by the lock beside it: some versions of filelock remove that when it is given back.
    files = [file.name for file in entry.iterdir()]
    return bool(COUNTED.fullmatch(entry.name) or (files and all(map(_FILE.fullmatch, files))))


def _remove_if_idle(entry: Path) -> None:
    with suppress(Timeout), FileLock(_lock_of(entry), timeout=0):
        shutil.rmtree(entry)
