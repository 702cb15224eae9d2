"""Statistics of all columns of some rows: gathered from blocks in bounded memory, added up, stored, and found again.

`tables_of` is the one way to a dataset's, whoever wrote it: beside its manifest, else from a cache, else read.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from infeed.components import machine, progress, schema
from infeed.components.annotations import Count
from infeed.components.dataset import files, names
from infeed.components.dataset.decode import decode_example
from infeed.components.dataset.decode_columns import decode_columns
from infeed.components.dataset.manifest import Shard, Split
from infeed.components.dataset.ranges import MapFn, ShardRange, cut
from infeed.components.dataset.reading import manifest_of, manifests_of
from infeed.components.dataset.record_blocks import RecordBlock, read_blocks
from infeed.components.dataset.statistics.cells import Cells, concat
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics, StoredColumn
from infeed.components.errors import InfeedError

FORMAT = 1
_ZSTD = ".zst"
_WAITING_BYTES = 16 << 20  # of cells
_WIDE_WAITING_BYTES = 64 << 20  # where that is few rows: to look at a column takes some 0.3 ms, however few it has
_MANY_ROWS = 4_096
CACHE_DIR = "~/.cache/tfx-infeed"
READING_BYTES_PER_PROCESS = 32 << 20  # of compressed shards: read in 2.5 s, where a process takes 1 s to start
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableStatistics:
    """Rows, and what is known of each column that occurs in them.

    Attributes:
      rows: how many
      columns: by name, sorted; each over all of the rows
      untyped: names of features that records have without a type, as ExampleGens write a column that holds nothing
    """

    rows: int = 0
    columns: Mapping[str, ColumnStatistics] = field(default_factory=dict)
    untyped: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", dict(sorted(self.columns.items())))

    @classmethod
    def of(cls, rows: int, cells: Mapping[str, Cells]) -> TableStatistics:
        """Of the cells of each column, all of `rows` rows."""
        return cls(rows, {name: ColumnStatistics.of_cells(name, of_column) for name, of_column in cells.items()})

    @property
    def without_values(self) -> list[str]:
        """Names of the features that have neither values nor a type in any row."""
        return sorted(self.untyped - self.columns.keys())

    def __add__(self, other: TableStatistics) -> TableStatistics:
        """A column that one of them lacks is missing in all of its rows.

        Raises:
          ValueError: a column is of one type here and of another there.
        """
        known = {**self.columns, **other.columns}
        columns = {name: self._column(one) + other._column(one) for name, one in known.items()}
        return TableStatistics(self.rows + other.rows, columns, self.untyped | other.untyped)

    def _column(self, known: ColumnStatistics) -> ColumnStatistics:
        return self.columns.get(known.name) or ColumnStatistics.none(known.name, known.type, self.rows)

    def collapse(self) -> TableStatistics:
        """In a form whose size does not grow with the rows."""
        return replace(self, columns={name: column.collapse() for name, column in self.columns.items()})

    def write(self, path: str, key: str) -> None:
        """Writes it, whole or not at all.

        Args:
          path: compressed by zstd, a quarter of the size, if it ends in .zst
          key: what the rows are known by
        """
        columns = [column.plain() for column in self.columns.values()]
        plain = {"format": FORMAT, "key": key, "rows": self.rows, "columns": columns, "untyped": sorted(self.untyped)}
        content = json.dumps(plain).encode()
        if path.endswith(_ZSTD):
            sink = pa.BufferOutputStream()
            with pa.CompressedOutputStream(sink, "zstd") as compressed:
                compressed.write(content)
            content = sink.getvalue().to_pybytes()
        files.write_bytes(path, content)

    @classmethod
    def read(cls, path: str, key: str) -> TableStatistics | None:
        """What was written; None where there is no such file, or it is of other rows.

        Raises:
          InfeedError: the file was cut short, tampered with, or written by a later version.
        """
        try:
            content = files.read_bytes(path)
            if path.endswith(_ZSTD):
                content = pa.CompressedInputStream(pa.BufferReader(content), "zstd").read()
            stored = schema.read_json(_Stored, content, _check_format)
            if stored.key != key:
                return None
            return stored.table()
        except FileNotFoundError:
            return None
        except ValueError as error:
            do = "remove the file: the columns are then read again"
            raise InfeedError(f"unreadable statistics: {error}", where=path, do=do) from error


def add(parts: Iterable[TableStatistics]) -> TableStatistics:
    """All of them, in this order."""
    return functools.reduce(lambda one, other: one + other, parts, TableStatistics())


@dataclass(frozen=True)
class _Stored:
    """The statistics of a table in a file."""

    format: Count
    key: str
    rows: Count
    columns: tuple[StoredColumn, ...]
    untyped: tuple[str, ...] = ()

    def table(self) -> TableStatistics:
        columns = {column.name: column.statistics() for column in self.columns}
        found = TableStatistics(self.rows, columns, frozenset(self.untyped))
        if len(found.columns) < len(self.columns):
            raise ValueError("a column stands there twice")
        for column in found.columns.values():
            if column.rows != self.rows:
                raise ValueError(f"column {column.name!r} has {column.rows} rows of {self.rows}")
        return found


def _check_format(given: object) -> None:
    if isinstance(given, dict) and given.get("format") != FORMAT:
        raise ValueError(f"format {given.get('format')!r}, this version reads {FORMAT}")


class Gatherer:
    """Takes blocks of rows, and puts small ones together before it looks at them."""

    def __init__(self) -> None:
        self._found = TableStatistics()
        self._untyped = set[str]()
        self._waiting: list[tuple[int, Mapping[str, Cells]]] = []
        self._bytes = 0

    def add(self, rows: int, cells: Mapping[str, Cells | None]) -> None:
        """Takes the cells of `rows` rows; a column that is not there is missing in all of them.

        Args:
          cells: of each column; None for a column that has no type in these rows.

        Raises:
          ValueError: a column is of another type than before.
        """
        self._untyped.update(name for name, column in cells.items() if column is None)
        typed = {name: column for name, column in cells.items() if column is not None}
        if self._waiting and _types(typed) != _types(self._waiting[0][1]):
            self._look()
        self._waiting.append((rows, typed))
        self._bytes += sum(column.nbytes for column in typed.values())
        many = sum(of_block for of_block, _ in self._waiting) >= _MANY_ROWS
        if self._bytes > (_WAITING_BYTES if many else _WIDE_WAITING_BYTES):
            self._look()

    def statistics(self) -> TableStatistics:
        """Of all rows so far."""
        if self._waiting:
            self._look()
        return replace(self._found, untyped=frozenset(self._untyped))

    def _look(self) -> None:
        rows = sum(of_block for of_block, _ in self._waiting)
        blocks = [cells for _, cells in self._waiting]
        together = {name: concat([cells[name] for cells in blocks]) for name in blocks[0]}
        self._found += TableStatistics.of(rows, together)
        self._waiting, self._bytes = [], 0


def _types(cells: Mapping[str, Cells]) -> dict[str, str]:
    return {name: column.kind for name, column in cells.items()}


def statistics_of(
    root: str,
    split: str,
    columns: Iterable[str] | None = None,
    cache_dir: str = CACHE_DIR,
    map_fn: MapFn | None = None,
) -> dict[str, ColumnStatistics]:
    """What is known of the columns of one split, by name; see `table_of`.

    Args:
      columns: names of those that are wanted; None for all

    Raises:
      InfeedError: no such column, or what `table_of` raises.
    """
    found = table_of(root, split, cache_dir, map_fn).columns
    wanted = list(found if columns is None else columns)
    if strangers := [name for name in wanted if name not in found]:
        do = f"choose of {', '.join(map(repr, found))}"
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

    A dataset that carries no statistics, such as one that somebody else wrote, is read once; what was found of each
    shard is kept in `cache_dir`, by the shard's checksum, and never written into the dataset.

    Args:
      places: (folder of a dataset, split) of each: any TFRecords of tf.Examples in Split-* folders
      cache_dir: where statistics and counts of datasets without them are kept
      map_fn: reads the shards of all splits in one call, and counts them in one before; such as `Engine.map`. By
        default threads of this process do, one a core.

    Raises:
      InfeedError: no such split, a file that is damaged, or records that are no tf.Examples.
    """
    with _threads_unless(map_fn) as each:
        cache = str(Path(cache_dir).expanduser())
        manifests = manifests_of((root for root, _ in places), cache, each)
        splits = [_split_in(manifests[root].splits, root, split) for root, split in places]
        stored = [_stored(root, name, split) for (root, name), split in zip(places, splits, strict=True)]
        unread = [
            _Unread.of(root, name, split, cache)
            for (root, name), split, found in zip(places, splits, stored, strict=True)
            if found is None
        ]
        read = iter(each(_read_range, [part for one in unread for part in one.ranges]))
        return [found or unread.pop(0).table(read, cache) for found in stored]


