"""Any database that SQLAlchemy reaches -> record batches, read in ranges of a key by several workers.

The connection string never travels: what travels is the name of the environment variable that holds it, and each worker
looks there itself. Nothing that a database says reaches an error before the secrets are taken out of it.

A column's type is that of the values in the first rows. What does not fit later is a bad row, never a changed value.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from infeed.components.dataset import schemas
from infeed.components.dataset.manifest import Source
from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen import inputs
from infeed.components.example_gen.bad_rows import BadRows
from infeed.components.example_gen.fitting import fit_batches
from infeed.components.example_gen.ingest import Input
from infeed.components.example_gen.sources import sql_statements, sql_values
from infeed.components.example_gen.sources.sql_connection import connect
from infeed.components.example_gen.sources.sql_statements import Bounds, KeyRange, cut_range
from infeed.components.example_gen.sources.sql_values import Row

_PROBED_ROWS, _PROBED_AT_A_TIME = 10_000, 100
_ROWS_AT_A_TIME = 10_000  # at most
_SHOWN = 60  # characters of a query


@dataclass(frozen=True)
class SqlOptions:
    """Which database, and how to share the reading.

    Args:
      connection_env: name of the environment variable that holds the SQLAlchemy URL, on every worker.
      partition_column: a column of numbers or dates, best an indexed key; its range is cut into `partitions` ranges of
        equal width, each read by a statement of its own. None reads by one statement.
      partitions: how many; more than there are workers evens out an uneven key.
    """

    connection_env: str
    partition_column: str | None = None
    partitions: int = 8

    def __post_init__(self) -> None:
        if not self.connection_env.isidentifier():  # not quoted: it may be the secret itself, given by mistake
            raise InfeedError(
                "connection_env is not the name of an environment variable",
                where="SqlOptions",
                do="export the connection string as a variable, and give the variable's name",
            )
        if self.partitions < 1:
            raise InfeedError(f"partitions={self.partitions}", where="SqlOptions", do="give 1 or more")


@dataclass(frozen=True)
class Table:
    """What is known of a query's result, or a table, before it is read.

    Args:
      columns: as its first rows have them.
      rows_at_a_time: how many make a block.
    """

    query: str
    columns: pa.Schema
    rows_at_a_time: int
    bounds: Bounds


@dataclass(frozen=True)
class Part:
    """What one task reads: a table, or a range of its keys that held `rows` rows when it was planned."""

    table: Table
    keys: KeyRange | None = None
    rows: int | None = None

    @property
    def where(self) -> str:
        """As an error names it."""
        shown = _shown(self.table.query)
        return shown if self.keys is None else f"{shown}, {self.keys.column} {self.keys.low} to {self.keys.high}"


def open_sql(queries: inputs.Patterns, options: IngestOptions, sql: SqlOptions) -> Input:
    """Queries, or names of tables, one for each input split.

    Raises:
      InfeedError: no such database, query, table or column, or a column whose type has no place in a tf.Example.
    """
    with connect(sql.connection_env) as connection:
        tables = {split: _look_at(connection, query, sql, options.block_bytes) for split, query in queries.items()}
        schema = schemas.unify([schemas.FileSchema(_shown(one.query), one.columns) for one in tables.values()])
        tasks = inputs.as_tasks(
            (split, part) for split, table in tables.items() for part in plan_parts(connection, table, sql)
        )
    read = partial(read_part, schema=schema, connection_env=sql.connection_env)
    source = Source("sql", _fingerprint((one.query, one.bounds) for one in tables.values()), 0, 0)
    return Input(source, schema, tasks, read)


def fingerprint(queries: inputs.Patterns, sql: SqlOptions) -> str:
    """Changes with a query's text, its number of rows, and the smallest and largest key of the partition column."""
    with connect(sql.connection_env) as connection:
        return _fingerprint(
            (query, sql_statements.find_bounds(connection, query, sql.partition_column)) for query in queries.values()
        )


def plan_parts(connection: sa.Connection, table: Table, sql: SqlOptions) -> Iterator[Part]:
    """One part, or one for each range of keys that holds rows, counted so that a change while reading is noticed."""
    if sql.partition_column is None:
        yield Part(table)
        return
    found = table.bounds
    ranges = cut_range(sql.partition_column, found.low, found.high, sql.partitions) if found.keyed else []
    for one, count in zip(ranges, sql_statements.count_rows(connection, table.query, ranges), strict=True):
        if count:
            yield Part(table, one, count)
    if found.rows > found.keyed:
        yield Part(table, KeyRange(sql.partition_column, None, None, last=False), found.rows - found.keyed)


def read_part(what: Part, schema: pa.Schema, connection_env: str, *, bad_rows: BadRows) -> Iterator[pa.RecordBatch]:
    """The rows of one part.

    Raises:
      InfeedError: a part that holds more or fewer rows than when it was planned.
    """
    row = 1
    for rows in _fetch(what, connection_env):
        batch = sql_values.to_batch(rows, what.table.columns, what.where, bad_rows, first_row=row)
        yield from fit_batches([batch], schema, what.where, bad_rows, first_row=row)
        row += len(rows)
    if what.rows not in (None, row - 1):
        raise InfeedError(
            f"{row - 1} rows, but {what.rows} when the reading began: the table changed meanwhile",
            where=what.where,
            do="read a snapshot or a copy, or leave out partition_column: one statement sees one state",
        )


def _fetch(what: Part, connection_env: str) -> Iterator[list[Row]]:
    size = what.table.rows_at_a_time
    with connect(connection_env) as connection:
        streaming = connection.execution_options(stream_results=True, max_row_buffer=size)
        for rows in streaming.execute(sql_statements.select_rows(what.table.query, what.keys)).partitions(size):
            yield [tuple(row) for row in rows]


def _look_at(connection: sa.Connection, query: str, sql: SqlOptions, block_bytes: int) -> Table:
    names, rows, size = _first_rows(connection, query, block_bytes)
    fields = [
        _field(connection, query, name, values)
        for name, values in zip(names, zip(*rows, strict=True) if rows else ([] for _ in names), strict=True)
    ]
    rows_at_a_time = min(max(1, block_bytes * len(rows) // max(size, 1)), _ROWS_AT_A_TIME)
    bounds = sql_statements.find_bounds(connection, query, sql.partition_column)
    return Table(query, pa.schema(fields), rows_at_a_time, bounds)


def _first_rows(connection: sa.Connection, query: str, block_bytes: int) -> tuple[list[str], list[Row], int]:
    """(names of the columns, some rows, their size in bytes)"""
    rows: list[Row] = []
    size = 0
    with connection.execution_options(stream_results=True).execute(sql_statements.select_rows(query)) as result:
        names = list(result.keys())
        for some in result.partitions(_PROBED_AT_A_TIME):
            rows += [tuple(row) for row in some]
            size += sum(sys.getsizeof(cell) for row in some for cell in row)
            if len(rows) >= _PROBED_ROWS or size > block_bytes:
                break
    return names, rows, size


def _field(connection: sa.Connection, query: str, name: str, values: Sequence[Any]) -> pa.Field:
    field = sql_values.infer_field(name, values, _shown(query))
    if not pa.types.is_null(field.type):
        return field
    later = connection.execute(sql_statements.select_present(query, name)).scalars()  # one value, or none
    return sql_values.infer_field(name, list(later), _shown(query))


def _fingerprint(found: Iterable[tuple[str, Bounds]]) -> str:
    text = "\n".join(f"{query}\t{bounds}" for query, bounds in found)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _shown(query: str) -> str:
    shown = " ".join(query.split())
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
