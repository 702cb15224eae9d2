"""Statistics of all columns: gathered block by block in bounded memory, merged, stored, and looked up.

`tables_of` returns the statistics of any dataset: from beside its manifest, from a cache, or by reading the data.
"""

from __future__ import annotations

import functools
import itertools
import json
import logging
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from infeed.components.base import machine, progress, schema
from infeed.components.base.annotations import Count
from infeed.components.base.errors import InfeedError, value_errors
from infeed.components.dataset import files, names
from infeed.components.dataset.cache import CACHE_DIR, digest, keep_file, kept_file
from infeed.components.dataset.decode import decode_example
from infeed.components.dataset.decode_columns import decode_columns
from infeed.components.dataset.manifest import Shard, Split
from infeed.components.dataset.reading import (
    RANGE_BYTES,
    FileToCount,
    MapFn,
    ShardRange,
    cut,
    folder_of_shards,
    manifest_of,
    manifests_of,
)
from infeed.components.dataset.record_blocks import RecordBlock, read_blocks
from infeed.components.dataset.records import file_crc32c
from infeed.components.dataset.statistics.cells import Cells, concat
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics, StoredColumn

FORMAT = 1
_ZSTD = ".zst"
_WAITING_BYTES = 16 << 20  # bytes of cells to gather before computing statistics
_WIDE_WAITING_BYTES = 64 << 20  # limit for few rows, because computing a column takes at least 0.3 ms
_MANY_ROWS = 4_096
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableStatistics:
    """The number of rows, and the statistics of each column.

    Attributes:
      untyped: names of features without a type, which ExampleGens write for columns without values.
    """

    rows: int = 0
    columns: Mapping[str, ColumnStatistics] = field(default_factory=dict)
    untyped: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", dict(sorted(self.columns.items())))

    @classmethod
    def of(cls, rows: int, cells: Mapping[str, Cells]) -> TableStatistics:
        """Compute the statistics of the cells of each column, all with `rows` rows."""
        return cls(rows, {name: ColumnStatistics.of_cells(name, of_column) for name, of_column in cells.items()})

    @property
    def without_values(self) -> list[str]:
        """Names of the features that have neither values nor a type in any row."""
        return sorted(self.untyped - self.columns.keys())

    def __add__(self, other: TableStatistics) -> TableStatistics:
        """Merge two sets of rows. A column that only one of them has counts as missing in all rows of the other.

        Raises:
          ValueError: a column has two types.
        """
        if not self.rows and not self.columns and not self.untyped:
            return other  # a merge gives the same, but takes half a millisecond per column
        known = {**self.columns, **other.columns}
        columns = {name: self._column(one) + other._column(one) for name, one in known.items()}
        return TableStatistics(self.rows + other.rows, columns, self.untyped | other.untyped)

    def _column(self, known: ColumnStatistics) -> ColumnStatistics:
        return self.columns.get(known.name) or ColumnStatistics.none(known.name, known.type, self.rows)

    def collapse(self) -> TableStatistics:
        """Return an equivalent object whose size does not grow with the rows."""
        return replace(self, columns={name: column.collapse() for name, column in self.columns.items()})

    def to_bytes(self, key: str) -> bytes:
        """Return the statistics as JSON."""
        columns = [column.plain() for column in self.columns.values()]
        plain = {"format": FORMAT, "key": key, "rows": self.rows, "columns": columns, "untyped": sorted(self.untyped)}
        return json.dumps(plain).encode()

    def write(self, path: str, key: str) -> None:
        """Write the statistics atomically.

        Args:
          path: path of the file. A path that ends in .zst is compressed to about a quarter.
        """
        content = self.to_bytes(key)
        if path.endswith(_ZSTD):
            sink = pa.BufferOutputStream()
            with pa.CompressedOutputStream(sink, "zstd") as compressed:
                compressed.write(content)
            content = sink.getvalue().to_pybytes()
        files.write_bytes(path, content)

    @classmethod
    def read(cls, path: str, key: str) -> TableStatistics | None:
        """Read statistics. Returns None if the file does not exist or belongs to other rows.

        Raises:
          InfeedError: the file is damaged or was written by a later version.
        """
        try:
            content = files.read_bytes(path)
        except FileNotFoundError:
            return None
        return cls.from_bytes(content, key, path)

    @classmethod
    def from_bytes(cls, content: bytes, key: str, where: str) -> TableStatistics | None:
        """Read the content of a file, as `read` does. `where` names the file in errors."""
        with value_errors(where, "remove the file, so that the columns are read again", "cannot read the statistics: "):
            if where.endswith(_ZSTD):
                content = pa.CompressedInputStream(pa.BufferReader(content), "zstd").read()
            stored = schema.read_json(_Stored, content, _check_format)
            return stored.table() if stored.key == key else None


def add(parts: Iterable[TableStatistics]) -> TableStatistics:
    """Merge statistics in this order."""
    return functools.reduce(lambda one, other: one + other, parts, TableStatistics())


