"""Connections to databases, by SQLAlchemy or by ADBC.

ADBC is Arrow's database interface. Its results are record batches with the database's types, and SQLAlchemy only
compiles the statements in the database's dialect. Drivers return types without an Arrow equivalent as extension types:
a name, and text or bytes as storage.

| Extension type | here |
|---|---|
| numeric, of any precision | float64 |
| uuid | string |
| json | string |
| any other | rejected, because the meaning of its bytes is unknown |
"""

from __future__ import annotations

import importlib
import json
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol, TypeAlias
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy import exc, pool
from sqlalchemy.engine.default import DefaultDialect

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import example_types, schemas
from infeed.components.example_gen.inputs import BadRows, Batches
from infeed.components.example_gen.sources.python_rows import UNFIT, cast, checked, infer_field, to_batch

Row: TypeAlias = tuple[Any, ...]
Statement: TypeAlias = sa.Select[Any] | sa.TextClause
_ROWS_AT_A_TIME = 10_000  # maximum
_PROBED_ROWS, _PROBED_AT_A_TIME = 10_000, 100
REMEDY = "cast it in the query: CAST(column AS type)"
_NO_TIME = "outside the years 1 to 9999"  # shown for times that Python cannot represent
_FILES = ("duckdb", "sqlite")  # databases whose driver expects a path
# SQLite's driver limits batches by rows and takes types from the first batch. Others have types and limit bytes.
_BATCH_ROWS = {"sqlite": "adbc.sqlite.query.batch_rows"}
_PROBED_BY_ADBC = 100
_MIDWAY = "handle the value in the query by CAST or WHERE, or remove +adbc from the URL"


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


