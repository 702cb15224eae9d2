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
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any
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
from infeed.components.example_gen.sources.sql_database import (
    Database,
    RefusedError,
    Shape,
    Statement,
    open_by_adbc,
    open_by_sqlalchemy,
)

_SHOWN = 60  # characters of a query
_EVERYTHING: Any = sa.text("*")
_NO_COLUMN = "rowcount"  # never selected
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
    open_database = open_by_adbc if url.drivername.endswith("+adbc") else open_by_sqlalchemy
    try:
        with open_database(url) as database:
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


def is_table(query: str) -> bool:
    """Return whether the text is the name of a table, which has no spaces, rather than a query."""
    return len(query.split()) == 1


def shown(query: str) -> str:
    """Abbreviate a query to one line, for errors."""
    text = " ".join(query.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


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