@dataclass(frozen=True)
class _Stored:
    format: Count
    key: str
    rows: Count
    columns: tuple[StoredColumn, ...]
    untyped: tuple[str, ...] = ()

    def table(self) -> TableStatistics:
        columns = {column.name: column.statistics() for column in self.columns}
        found = TableStatistics(self.rows, columns, frozenset(self.untyped))
        if len(found.columns) < len(self.columns):
            raise ValueError("a column occurs twice")
        for column in found.columns.values():
            if column.rows != self.rows:
                raise ValueError(f"column {column.name!r} has {column.rows} rows of {self.rows}")
        return found


def _check_format(given: object) -> None:
    if isinstance(given, dict) and given.get("format") != FORMAT:
        raise ValueError(f"format is {given.get('format')!r}, but this version reads format {FORMAT}")


class Gatherer:
    """Gathers statistics of blocks of rows. Small blocks are concatenated first."""

    def __init__(self) -> None:
        self._found = TableStatistics()
        self._untyped = set[str]()
        self._waiting: list[tuple[int, Mapping[str, Cells]]] = []
        self._bytes = 0

    def add(self, rows: int, cells: Mapping[str, Cells | None]) -> None:
        """Add the cells of `rows` rows. A column that is absent is missing in all of them.

        Args:
          cells: cells of each column. None for a column without a type in these rows.

        Raises:
          ValueError: a column has another type than before.
        """
        self._untyped.update(name for name, column in cells.items() if column is None)
        typed = {name: column for name, column in cells.items() if column is not None}
        # Only blocks with the same columns and types can be concatenated.
        if self._waiting and _types(typed) != _types(self._waiting[0][1]):
            self._compute()
        self._waiting.append((rows, typed))
        self._bytes += sum(column.nbytes for column in typed.values())
        many = sum(of_block for of_block, _ in self._waiting) >= _MANY_ROWS
        if self._bytes > (_WAITING_BYTES if many else _WIDE_WAITING_BYTES):
            self._compute()

    def statistics(self) -> TableStatistics:
        if self._waiting:
            self._compute()
        return replace(self._found, untyped=frozenset(self._untyped))

    def _compute(self) -> None:
        rows = sum(of_block for of_block, _ in self._waiting)
        blocks = [cells for _, cells in self._waiting]
        together = {name: concat([cells[name] for cells in blocks]) for name in blocks[0]}
        self._found += TableStatistics.of(rows, together)
        self._waiting, self._bytes = [], 0


def _types(cells: Mapping[str, Cells]) -> dict[str, str]:
    return {name: column.kind for name, column in cells.items()}


def statistics_of(
    root: str, split: str, columns: Iterable[str] | None = None, cache_dir: str = CACHE_DIR, map_fn: MapFn | None = None
) -> dict[str, ColumnStatistics]:
    """Return the statistics of the columns of one split, by name; see `table_of`.

    Raises:
      InfeedError: a column does not exist, or see `table_of`.
    """
    found = table_of(root, split, cache_dir, map_fn).columns
    wanted = list(found if columns is None else columns)
    if strangers := [name for name in wanted if name not in found]:
        do = f"use some of {', '.join(map(repr, found))}"
        raise InfeedError(f"there is no column {strangers[0]!r}", where=names.split_dir(root, split), do=do)
    return {name: found[name] for name in wanted}


def table_of(root: str, split: str, cache_dir: str = CACHE_DIR, map_fn: MapFn | None = None) -> TableStatistics:
    """Return the statistics of one split; see `tables_of`."""
    [table] = tables_of([(root, split)], cache_dir, map_fn)
    return table


def tables_of(
    places: Sequence[tuple[str, str]], cache_dir: str = CACHE_DIR, map_fn: MapFn | None = None
) -> list[TableStatistics]:
    """Return the statistics of some splits.

    A dataset without statistics is read once. The statistics of each shard are cached in `cache_dir` by the shard's
    checksum, and never written into the dataset.

    Args:
      places: (folder of a dataset, split). Datasets are any TFRecords of tf.Examples; see `manifests_of`.
      cache_dir: cache for the statistics and counts of datasets that have none.
      map_fn: counts and reads the shards of all splits, such as `Engine.map`. It is called once, and once more if
        large files are divided. Defaults to one thread of this process for each core.

    Raises:
      InfeedError: a split does not exist, a file is damaged, or records are not tf.Examples.
    """
    with _threads_unless(map_fn) as each:
        folders = frozenset(names.split_dir(root, split) for root, split in places)
        count = functools.partial(_count_and_describe, each, folders, cache_dir)
        manifests = manifests_of((root for root, _ in places), cache_dir, count)
        splits = [manifests[root].split(split, root) for root, split in places]
        stored = [_stored(root, name, split) for (root, name), split in zip(places, splits, strict=True)]
        # One call for the shards of all splits: on a cluster, each call starts workers.
        unread = [
            _Unread.of(root, name, split, cache_dir)
            for (root, name), split, found in zip(places, splits, stored, strict=True)
            if found is None
        ]
        read = iter(each(_read_range, [part for one in unread for parts in one.parts.values() for part in parts]))
        return [found or unread.pop(0).table(read, cache_dir) for found in stored]


_Counting = Callable[[FileToCount], Shard]