def _split_in(splits: Mapping[str, Split], root: str, split: str) -> Split:
    if split not in splits:
        raise InfeedError(f"there is no split {split!r}", where=root, do=f"choose one of {', '.join(splits)}")
    return splits[split]


@contextmanager
def _threads_unless(map_fn: MapFn | None) -> Iterator[MapFn]:
    if map_fn is not None:
        yield map_fn
        return
    with ThreadPoolExecutor(machine.cpus()) as threads:
        yield threads.map


def stored_statistics(root: str, split: str) -> dict[str, ColumnStatistics] | None:
    """What the writer of a dataset left of one split, by column; None where it carries no statistics."""
    if not files.exists(names.statistics_file(root, split)):
        return None
    found = _stored(root, split, manifest_of(root).splits[split])
    return dict(found.columns) if found else None


def key_of(split: Split) -> str:
    """Another one for every split of other records."""
    lines = [f"{shard.file}\t{shard.records}\t{shard.bytes}\t{shard.crc32c}" for shard in split.shards]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


def _stored(root: str, split: str, shards: Split) -> TableStatistics | None:
    return TableStatistics.read(names.statistics_file(root, split), key_of(shards))


@dataclass(frozen=True)
class _Unread:
    """A split without statistics.

    Attributes:
      kept: by shard's file, what is known of it; None of a shard that is to be read.
      parts: the ranges of shards that are to be read.
    """

    root: str
    split: Split
    kept: Mapping[str, TableStatistics | None]
    parts: Mapping[str, Sequence[ShardRange]]

    @classmethod
    def of(cls, root: str, name: str, split: Split, cache: str) -> _Unread:
        kept = {shard.file: kept_statistics(_key_of_shard(shard), cache) for shard in split.shards}
        parts = {
            shard.file: cut(name, files.join(root, shard.file), shard.bytes, shard.records)
            for shard in split.shards
            if kept[shard.file] is None
        }
        return cls(root, split, kept, parts)

    @property
    def ranges(self) -> list[ShardRange]:
        return [part for parts in self.parts.values() for part in parts]

    def table(self, read: Iterator[TableStatistics], cache: str) -> TableStatistics:
        """Takes what was read of its ranges, and keeps it."""
        total = TableStatistics()
        try:
            for shard in self.split.shards:
                found = self.kept[shard.file]
                if found is None:
                    found = add(itertools.islice(read, len(self.parts[shard.file]))).collapse()
                    keep_statistics(found, _key_of_shard(shard), cache)
                total += found
        except ValueError as error:
            do = "write all shards with one type for each feature"
            raise InfeedError(str(error), where=self.root, do=do) from error
        return total


