"""Statistics of all columns of some rows: gathered from blocks in bounded memory, added up, stored, and found again.

`statistics_of` is the one way to a dataset's, whoever wrote it: beside its manifest, else from a cache, else read.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from infeed.components import progress, schema
from infeed.components.annotations import Count
from infeed.components.dataset import files, names
from infeed.components.dataset.decode import decode_example
from infeed.components.dataset.decode_columns import decode_columns
from infeed.components.dataset.manifest import Shard, Split
from infeed.components.dataset.reading import manifest_of
from infeed.components.dataset.record_blocks import RecordBlock, read_blocks
from infeed.components.dataset.records import read_records
from infeed.components.dataset.statistics.cells import Cells, concat
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics, StoredColumn
from infeed.components.errors import InfeedError

FORMAT = 1
_WAITING_BYTES = 16 << 20  # of cells
_WIDE_WAITING_BYTES = 64 << 20  # where that is few rows: to look at a column takes some 0.3 ms, however few it has
_MANY_ROWS = 4_096
CACHE_DIR = "~/.cache/tfx-infeed"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableStatistics:
    """Rows, and what is known of each column that occurs in them.

    Attributes:
      rows: how many
      columns: by name, sorted; each over all of the rows
    """

    rows: int = 0
    columns: Mapping[str, ColumnStatistics] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", dict(sorted(self.columns.items())))

    @classmethod
    def of(cls, rows: int, cells: Mapping[str, Cells]) -> TableStatistics:
        """Of the cells of each column, all of `rows` rows."""
        return cls(rows, {name: ColumnStatistics.of_cells(name, of_column) for name, of_column in cells.items()})

    def __add__(self, other: TableStatistics) -> TableStatistics:
        """A column that one of them lacks is missing in all of its rows.

        Raises:
          ValueError: a column is of one type here and of another there.
        """
        known = {**self.columns, **other.columns}
        columns = {name: self._column(one) + other._column(one) for name, one in known.items()}
        return TableStatistics(self.rows + other.rows, columns)

    def _column(self, known: ColumnStatistics) -> ColumnStatistics:
        return self.columns.get(known.name) or ColumnStatistics.none(known.name, known.type, self.rows)

    def collapse(self) -> TableStatistics:
        """In a form whose size does not grow with the rows."""
        return TableStatistics(self.rows, {name: column.collapse() for name, column in self.columns.items()})

    def write(self, path: str, key: str) -> None:
        """Writes it, whole or not at all.

        Args:
          key: what the rows are known by
        """
        columns = [column.plain() for column in self.columns.values()]
        plain = {"format": FORMAT, "key": key, "rows": self.rows, "columns": columns}
        files.write_bytes(path, json.dumps(plain).encode())

    @classmethod
    def read(cls, path: str, key: str) -> TableStatistics | None:
        """What was written; None where there is no such file, or it is of other rows.

        Raises:
          InfeedError: the file was cut short, tampered with, or written by a later version.
        """
        try:
            stored = schema.read_json(_Stored, files.read_bytes(path), _check_format)
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

    def table(self) -> TableStatistics:
        found = TableStatistics(self.rows, {column.name: column.statistics() for column in self.columns})
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
        self._waiting: list[tuple[int, Mapping[str, Cells]]] = []
        self._bytes = 0

    def add(self, rows: int, cells: Mapping[str, Cells]) -> None:
        """Takes the cells of `rows` rows; a column that is not there is missing in all of them.

        Raises:
          ValueError: a column is of another type than before.
        """
        if self._waiting and _types(cells) != _types(self._waiting[0][1]):
            self._look()
        self._waiting.append((rows, cells))
        self._bytes += sum(column.nbytes for column in cells.values())
        many = sum(of_block for of_block, _ in self._waiting) >= _MANY_ROWS
        if self._bytes > (_WAITING_BYTES if many else _WIDE_WAITING_BYTES):
            self._look()

    def statistics(self) -> TableStatistics:
        """Of all rows so far."""
        if self._waiting:
            self._look()
        return self._found

    def _look(self) -> None:
        rows = sum(of_block for of_block, _ in self._waiting)
        blocks = [cells for _, cells in self._waiting]
        together = {name: concat([cells[name] for cells in blocks]) for name in blocks[0]}
        self._found += TableStatistics.of(rows, together)
        self._waiting, self._bytes = [], 0


def _types(cells: Mapping[str, Cells]) -> dict[str, str]:
    return {name: column.kind for name, column in cells.items()}


def statistics_of(
    root: str, split: str, columns: Iterable[str] | None = None, cache_dir: str = CACHE_DIR
) -> dict[str, ColumnStatistics]:
    """What is known of the columns of one split, by name.

    A dataset that carries no statistics, such as one that somebody else wrote, is read once, on all cores; what was
    found of each shard is kept in `cache_dir`, by the shard's checksum, and never written into the dataset.

    Args:
      root: folder of the dataset: any TFRecords of tf.Examples in Split-* folders
      columns: names of those that are wanted; None for all
      cache_dir: where statistics and counts of datasets without them are kept

    Raises:
      InfeedError: no such split or column, a file that is damaged, or records that are no tf.Examples.
    """
    cache = str(Path(cache_dir).expanduser())
    splits = manifest_of(root, cache).splits
    if split not in splits:
        raise InfeedError(f"there is no split {split!r}", where=root, do=f"choose one of {', '.join(splits)}")
    found = _stored(root, split, splits[split]) or _read(root, splits[split], cache)
    wanted = list(found.columns if columns is None else columns)
    if strangers := [name for name in wanted if name not in found.columns]:
        do = f"choose of {', '.join(map(repr, found.columns))}"
        raise InfeedError(f"there is no column {strangers[0]!r}", where=names.split_dir(root, split), do=do)
    return {name: found.columns[name] for name in wanted}


def stored_statistics(root: str, split: str) -> dict[str, ColumnStatistics] | None:
    """What the writer of a dataset left of one split, by column; None where it carries no statistics."""
    if not files.exists(names.statistics_file(root, split)):
        return None
    found = _stored(root, split, manifest_of(root).splits[split])
    return dict(found.columns) if found else None


def names_without_values(root: str, split: str, cache_dir: str = CACHE_DIR) -> list[str]:
    """Features that the split's first record names, and gives neither values nor a type.

    So ExampleGens write a column that holds nothing in all of the data: every record has its name.
    """
    for shard in manifest_of(root, str(Path(cache_dir).expanduser())).splits[split].shards:
        for record in read_records(files.join(root, shard.file)):
            return [name for name, feature in decode_example(record).features.items() if feature.type is None]
    return []


def key_of(split: Split) -> str:
    """Another one for every split of other records."""
    lines = [f"{shard.file}\t{shard.records}\t{shard.bytes}\t{shard.crc32c}" for shard in split.shards]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


def _stored(root: str, split: str, shards: Split) -> TableStatistics | None:
    return TableStatistics.read(names.statistics_file(root, split), key_of(shards))


def _read(root: str, split: Split, cache: str) -> TableStatistics:
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        parts = list(threads.map(partial(_statistics_of_shard, root=root, cache=cache), split.shards))
    try:
        return add(parts)
    except ValueError as error:
        raise InfeedError(str(error), where=root, do="write all shards with one type for each feature") from error


def _statistics_of_shard(shard: Shard, root: str, cache: str) -> TableStatistics:
    key = f"{shard.crc32c}-{shard.bytes}-{shard.records}"
    found = kept_statistics(key, cache)
    if found is None:
        found = _read_shard(files.join(root, shard.file)).collapse()
        keep_statistics(found, key, cache)
    return found


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


def _read_shard(path: str) -> TableStatistics:
    try:
        gatherer = Gatherer()
        for block in read_blocks(path):
            gatherer.add(len(block), _cells(block))
            progress.count("examples read", len(block))
        return gatherer.statistics()
    except ValueError as error:
        raise InfeedError(str(error), where=path, do="write tf.Examples, with one type for each feature") from error


def _cells(block: RecordBlock) -> dict[str, Cells]:
    columns = decode_columns(block).items()
    return {name: cells for name, column in columns if (cells := Cells.of(column)) is not None}
