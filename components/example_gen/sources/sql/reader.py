"""Reader of databases. Several workers read ranges of a key.

The connection string is never sent to workers. They receive the name of the environment variable that holds it. Secrets
are removed from every message of a database before it reaches an error.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import quote, quote_plus

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy import exc

from infeed.components.base.checks import at_least, refused
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import schemas
from infeed.components.dataset.manifest import Source
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import BadRows, Batches, OpenedSource, Patterns, conform
from infeed.components.example_gen.sources.sql import adbc, alchemy
from infeed.components.example_gen.sources.sql.database import (
    Bounds,
    Database,
    KeyRange,
    RefusedError,
    Shape,
    count_rows,
    cut_range,
    find_bounds,
    select_present,
    select_rows,
    shown,
)

_HIDDEN = "***"


@dataclass(frozen=True)
class SqlOptions:
    """Options of the SQL reader.

    Attributes:
      connection_env: environment variable that holds the SQLAlchemy URL, on every worker. Its driver is `adbc` to read
        by ADBC.
      partition_column: column of numbers or dates, preferably an indexed key. Its range is divided into `partitions`
        ranges of equal width, each read by its own statement. None reads by one statement.
      partitions: number of ranges. More ranges than workers balance an uneven key.
    """

    connection_env: str
    partition_column: str | None = None
    partitions: int = 8

    def __post_init__(self) -> None:
        if not self.connection_env.isidentifier():  # its value may be a secret given by mistake, so it is not shown
            do = "export the connection string as a variable, and use the name of the variable"
            what = "connection_env is not the name of an environment variable"
            raise refused(self, "connection_env", do, what)
        at_least(self, 1, "partitions")


@dataclass(frozen=True)
class Table:
    """A query or table, with the shape of its result and the bounds of its keys."""

    query: str
    shape: Shape
    bounds: Bounds


@dataclass(frozen=True)
class QueryPart:
    """The part that one task reads: a table, or a range of its keys with the number of rows when planned."""

    table: Table
    keys: KeyRange | None = None
    rows: int | None = None

    @property
    def where(self) -> str:
        query = shown(self.table.query)
        return query if self.keys is None else f"{query}, {self.keys.column} {self.keys.low} to {self.keys.high}"


def open_sql(queries: Patterns, options: IngestOptions, sql: SqlOptions) -> OpenedSource:
    """Open queries or tables, one for each input split. Raise InfeedError if one does not exist or is unsuitable."""
    with connect(sql.connection_env) as database:
        tables = {split: _look_at(database, query, sql, options.block_bytes) for split, query in queries.items()}
        schema = schemas.unify([schemas.FileSchema(shown(one.query), one.shape.columns) for one in tables.values()])
        tasks = inputs.as_tasks(
            (split, part) for split, table in tables.items() for part in plan_parts(database, table, sql)
        )
    read = partial(read_part, schema=schema, connection_env=sql.connection_env)
    source = Source("sql", _fingerprint((one.query, one.bounds) for one in tables.values()), 0, 0)
    return OpenedSource(source, schema, tasks, read)


def fingerprint(queries: Patterns, sql: SqlOptions) -> str:
    """Return a digest of the queries, their numbers of rows, and the bounds of the partition column."""
    with connect(sql.connection_env) as database:
        return _fingerprint((query, find_bounds(database, query, sql.partition_column)) for query in queries.values())


def plan_parts(database: Database, table: Table, sql: SqlOptions) -> Iterator[QueryPart]:
    """Yield one part, or one for each nonempty range of keys, with its row count to detect changes while reading."""
    if sql.partition_column is None:
        yield QueryPart(table)
        return
    found = table.bounds
    ranges = cut_range(sql.partition_column, found.low, found.high, sql.partitions) if found.keyed else []
    counts = count_rows(database, table.query, ranges)
    if sum(counts) != found.keyed:
        raise InfeedError(
            f"{found.keyed} rows have a key, but the ranges hold {sum(counts)}: the table changed meanwhile, or keys"
            " are not exact in Python",
            where=f"{shown(table.query)}, partition_column={sql.partition_column!r}",
            do="read a snapshot or a copy, use another key, or leave out partition_column",
        )
    for one, count in zip(ranges, counts, strict=True):
        if count:
            yield QueryPart(table, one, count)
    if found.rows > found.keyed:
        yield QueryPart(table, KeyRange(sql.partition_column, None, None, last=False), found.rows - found.keyed)


def read_part(what: QueryPart, schema: pa.Schema, connection_env: str, *, bad_rows: BadRows) -> Batches:
    """Yield the rows of one part. Raises InfeedError if the number of rows differs from the plan."""
    row = 1
    statement = select_rows(what.table.query, what.keys)
    with connect(connection_env) as database:
        for read, batch in database.read(statement, what.table.shape, what.where, bad_rows):
            yield from conform([batch], schema, what.where, bad_rows, first_row=row)
            row += read
    if what.rows not in (None, row - 1):
        raise InfeedError(
            f"read {row - 1} rows, but the plan had {what.rows}: the table changed meanwhile",
            where=what.where,
            do="read a snapshot or a copy, or leave out partition_column",
        )


def _look_at(database: Database, query: str, sql: SqlOptions, block_bytes: int) -> Table:
    where = shown(query)
    shape = database.look_at(select_rows(query), where, block_bytes)
    for place, field in enumerate(shape.columns):
        if pa.types.is_null(field.type):  # in the first rows; any row with a value shows the type
            present = database.look_at(select_present(query, field.name), where, block_bytes)
            shape = replace(shape, columns=shape.columns.set(place, present.columns.field(0)))
    return Table(query, shape, find_bounds(database, query, sql.partition_column))


def _fingerprint(found: Iterable[tuple[str, Bounds]]) -> str:
    text = "\n".join(f"{query}\t{bounds}" for query, bounds in found)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@contextmanager
def connect(variable: str) -> Iterator[Database]:
    """Connect to the database whose URL is in this environment variable. Raise InfeedError if it rejects a request."""
    text = os.environ.get(variable)
    if not text:
        do = f"export it on every worker, such as {variable}=postgresql+psycopg://user:password@host/database"
        raise InfeedError(f"the environment variable {variable} is not set", where="connection_env", do=do)
    try:
        url = sa.make_url(text)
    except (exc.ArgumentError, ValueError):
        what = "the value is not a SQLAlchemy URL"
        do = "use dialect+driver://user:password@host:port/database, with / and @ in the password as %2F and %40"
        # Without the cause, here and below, because its text may contain the password.
        raise InfeedError(what, where=f"the environment variable {variable}", do=do) from None
    way = adbc if url.drivername.endswith("+adbc") else alchemy
    try:
        with way.open_database(url) as database:
            yield database
    except RefusedError as refused:
        said = " ".join(without_secrets(str(refused.said), text).split())
        what = f"{type(refused.said).__name__}: {said}"
        raise InfeedError(what, where=f"the database of {variable}", do=refused.do) from None


def without_secrets(text: str, url: str) -> str:
    """Replace the URL and the password in `text`, in any quoting, by asterisks."""
    secrets = {url}
    try:
        parsed = sa.make_url(url)
    except (exc.ArgumentError, ValueError):
        secrets.add(url.rpartition("@")[0].rpartition(":")[2])
    else:
        in_query = [value for values in parsed.normalized_query.values() for value in values]
        secrets |= {str(parsed.password or ""), parsed.render_as_string(hide_password=False), *in_query}
    for secret in sorted(secrets | {quote(one, safe="") for one in secrets} | {quote_plus(one) for one in secrets}):
        text = text.replace(secret, _HIDDEN) if secret else text
    return text
