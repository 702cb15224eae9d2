"""Any database that SQLAlchemy or ADBC reaches -> record batches, read in ranges of a key by several workers.

The connection string never travels: what travels is the name of the environment variable that holds it, and each worker
looks there itself. Nothing that a database says reaches an error before the secrets are taken out of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from infeed.components.dataset import schemas
from infeed.components.dataset.manifest import Source
from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen import inputs
from infeed.components.example_gen.bad_rows import BadRows
from infeed.components.example_gen.fitting import fit_batches
from infeed.components.example_gen.ingest import Input
from infeed.components.example_gen.sources import sql_statements
from infeed.components.example_gen.sources.queries import shown
from infeed.components.example_gen.sources.sql_connection import connect
from infeed.components.example_gen.sources.sql_database import Database, Shape
from infeed.components.example_gen.sources.sql_statements import Bounds, KeyRange, cut_range


@dataclass(frozen=True)
class SqlOptions:
    """Which database, and how to share the reading.

    Args:
      connection_env: name of the environment variable that holds the SQLAlchemy URL, on every worker; its driver is
        `adbc` where the database is to be read by ADBC.
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
    """What is known of a query's result, or a table, before it is read."""

    query: str
    shape: Shape
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
        query = shown(self.table.query)
        return query if self.keys is None else f"{query}, {self.keys.column} {self.keys.low} to {self.keys.high}"


def open_sql(queries: inputs.Patterns, options: IngestOptions, sql: SqlOptions) -> Input:
    """Queries, or names of tables, one for each input split.

    Raises:
      InfeedError: no such database, query, table or column, or a column whose type has no place in a tf.Example.
    """
    with connect(sql.connection_env) as database:
        tables = {split: _look_at(database, query, sql, options.block_bytes) for split, query in queries.items()}
        schema = schemas.unify([schemas.FileSchema(shown(one.query), one.shape.columns) for one in tables.values()])
        tasks = inputs.as_tasks(
            (split, part) for split, table in tables.items() for part in plan_parts(database, table, sql)
        )
    read = partial(read_part, schema=schema, connection_env=sql.connection_env)
    source = Source("sql", _fingerprint((one.query, one.bounds) for one in tables.values()), 0, 0)
    return Input(source, schema, tasks, read)


def fingerprint(queries: inputs.Patterns, sql: SqlOptions) -> str:
    """Changes with a query's text, its number of rows, and the smallest and largest key of the partition column."""
    with connect(sql.connection_env) as database:
        return _fingerprint(
            (query, sql_statements.find_bounds(database, query, sql.partition_column)) for query in queries.values()
        )


def plan_parts(database: Database, table: Table, sql: SqlOptions) -> Iterator[Part]:
    """One part, or one for each range of keys that holds rows, counted so that a change while reading is noticed."""
    if sql.partition_column is None:
        yield Part(table)
        return
    found = table.bounds
    ranges = cut_range(sql.partition_column, found.low, found.high, sql.partitions) if found.keyed else []
    counts = sql_statements.count_rows(database, table.query, ranges)
    if sum(counts) != found.keyed:
        raise InfeedError(
            f"{found.keyed} rows have a key, but its ranges hold {sum(counts)}: the table changed meanwhile, or keys"
            " lie between the numbers that Python has",
            where=f"{shown(table.query)}, partition_column={sql.partition_column!r}",
            do="read a snapshot or a copy, choose another key, or leave out partition_column",
        )
    for one, count in zip(ranges, counts, strict=True):
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
    statement = sql_statements.select_rows(what.table.query, what.keys)
    with connect(connection_env) as database:
        for read, batch in database.read(statement, what.table.shape, what.where, bad_rows):
            yield from fit_batches([batch], schema, what.where, bad_rows, first_row=row)
            row += read
    if what.rows not in (None, row - 1):
        raise InfeedError(
            f"{row - 1} rows, but {what.rows} when the reading began: the table changed meanwhile",
            where=what.where,
            do="read a snapshot or a copy, or leave out partition_column: one statement sees one state",
        )


def _look_at(database: Database, query: str, sql: SqlOptions, block_bytes: int) -> Table:
    where = shown(query)
    shape = database.look_at(sql_statements.select_rows(query), where, block_bytes)
    for place, field in enumerate(shape.columns):
        if pa.types.is_null(field.type):
            present = database.look_at(sql_statements.select_present(query, field.name), where, block_bytes)
            shape = replace(shape, columns=shape.columns.set(place, present.columns.field(0)))
    return Table(query, shape, sql_statements.find_bounds(database, query, sql.partition_column))


def _fingerprint(found: Iterable[tuple[str, Bounds]]) -> str:
    text = "\n".join(f"{query}\t{bounds}" for query, bounds in found)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
