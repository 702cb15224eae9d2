"""What is asked of a database, whichever way it is reached: statements, for a query or the name of a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import sqlalchemy as sa

from infeed.components.errors import InfeedError
from infeed.components.example_gen.inputs import BadRows

_SHOWN = 60  # characters of a query
Row: TypeAlias = tuple[Any, ...]
Statement: TypeAlias = sa.Select[Any] | sa.TextClause
_ROWS_AT_A_TIME = 10_000  # at most
_EVERYTHING: Any = sa.text("*")
_NO_COLUMN = "rowcount"  # never asked for


@dataclass(frozen=True)
class Shape:
    """What the first rows of a result say of all of them.

    Attributes:
      columns: their names and types, null where no value has come yet.
      rows_at_a_time: how many make a block.
    """

    columns: pa.Schema
    rows_at_a_time: int


class Database(Protocol):
    """A connection; what goes wrong is raised as `RefusedError`."""

    def look_at(self, statement: Statement, where: str, block_bytes: int) -> Shape:
        """Reads a few rows.

        Raises:
          InfeedError: a column, in `where`, whose type has no place in a tf.Example.
        """

    def fetch_row(self, statement: Statement) -> Row:
        """The one row of a result, as Python's own types."""

    def read(
        self, statement: Statement, shape: Shape, where: str, bad_rows: BadRows
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(number of rows read, those of them that fit the shape's columns), block after block."""


class RefusedError(Exception):
    """A database's error, or its driver's. It may quote secrets: only `connect` takes them out."""

    def __init__(self, said: BaseException, do: str = "check the query, and that the database is there") -> None:
        super().__init__(said)
        self.said, self.do = said, do


@dataclass(frozen=True)
class KeyRange:
    """Keys from `low` up to `high`, which is one of them in the `last` range; both None stands for no key at all."""

    column: str
    low: Any
    high: Any
    last: bool


@dataclass(frozen=True)
class Bounds:
    """The smallest and largest key, the number of rows, and that of rows with a key."""

    low: Any
    high: Any
    rows: int
    keyed: int


def is_table(query: str) -> bool:
    """A query has a space in it, the name of a table has none."""
    return len(query.split()) == 1


def shown(query: str) -> str:
    """As an error names it: one line, and no long one."""
    text = " ".join(query.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def rows_in(block_bytes: int, rows: int, size: int) -> int:
    """How many rows fill a block, where so many have this size in bytes."""
    return min(max(1, block_bytes * rows // max(size, 1)), _ROWS_AT_A_TIME)


def select_rows(query: str, keys: KeyRange | None = None) -> Statement:
    """All rows, or those of some keys."""
    if keys is None:
        return sa.select(_EVERYTHING).select_from(_table(query)) if is_table(query) else _text(query)
    source, key = _source(query, keys.column)
    return sa.select(_EVERYTHING).select_from(source).where(_within(key, keys))


def select_present(query: str, column: str) -> Statement:
    """One value of a column that is not null."""
    source, values = _source(query, column)
    return sa.select(values).select_from(source).where(values.is_not(None)).limit(1)


def find_bounds(database: Database, query: str, column: str | None) -> Bounds:
    """Reads the bounds of the keys; without a column there are none, and rows are counted alone."""
    source, key = _source(query, column or _NO_COLUMN)
    if column is None:
        (rows,) = database.fetch_row(sa.select(sa.func.count()).select_from(source))
        return Bounds(None, None, rows, 0)
    bounds = sa.select(sa.func.min(key), sa.func.max(key), sa.func.count(), sa.func.count(key)).select_from(source)
    return Bounds(*database.fetch_row(bounds))


def count_rows(database: Database, query: str, ranges: list[KeyRange]) -> list[int]:
    """Rows in each range, all counted by one statement."""
    if not ranges:
        return []
    source, key = _source(query, ranges[0].column)
    counts = [sa.func.sum(sa.case((_within(key, one), 1), else_=0)) for one in ranges]
    return [int(count) for count in database.fetch_row(sa.select(*counts).select_from(source))]


def cut_range(column: str, low: Any, high: Any, partitions: int) -> list[KeyRange]:
    """Ranges of equal width from `low` to `high`, both included.

    Raises:
      InfeedError: keys that cannot be counted with, such as text.
    """
    try:
        cuts = [_cut(low, high, number, partitions) for number in range(1, partitions)]
    except TypeError:
        raise InfeedError(
            f"keys such as {str(low)[:40]!r} cannot be cut into ranges",
            where=f"partition_column={column!r}",
            do="choose a column of numbers, dates or times, or none",
        ) from None
    bounds = [low, *dict.fromkeys(cut for cut in cuts if cut > low), high]
    return [KeyRange(column, *pair, last=False) for pair in pairwise(bounds[:-1])] + [
        KeyRange(column, bounds[-2], high, last=True)
    ]


def _within(key: sa.ColumnElement[Any], keys: KeyRange) -> sa.ColumnElement[bool]:
    if keys.low is None:
        return key.is_(None)
    return sa.and_(key >= keys.low, key <= keys.high if keys.last else key < keys.high)


def _cut(low: Any, high: Any, number: int, partitions: int) -> Any:
    width = (high - low) * number
    return low + (width // partitions if isinstance(width, int | timedelta) else width / partitions)


def _source(query: str, column: str) -> tuple[sa.FromClause, sa.ColumnElement[Any]]:
    if is_table(query):
        table = _table(query, column)
        return table, table.c[column]
    rows = _text(query).columns(sa.column(column)).subquery("source")
    return rows, rows.c[column]


def _table(name: str, *columns: str) -> sa.TableClause:
    schema, _, table = name.strip().rpartition(".")
    return sa.table(table, *map(sa.column, columns), schema=schema or None)


def _text(query: str) -> sa.TextClause:
    # A colon is the query's own, no parameter of ours; the line ends a comment that nothing else may end.
    return sa.text(query.rstrip().rstrip(";").replace(":", r"\:") + "\n")
