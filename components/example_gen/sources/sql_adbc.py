"""Databases by ADBC, Arrow's own interface: results come as record batches, with the database's types.

SQLAlchemy writes the statements, in the database's dialect, and has no part in sending them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine.default import DefaultDialect

from infeed.components.example_gen.bad_rows import BadRows
from infeed.components.example_gen.sources import sql_arrow, sql_values
from infeed.components.example_gen.sources.sql_database import Database, RefusedError, Row, Shape, Statement, rows_in

_FILES = ("duckdb", "sqlite")  # databases whose driver takes a path
# SQLite's driver counts a batch in rows and has its types from the first one; others have types, and count bytes.
_BATCH_ROWS = {"sqlite": "adbc.sqlite.query.batch_rows"}
_PROBED_ROWS = 100
_MIDWAY = "settle it in the query, by CAST or WHERE, or leave +adbc out of the URL"


@contextmanager
def open_database(url: sa.URL) -> Iterator[Database]:
    """Connects by the package `adbc_driver_<database>`.

    Raises:
      RefusedError: no such package, or the database refuses.
    """
    name = url.get_backend_name()
    driver = _driver(name)
    uri, options = driver_arguments(url)
    with _refusals(driver):
        connection = driver.connect(uri, autocommit=True, **({"db_kwargs": options} if options else {}))
    with connection:
        yield AdbcDatabase(connection, driver, _dialect(name), _BATCH_ROWS.get(name))


def driver_arguments(url: sa.URL) -> tuple[str, dict[str, str]]:
    """What a driver takes: a path, the URL without `+adbc`, or the URI and the options that the URL's query gives.

    `flightsql+adbc://?uri=grpc://host:31337&username=ann` gives the last.
    """
    name = url.get_backend_name()
    options = {key: values[-1] for key, values in url.normalized_query.items()}
    if "uri" in options:
        return options.pop("uri"), options
    if name in _FILES:
        return url.database or ":memory:", {}
    return url.set(drivername=name).render_as_string(hide_password=False), {}


class AdbcDatabase:
    """A column's type is the database's own."""

    def __init__(self, connection: Any, driver: Any, dialect: sa.Dialect, batch_rows: str | None) -> None:
        self._connection, self._driver, self._dialect, self._batch_rows = connection, driver, dialect, batch_rows

    def look_at(self, statement: Statement, where: str, block_bytes: int) -> Shape:
        """See `Database`."""
        first = self._first_batch(statement, _PROBED_ROWS)
        rows = rows_in(block_bytes, first.num_rows, first.nbytes)
        if self._batch_rows:
            first = self._first_batch(statement, rows)
        columns = sql_arrow.to_plain(first, where).schema
        return Shape(pa.schema([sql_values.checked(field, where) for field in columns]), rows)

    def fetch_row(self, statement: Statement) -> Row:
        """See `Database`."""
        batch, _ = self._batches(self._connection, statement, 1)
        with _refusals(self._driver):
            return sql_arrow.exact_row(batch)

    def read(
        self, statement: Statement, shape: Shape, where: str, bad_rows: BadRows
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """See `Database`."""
        row, size = 1, shape.rows_at_a_time
        for batch in self._batches(self._connection, statement, size):
            for start in range(0, batch.num_rows, size):
                block = batch.slice(start, size)
                yield len(block), sql_arrow.fit(block, shape.columns, where, bad_rows, first_row=row)
                row += len(block)

    def _first_batch(self, statement: Statement, rows: int) -> pa.RecordBatch:
        # A connection of its own, to be closed: PostgreSQL's driver reads the rest before the next statement.
        with self._connection.adbc_clone() as connection:
            return next(self._batches(connection, statement, rows))

    def _batches(self, connection: Any, statement: Statement, rows: int) -> Iterator[pa.RecordBatch]:
        """Ends with a batch of no rows, so that a result without rows has its columns, too."""
        text = str(statement.compile(dialect=self._dialect, compile_kwargs={"literal_binds": True}))
        options = {self._batch_rows: str(rows)} if self._batch_rows else None
        with _refusals(self._driver), connection.cursor(adbc_stmt_kwargs=options) as cursor:
            cursor.execute(text)
            reader = cursor.fetch_record_batch()
            yield from reader
            yield sql_arrow.no_rows(reader.schema)


def _driver(name: str) -> Any:
    try:
        return importlib.import_module(f"adbc_driver_{name}.dbapi")
    except ImportError as error:
        raise RefusedError(error, do=f"pip install adbc-driver-{name}") from None


def _dialect(name: str) -> sa.Dialect:
    """The database's, or plain SQL where SQLAlchemy knows none, without the driver that would go with it."""
    try:
        dialect: Callable[..., sa.Dialect] = sa.make_url(f"{name}://").get_dialect()
    except exc.NoSuchModuleError:
        dialect = DefaultDialect
    return dialect(paramstyle="named")  # others would write % as %%


@contextmanager
def _refusals(driver: Any) -> Iterator[None]:
    try:
        yield
    except driver.Error as error:
        raise RefusedError(error) from None
    except (pa.ArrowException, OSError, OverflowError) as error:  # once rows come
        raise RefusedError(error, do=_MIDWAY) from None
