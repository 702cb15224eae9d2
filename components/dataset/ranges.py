"""Division of a dataset's records among workers: whole files, and ranges of records in large files."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from infeed.components.dataset import files, names
from infeed.components.dataset.manifest import Manifest
from infeed.components.dataset.records import count_records

RANGE_BYTES = 64 << 20  # on disk. Reading a range of a compressed file skips the records before it
MapFn = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]  # a function such as `map` or `Engine.map`


@dataclass(frozen=True)
class ShardRange:
    """A run of records of one TFRecord file."""

    split: str  # name of the split. Empty for a file outside Split-* folders.
    path: str
    start: int = 0  # index of the first record
    stop: int | None = None  # index after the last record. None for the end of the file.
    bytes: int = 0  # size on disk, estimated unless the range is the whole file

    @property
    def place(self) -> str:
        """File and records, for errors."""
        if self.start == 0 and self.stop is None:
            return self.path
        return f"{self.path}, records {self.start} to {'the end' if self.stop is None else self.stop - 1}"


def record_ranges(folders: Iterable[str], map_fn: MapFn = map) -> list[ShardRange]:
    """Divide the files of some splits into ranges of about RANGE_BYTES, in the order of folders and file names.

    The ranges depend only on the visible files, so they are the same for every engine. `map_fn` counts large files
    without a manifest, which reads each file once.

    Raises InfeedError if a large file without a manifest is truncated or corrupt, or a manifest cannot be read.
    """
    found = [
        (folder, file) for folder in folders for file in files.list_files(folder) if not files.is_hidden(file.path)
    ]
    counts: dict[str, int] = {}
    for folder in {folder for folder, _ in found}:
        root = posixpath.dirname(folder.rstrip("/"))
        if _split_name(folder) and files.exists(files.join(root, names.MANIFEST)):
            splits = Manifest.read(root).splits.values()
            counts |= {files.join(root, shard.file): shard.records for split in splits for shard in split.shards}
    large = [file.path for _, file in found if file.size > RANGE_BYTES and file.path not in counts]
    counts |= dict(zip(large, map_fn(count_records, large), strict=True))
    return [
        part
        for folder, file in found
        for part in cut(_split_name(folder), file.path, file.size, counts.get(file.path, 0))
    ]


def cut(split: str, path: str, size: int, records: int) -> list[ShardRange]:
    """Divide a file into ranges of equal numbers of records. `records` is 0 if the number is unknown."""
    parts = max(1, min(math.ceil(size / RANGE_BYTES), records))
    bounds = [records * part // parts for part in range(parts)]
    # The last range is open, so that extra data after the last record is found.
    stops: Sequence[int | None] = [*bounds[1:], None]
    return [ShardRange(split, path, start, stop, size // parts) for start, stop in zip(bounds, stops, strict=True)]


def _split_name(folder: str) -> str:
    name = files.name(folder.rstrip("/"))
    return name.removeprefix(names.SPLIT_FOLDER) if name.startswith(names.SPLIT_FOLDER) else ""
