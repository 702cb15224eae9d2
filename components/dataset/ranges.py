"""The records of a dataset in pieces that workers take: whole files, and ranges of the records of large files."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infeed.components.dataset import files, names
from infeed.components.dataset.manifest import Manifest
from infeed.components.dataset.records import count_records

RANGE_BYTES = 64 << 20  # of a file, as it lies on disk; a range of a compressed file skips what lies before it
MapFn = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]  # like `map`, as `Engine.map` is


@dataclass(frozen=True)
class ShardRange:
    """Neighboring records of one TFRecord file.

    Attributes:
      split: name of the split that the file lies in; empty for a file outside of a Split-* folder.
      path: of the file.
      start: number of the first record, from 0.
      stop: number behind the last record; None for the end of the file.
      bytes: on disk, estimated where the range is not the whole file.
    """

    split: str
    path: str
    start: int = 0
    stop: int | None = None
    bytes: int = 0

    @property
    def place(self) -> str:
        """The file and the records, for errors."""
        if self.start == 0 and self.stop is None:
            return self.path
        return f"{self.path}, records {self.start} to {'the end' if self.stop is None else self.stop - 1}"


def record_ranges(folders: Iterable[str], map_fn: MapFn = map) -> list[ShardRange]:
    """Cut the files of some splits into ranges of about RANGE_BYTES, in the order of folders and file names.

    The ranges depend on the files alone, so that every engine works on the same ones.

    Args:
      folders: of splits, such as `.../Split-train`; hidden files in them are no data.
      map_fn: counts the records of large files that no manifest names: reads each of them once.

    Raises:
      InfeedError: a large file without a manifest is truncated or corrupt, or a manifest cannot be read.
    """
    found = [(folder, file) for folder in folders for file in _files(folder)]
    counts = {path: count for folder in {folder for folder, _ in found} for path, count in _listed(folder).items()}
    large = [file.path for _, file in found if file.size > RANGE_BYTES and file.path not in counts]
    counts |= dict(zip(large, map_fn(count_records, large), strict=True))
    return [
        part for folder, file in found for part in cut(_split(folder), file.path, file.size, counts.get(file.path, 0))
    ]


def cut(split: str, path: str, size: int, records: int) -> list[ShardRange]:
    """Cut one file into ranges of equally many records.

    Args:
      size: of the file, in bytes.
      records: in the file; 0 if they are not counted.
    """
    parts = max(1, min(math.ceil(size / RANGE_BYTES), records))
    bounds = [records * part // parts for part in range(parts)]
    # The last range is open, so that whatever follows the last record is found.
    stops: Sequence[int | None] = [*bounds[1:], None]
    return [ShardRange(split, path, start, stop, size // parts) for start, stop in zip(bounds, stops, strict=True)]


def _files(folder: str) -> list[files.FileStat]:
    return sorted(
        (file for file in files.list_files(folder) if not files.is_hidden(file.path)), key=lambda one: one.path
    )


def _listed(folder: str) -> Mapping[str, int]:
    """Path -> records, of the files that the dataset's manifest names."""
    root = posixpath.dirname(folder.rstrip("/"))
    if not _split(folder) or not files.exists(files.join(root, names.MANIFEST)):
        return {}
    splits = Manifest.read(root).splits.values()
    return {files.join(root, shard.file): shard.records for split in splits for shard in split.shards}


def _split(folder: str) -> str:
    name = files.name(folder.rstrip("/"))
    return name.removeprefix(names.SPLIT_FOLDER) if name.startswith(names.SPLIT_FOLDER) else ""