def rows_in(block_bytes: int, rows: int, size: int) -> int:
    """Return the number of rows of a block, given the size in bytes of `rows` rows."""
    return min(max(1, block_bytes * rows // max(size, 1)), _ROWS_AT_A_TIME)


@contextmanager
def open_by_sqlalchemy(url: sa.URL) -> Iterator[Database]:
    """Connect to a database. Raise RefusedError if there is no such driver or database, or it rejects a request."""
    try:
        engine = sa.create_engine(url, poolclass=pool.NullPool, hide_parameters=True)
    except exc.NoSuchModuleError as error:
        raise RefusedError(error, do="check the part of the URL before ://") from None
    except ImportError as error:
        raise RefusedError(error, do=f"pip install {error.name}, or use another driver in the URL") from None
    except (exc.ArgumentError, ValueError, TypeError) as error:
        raise RefusedError(error, do="check the URL") from None
    try:
        with engine.connect() as connection:
            yield SqlAlchemyDatabase(connection)
    except (exc.SQLAlchemyError, sqlite3.Warning) as error:  # the second for two statements, before Python 3.12
        raise RefusedError(getattr(error, "orig", None) or error) from None  # its context may contain the URL
    finally:
        engine.dispose()


class SqlAlchemyDatabase:
    """Database connected by SQLAlchemy.

    The first rows determine column types. Later rows that do not match are bad rows.
    """

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def look_at(self, statement: Statement, where: str, block_bytes: int) -> Shape:
        rows, size = list[Row](), 0
        with self._connection.execution_options(stream_results=True).execute(statement) as result:
            names = list(result.keys())
            for some in result.partitions(_PROBED_AT_A_TIME):
                rows += [tuple(row) for row in some]
                size += sum(sys.getsizeof(cell) for row in some for cell in row)
                if len(rows) >= _PROBED_ROWS or size > block_bytes:
                    break
        columns = zip(*rows, strict=True) if rows else ([] for _ in names)
        fields = [infer_field(name, values, where, REMEDY) for name, values in zip(names, columns, strict=True)]
        return Shape(pa.schema(fields), rows_in(block_bytes, len(rows), size))

    def fetch_row(self, statement: Statement) -> Row:
        return tuple(self._connection.execute(statement).one())

    def read(
        self, statement: Statement, shape: Shape, where: str, bad_rows: BadRows
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        row, size = 1, shape.rows_at_a_time
        streaming = self._connection.execution_options(stream_results=True, max_row_buffer=size)
        for some in streaming.execute(statement).partitions(size):
            rows = [tuple(one) for one in some]
            yield len(rows), to_batch(rows, shape.columns, where, bad_rows, first_row=row)
            row += len(rows)


@contextmanager
def open_by_adbc(url: sa.URL) -> Iterator[Database]:
    """Connect by the package `adbc_driver_<database>`.

    Raise RefusedError if it is missing or the database rejects it.
    """
    name = url.get_backend_name()
    try:
        driver = importlib.import_module(f"adbc_driver_{name}.dbapi")
    except ImportError as error:
        raise RefusedError(error, do=f"pip install adbc-driver-{name}") from None
    try:
        dialect: Callable[..., sa.Dialect] = sa.make_url(f"{name}://").get_dialect()
    except exc.NoSuchModuleError:
        dialect = DefaultDialect  # plain SQL
    plain = dialect(paramstyle="named")  # other paramstyles would write % as %%
    uri, options = driver_arguments(url)
    with _driver_errors(driver):
        connection = driver.connect(uri, autocommit=True, **({"db_kwargs": options} if options else {}))
    with connection:
        yield AdbcDatabase(connection, driver, plain, _BATCH_ROWS.get(name))


def driver_arguments(url: sa.URL) -> tuple[str, dict[str, str]]:
    """Return the driver's URI and options: a path, the URL without `+adbc`, or the parameters of the URL's query.

    For example, `flightsql+adbc://?uri=grpc://host:31337&username=ann` has a URI and options in its query.
    """
    name = url.get_backend_name()
    options = {key: values[-1] for key, values in url.normalized_query.items()}
    if "uri" in options:
        return options.pop("uri"), options
    if name in _FILES:
        return url.database or ":memory:", {}
    return url.set(drivername=name).render_as_string(hide_password=False), {}


class AdbcDatabase:
    """A database connected by ADBC. Columns have the types of the database."""

    def __init__(self, connection: Any, driver: Any, dialect: sa.Dialect, batch_rows: str | None) -> None:
        self._connection, self._driver, self._dialect, self._batch_rows = connection, driver, dialect, batch_rows

    def look_at(self, statement: Statement, where: str, block_bytes: int) -> Shape:
        first = self._first_batch(statement, _PROBED_BY_ADBC)
        rows = rows_in(block_bytes, first.num_rows, first.nbytes)
        if self._batch_rows:
            first = self._first_batch(statement, rows)
        columns = to_plain(first, where).schema
        return Shape(pa.schema([checked(field, where, REMEDY) for field in columns]), rows)

    def fetch_row(self, statement: Statement) -> Row:
        batch, _ = self._batches(self._connection, statement, 1)
        with _driver_errors(self._driver):  # a date or time may be outside the years 1 to 9999
            named = zip(map(_extension, batch.schema), batch.columns, strict=True)
            row = [(name, column[0].as_py()) for name, column in named]
        # Ranges between rounded keys could miss rows, so numerics are Decimal.
        return tuple(Decimal(value) if name == "numeric" and value is not None else value for name, value in row)

    def read(
        self, statement: Statement, shape: Shape, where: str, bad_rows: BadRows
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        row, size = 1, shape.rows_at_a_time
        for batch in self._batches(self._connection, statement, size):
            for start in range(0, batch.num_rows, size):
                block = batch.slice(start, size)
                yield len(block), fit(block, shape.columns, where, bad_rows, first_row=row)
                row += len(block)

    def _first_batch(self, statement: Statement, rows: int) -> pa.RecordBatch:
        # Close a separate connection: PostgreSQL's driver would read the rest before the next statement.
        with self._connection.adbc_clone() as connection:
            return next(self._batches(connection, statement, rows))

    def _batches(self, connection: Any, statement: Statement, rows: int) -> Batches:
        """Yield the batches of a result, and then an empty batch, so that an empty result has columns."""
        text = str(statement.compile(dialect=self._dialect, compile_kwargs={"literal_binds": True}))
        options = {self._batch_rows: str(rows)} if self._batch_rows else None
        with _driver_errors(self._driver), connection.cursor(adbc_stmt_kwargs=options) as cursor:
            cursor.execute(text)
            reader = cursor.fetch_record_batch()
            yield from reader
            yield pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in reader.schema.types], schema=reader.schema)


@contextmanager
def _driver_errors(driver: Any) -> Iterator[None]:
    try:
        yield
    except driver.Error as error:
        raise RefusedError(error) from None
    except (pa.ArrowException, OSError, OverflowError) as error:  # raised while reading rows
        raise RefusedError(error, do=_MIDWAY) from None


def to_plain(batch: pa.RecordBatch, where: str) -> pa.RecordBatch:
    """Flatten structs, decode dictionaries, and convert extension types by the table above, or raise InfeedError."""
    flat = schemas.flatten_batch(batch)
    arrays = [_convert_extension(field, column, where) for field, column in zip(flat.schema, flat.columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=flat.schema.names)


def fit(batch: pa.RecordBatch, schema: pa.Schema, where: str, bad_rows: BadRows, first_row: int) -> pa.RecordBatch:
    """Cast a batch to `schema`, and report and drop rows with values that cannot be cast."""
    plain = to_plain(batch, where)
    try:
        for items in map(example_types.items_of, plain.columns):
            if pa.types.is_timestamp(items.type):
                items = items.cast(pa.timestamp("us", items.type.tz), safe=False)
            if pa.types.is_temporal(items.type):
                pc.min_max(items).as_py()  # OverflowError beyond Python's range, such as PostgreSQL's infinity
        arrays = [cast(column, field.type) for field, column in zip(schema, plain.columns, strict=True)]
    except UNFIT:
        rows = list(zip(*([_shown(cell) for cell in column] for column in plain.columns), strict=True))
        return to_batch(rows, schema, where, bad_rows, first_row)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _convert_extension(field: pa.Field, column: pa.Array, where: str) -> pa.Array:
    name = _extension(field.type.value_field if example_types.is_list(field.type) else field)
    if name is None:
        return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    if name not in _CONVERSIONS:
        what = f"a tf.Example cannot hold the database type {name}"
        raise InfeedError(what, where=f"{where}, column {field.name!r}", do=REMEDY)
    return _CONVERSIONS[name](column)


def _extension(field: pa.Field) -> str | None:
    """Return the name of an extension type, from the metadata if this pyarrow does not know the type."""
    if isinstance(field.type, pa.BaseExtensionType):
        return str(getattr(field.type, "type_name", field.type.extension_name))
    metadata: Mapping[bytes, bytes] = field.metadata or {}
    name = metadata.get(b"ARROW:extension:name", b"").decode()
    if name == "arrow.opaque":
        return str(json.loads(metadata[b"ARROW:extension:metadata"])["type_name"])
    return name or None


def _items_as(item: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    return lambda column: column.cast(pa.list_(item) if example_types.is_list(column.type) else item)


def _uuids(column: pa.Array) -> pa.Array:
    text = pa.list_(pa.string()) if example_types.is_list(column.type) else pa.string()
    return pa.array([_uuid(value) for value in column.to_pylist()], text)


def _uuid(value: Any) -> Any:
    if isinstance(value, list):
        return [_uuid(one) for one in value]
    return str(UUID(bytes=value)) if isinstance(value, bytes) else value and str(value)


_CONVERSIONS = {
    "numeric": _items_as(pa.float64()),
    "arrow.json": _items_as(pa.string()),
    "arrow.uuid": _uuids,
    "uuid": _uuids,
}


def _shown(cell: pa.Scalar) -> Any:
    try:
        return cell.as_py()
    except OverflowError:
        return _NO_TIME