def _count_and_describe(
    map_fn: MapFn, folders: frozenset[str], cache: str, count: _Counting, files_to_count: Iterable[FileToCount]
) -> Iterator[Shard]:
    """Count like `map`. Small files are described in the same pass, because starting a cluster is slow."""
    for shard, found in map_fn(functools.partial(_count_file, folders, cache, count), files_to_count):
        if found is not None:
            keep_statistics(found, _key_of_shard(shard), cache)
        yield shard


def _count_file(
    folders: frozenset[str], cache: str, count: _Counting, file: FileToCount
) -> tuple[Shard, TableStatistics | None]:
    """Return the shard, and its statistics if it was described and they are not cached."""
    if posixpath.dirname(file.path) not in folders or file.bytes > RANGE_BYTES:
        return count(file), None
    crc32c = file_crc32c(file.path)
    kept = kept_statistics(_key_of_file(crc32c, file.bytes), cache)
    found = kept or _read_range(ShardRange("", file.path, bytes=file.bytes))
    shard = Shard(files.relative(file.path, file.root), found.rows, file.bytes, crc32c)
    return shard, None if kept else found


@contextmanager
def _threads_unless(map_fn: MapFn | None) -> Iterator[MapFn]:
    if map_fn is not None:
        yield map_fn
        return
    with ThreadPoolExecutor(machine.cpus()) as threads:
        yield lambda function, items: threads.map(progress.for_threads(function), items)


def stored_statistics(root: str, split: str) -> dict[str, ColumnStatistics] | None:
    """Return the statistics that the writer of a dataset stored for a split, by column. None if there are none."""
    if not files.exists(names.statistics_file(root, split)):
        return None
    found = _stored(root, split, manifest_of(root).splits[split])
    return dict(found.columns) if found else None


def key_of(split: Split) -> str:
    """Return a key that changes with the records of a split."""
    lines = [f"{shard.file}\t{shard.records}\t{shard.bytes}\t{shard.crc32c}" for shard in split.shards]
    return digest(lines)


def _stored(root: str, split: str, shards: Split) -> TableStatistics | None:
    return TableStatistics.read(names.statistics_file(folder_of_shards(root), split), key_of(shards))


@dataclass(frozen=True)
class _Unread:
    """A split without stored statistics.

    Attributes:
      kept: cached statistics of each shard's file. None for a shard to read.
    """

    root: str
    split: Split
    kept: Mapping[str, TableStatistics | None]
    parts: Mapping[str, Sequence[ShardRange]]

    @classmethod
    def of(cls, root: str, name: str, split: Split, cache: str) -> _Unread:
        base = folder_of_shards(root)
        kept = {shard.file: kept_statistics(_key_of_shard(shard), cache) for shard in split.shards}
        parts = {
            shard.file: cut(name, files.join(base, shard.file), shard.bytes, shard.records)
            for shard in split.shards
            if kept[shard.file] is None
        }
        return cls(root, split, kept, parts)

    def table(self, read: Iterator[TableStatistics], cache: str) -> TableStatistics:
        """Merge the statistics of the ranges, and cache them."""
        total = TableStatistics()
        with value_errors(self.root, "write all shards with one type for each feature"):
            for shard in self.split.shards:
                found = self.kept[shard.file]
                if found is None:
                    found = add(itertools.islice(read, len(self.parts[shard.file]))).collapse()
                    keep_statistics(found, _key_of_shard(shard), cache)
                total += found
        return total


def _key_of_shard(shard: Shard) -> str:
    return _key_of_file(shard.crc32c, shard.bytes)


def _key_of_file(crc32c: str, size: int) -> str:
    return f"{crc32c}-{size}"


def kept_statistics(key: str, cache_dir: str) -> TableStatistics | None:
    """Return the cached statistics of the rows with this key. None if there are none or they are damaged."""
    content = kept_file(cache_dir, _cached_as(key))
    if content is None:
        return None
    try:
        return TableStatistics.from_bytes(content, key, files.join(cache_dir, _cached_as(key)))
    except InfeedError as error:
        _log.warning("cached statistics are damaged, reading the rows again: %s", error)
        return None


def keep_statistics(found: TableStatistics, key: str, cache_dir: str) -> None:
    """Cache statistics, if the folder can be written."""
    keep_file(cache_dir, _cached_as(key), found.to_bytes(key))


def _cached_as(key: str) -> str:
    return f"statistics-{key}.json"


def _read_range(part: ShardRange) -> TableStatistics:
    gatherer = Gatherer()
    with value_errors(part.place, "write tf.Examples, with one type for each feature"):
        for block in read_blocks(part.path, part.start, part.stop):
            cells = {name: Cells.of(column) for name, column in decode_columns(block).items()}
            gatherer.add(len(block), {**_untyped(block), **cells})
            progress.count("example read", len(block))
        return gatherer.statistics().collapse()


def _untyped(block: RecordBlock) -> dict[str, None]:
    """Return the features of the first record without a type. Columns without values are written this way."""
    [first] = block.payloads(np.zeros(1, np.int64))
    return {name: None for name, feature in decode_example(first).features.items() if feature.type is None}
