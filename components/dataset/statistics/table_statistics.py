"""Statistics of all columns of some rows: gathered from blocks in bounded memory, added up and stored."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from infeed.components import schema
from infeed.components.annotations import Count
from infeed.components.dataset import files
from infeed.components.dataset.statistics.cells import Cells, concat
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics, StoredColumn
from infeed.components.errors import InfeedError

FORMAT = 1
_WAITING_BYTES = 16 << 20  # of cells
_WIDE_WAITING_BYTES = 64 << 20  # where that is few rows: to look at a column takes some 0.3 ms, however few it has
_MANY_ROWS = 4_096


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