def _key_of_shard(shard: Shard) -> str:
    return f"{shard.crc32c}-{shard.bytes}-{shard.records}"


def kept_statistics(key: str, cache_dir: str) -> TableStatistics | None:
    """What was kept of the rows that are known by this key; None for nothing, or for a file that is damaged."""
    try:
        return TableStatistics.read(_kept(key, cache_dir), key)
    except InfeedError as error:
        _log.warning("statistics that were kept are damaged, so the rows are read again: %s", error)
        return None


def keep_statistics(found: TableStatistics, key: str, cache_dir: str) -> None:
    """Keeps them, if the folder can be written."""
    with suppress(OSError, InfeedError):
        found.write(_kept(key, cache_dir), key)


def _kept(key: str, cache_dir: str) -> str:
    return files.join(cache_dir, f"statistics-{key}.json")


def _read_range(part: ShardRange) -> TableStatistics:
    try:
        gatherer = Gatherer()
        for block in read_blocks(part.path, part.start, part.stop):
            cells = {name: Cells.of(column) for name, column in decode_columns(block).items()}
            gatherer.add(len(block), {**_untyped(block), **cells})
            progress.count("examples read", len(block))
        return gatherer.statistics().collapse()
    except ValueError as error:
        do = "write tf.Examples, with one type for each feature"
        raise InfeedError(str(error), where=part.place, do=do) from error


def _untyped(block: RecordBlock) -> dict[str, None]:
    """The features that the first record has without a type: who writes a column that holds nothing, writes it so."""
    [first] = block.payloads(np.zeros(1, np.int64))
    return {name: None for name, feature in decode_example(first).features.items() if feature.type is None}
