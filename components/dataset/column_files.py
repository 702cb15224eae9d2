"""A cache of columns in memory-mapped files, shared by runs that read the same data.

FOLDER/KEY/columns.json    type, shape and number of values of each column; size and checksum of each file
FOLDER/KEY/0.values        the values of column 0, concatenated; for strings, their bytes
FOLDER/KEY/0.splits.0      row splits of a ragged column; strings have one more level

An entry appears under its key when it is complete. A damaged entry is written again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import google_crc32c
import numpy as np
import numpy.typing as npt

from infeed.components.base import schema
from infeed.components.base.annotations import Count
from infeed.components.dataset.cache import Expected, kept_folder, verify

T = TypeVar("T")
_INDEX = "columns.json"


@dataclass(frozen=True)
class ColumnFile:
    """A file of a column. `name` is `values` or `splits.0`, and `crc32c` is its checksum in hex."""

    name: str
    bytes: Count
    crc32c: str


@dataclass(frozen=True)
class CachedColumn:
    """A column on disk: type, shape and number of values, and levels of row splits.

    Strings have one more level for their bytes. If `ragged` is False, rows have the fixed `shape`.
    """

    type: str
    ragged: bool
    shape: tuple[Count, ...]
    values: Count
    levels: tuple[Count, ...]
    files: tuple[ColumnFile, ...]


@dataclass(frozen=True)
class ColumnIndex:
    """The content of `columns.json`. `about` is extra data of the writer."""

    columns: tuple[CachedColumn, ...]
    crc32c: str
    about: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, columns: Sequence[CachedColumn], about: Mapping[str, Any] | None = None) -> ColumnIndex:
        return cls(tuple(columns), _checksum(columns, about or {}), about or {})

    @property
    def rows(self) -> int:
        first = self.columns[0]
        return first.levels[0] - 1 if first.levels else first.values

    @classmethod
    def read(cls, entry: Path) -> ColumnIndex:
        """Read the index. Raises OSError or ValueError if it is damaged."""
        path = entry / _INDEX
        index = schema.read_json(cls, path.read_bytes())
        if not index.columns or _checksum(index.columns, index.about) != index.crc32c:
            raise ValueError(f"{path}: wrong checksum")
        return index

    def write(self, entry: Path) -> None:
        (entry / _INDEX).write_text(json.dumps(asdict(self)))

    def files(self, entry: Path) -> list[Expected]:
        """Return the expected size and checksum of each file of the entry."""
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
    do: str = "free some space, or set cache_dir to another folder",
) -> T:
    """Open the cache entry FOLDER/KEY. If it is missing or damaged, write it first. It takes about `takes` bytes.

    `folder` is local, and created if missing. Old entries are removed to make room. `key` is a digest of the data and
    its processing. `write` writes the files of the columns into a folder and returns their index, and `opened` maps
    the verified files. Raises InfeedError, with the remedy `do`, if the entry cannot be written.
    """

    def write_all(entry: Path) -> None:
        write(entry).write(entry)

    def open_verified(entry: Path) -> T:
        index = ColumnIndex.read(entry)
        verify(index.files(entry), str(entry))
        return opened(entry, index)

    return kept_folder(folder, key, write_all, open_verified, takes, do)


class FileWriter:
    """Appends arrays to one file of a column, and counts items and bytes."""

    def __init__(self, path: str) -> None:
        self._path, self._checksum = path, google_crc32c.Checksum()
        self.bytes = self.items = 0
        Path(path).touch(exist_ok=False)

    def add(self, values: npt.NDArray[Any]) -> None:
        """Append items along the first axis."""
        data = values.tobytes()
        self._checksum.update(data)
        # Reopened each time, because a process may have too few file handles for all files.
        with open(self._path, "ab") as file:
            file.write(data)
        self.bytes, self.items = self.bytes + len(data), self.items + len(values)

    def written(self) -> ColumnFile:
        return ColumnFile(Path(self._path).name.partition(".")[2], self.bytes, self._checksum.digest().hex())


def mapped(path: str, kind: str, values: int, shape: Sequence[int] = ()) -> npt.NDArray[Any]:
    """Return a memory-mapped array [values, *shape]."""
    if not values or 0 in shape:
        return np.zeros((values, *shape), kind)  # an empty file cannot be mapped
    # Copy-on-write, because other libraries would copy a read-only array. Unmodified pages are shared with the file.
    return np.asarray(np.memmap(path, kind, mode="c", shape=(values, *shape)))
