"""Databases by SQLAlchemy and any of its drivers. `python_rows` converts the rows to record batches."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy import exc, pool

from infeed.components.example_gen.inputs import BadRows
from infeed.components.example_gen.sources.python_rows import infer_field, to_batch
from infeed.components.example_gen.sources.sql.database import Database, RefusedError, Row, Shape, Statement, rows_in

_PROBED_ROWS, _PROBED_AT_A_TIME = 10_000, 100
REMEDY = "cast it in the query: CAST(column AS type)"


@contextmanager
def open_database(url: sa.URL) -> Iterator[Database]:
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
