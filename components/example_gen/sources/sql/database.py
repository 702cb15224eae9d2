"""The interface of a database connection, and the SQL statements for a query or a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import sqlalchemy as sa

from infeed.components.base.errors import InfeedError
from infeed.components.example_gen.inputs import BadRows

_SHOWN = 60  # characters of a query
Row: TypeAlias = tuple[Any, ...]
Statement: TypeAlias = sa.Select[Any] | sa.TextClause
_ROWS_AT_A_TIME = 10_000  # maximum
_EVERYTHING: Any = sa.text("*")
_NO_COLUMN = "rowcount"  # never selected


@dataclass(frozen=True)
class Shape:
    """Properties of a result, inferred from its first rows."""

    columns: pa.Schema  # the type is null if all values so far are null
    rows_at_a_time: int


class Database(Protocol):
    """A connection. Errors of the database are raised as `RefusedError`."""

    def look_at(self, statement: Statement, where: str, block_bytes: int) -> Shape:
        """Infer the shape of a result from its first rows.

        Raise InfeedError if a tf.Example does not support a column.
        """

    def fetch_row(self, statement: Statement) -> Row:
        """Return the only row of a result, as Python values."""

    def read(
        self, statement: Statement, shape: Shape, where: str, bad_rows: BadRows
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield (number of rows read, rows that fit the shape) for each block."""


class RefusedError(Exception):
    """Error of a database or its driver. It may contain secrets, which only `connect` removes."""

    def __init__(self, said: BaseException, do: str = "check the query, and that the database is running") -> None:
        super().__init__(said)
        self.said, self.do = said, do


@dataclass(frozen=True)
class KeyRange:
    """Keys from `low` to `high`. The `last` range includes `high`. Both None selects rows without a key."""

    column: str
    low: Any
    high: Any
    last: bool


@dataclass(frozen=True)
class Bounds:
    """The smallest and largest key, the number of rows, and the number of rows with a key."""

    low: Any
    high: Any
    rows: int
    keyed: int


def is_table(query: str) -> bool:
    """Return whether the text is the name of a table, which has no spaces, rather than a query."""
    return len(query.split()) == 1


def shown(query: str) -> str:
    """Abbreviate a query to one line, for errors."""
    text = " ".join(query.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def rows_in(block_bytes: int, rows: int, size: int) -> int:
    """Return the number of rows of a block, given the size in bytes of `rows` rows."""
    return min(max(1, block_bytes * rows // max(size, 1)), _ROWS_AT_A_TIME)


def select_rows(query: str, keys: KeyRange | None = None) -> Statement:
    """Select all rows, or the rows of a range of keys."""
    if keys is None:
        return sa.select(_EVERYTHING).select_from(_table(query)) if is_table(query) else _text(query)
    source, key = _source(query, keys.column)
    return sa.select(_EVERYTHING).select_from(source).where(_within(key, keys))


def select_present(query: str, column: str) -> Statement:
    """Select one non-null value of a column."""
    source, values = _source(query, column)
    return sa.select(values).select_from(source).where(values.is_not(None)).limit(1)


def find_bounds(database: Database, query: str, column: str | None) -> Bounds:
    """Query the bounds of the keys. Without a column, only count rows."""
    source, key = _source(query, column or _NO_COLUMN)
    if column is None:
        (rows,) = database.fetch_row(sa.select(sa.func.count()).select_from(source))
        return Bounds(None, None, rows, 0)
    bounds = sa.select(sa.func.min(key), sa.func.max(key), sa.func.count(), sa.func.count(key)).select_from(source)
    return Bounds(*database.fetch_row(bounds))


def count_rows(database: Database, query: str, ranges: list[KeyRange]) -> list[int]:
    """Count the rows of each range, by one statement."""
    if not ranges:
        return []
    source, key = _source(query, ranges[0].column)
    counts = [sa.func.sum(sa.case((_within(key, one), 1), else_=0)) for one in ranges]
    return [int(count) for count in database.fetch_row(sa.select(*counts).select_from(source))]


def cut_range(column: str, low: Any, high: Any, partitions: int) -> list[KeyRange]:
    """Divide `low` to `high`, inclusive, into ranges of equal width. Raise InfeedError for keys without arithmetic."""
    try:
        widths = [(high - low) * number for number in range(1, partitions)]
        steps = [one // partitions if isinstance(one, int | timedelta) else one / partitions for one in widths]
        cuts = [low + step for step in steps]
    except TypeError:
        what = f"keys such as {str(low)[:40]!r} cannot be divided into ranges"
        do = "use a column of numbers, dates or times, or leave it out"
        raise InfeedError(what, where=f"partition_column={column!r}", do=do) from None
    bounds = [low, *dict.fromkeys(cut for cut in cuts if cut > low), high]
    *others, last = [KeyRange(column, *pair, last=False) for pair in pairwise(bounds)]
    return [*others, replace(last, last=True)]


def _within(key: sa.ColumnElement[Any], keys: KeyRange) -> sa.ColumnElement[bool]:
    if keys.low is None:
        return key.is_(None)
    return sa.and_(key >= keys.low, key <= keys.high if keys.last else key < keys.high)


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
    # Escape colons, because the query has no parameters. The newline ends a trailing comment.
    return sa.text(query.rstrip().rstrip(";").replace(":", r"\:") + "\n")
