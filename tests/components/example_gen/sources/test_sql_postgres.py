"""A real PostgreSQL server: its types, its keys, its passwords."""

from __future__ import annotations

import datetime as dt
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen.bad_rows import BadRows
from infeed.components.example_gen.ingest import Input
from infeed.components.example_gen.sources import sql
from infeed.components.example_gen.sources.sql import SqlOptions

pytestmark = pytest.mark.tfx  # not for TFX's sake: the server takes seconds to start

UTC = dt.timezone.utc


def open_(query: str, options: SqlOptions) -> Input:
    return sql.open_sql({None: query}, IngestOptions(), options)


def rows_of(opened: Input) -> Iterator[tuple[Any, ...]]:
    for task in opened.tasks:
        for batch in opened.read(task.what, bad_rows=BadRows()):
            yield from zip(*batch.to_pydict().values(), strict=True)


POSTGRES_TYPES = [
    ("boolean", "false", "bool", False),
    ("smallint", "0", "int64", 0),
    ("bigint", "-9223372036854775808", "int64", -(2**63)),
    ("real", "0", "double", 0.0),
    ("double precision", "'NaN'::float8", "double", pytest.approx(float("nan"), nan_ok=True)),
    ("numeric(20, 2)", "1.25", "double", 1.25),
    ("text", "''", "string", ""),
    ("varchar(5)", "'grün'", "string", "grün"),
    ("bytea", r"'\x00ff'", "binary", b"\x00\xff"),
    ("date", "'2020-02-29'", "date32[day]", dt.date(2020, 2, 29)),
    ("timestamp", "'2020-02-29 12:00'", "timestamp[us]", dt.datetime(2020, 2, 29, 12)),
    ("timestamptz", "'2020-02-29 12:00+02'", "timestamp[us, tz=UTC]", dt.datetime(2020, 2, 29, 10, tzinfo=UTC)),
    ("uuid", "'0f9e7a2c-0000-4000-8000-000000000000'", "string", "0f9e7a2c-0000-4000-8000-000000000000"),
    ("jsonb", """'{"a": 0}'""", "string", '{"a": 0}'),
    ("integer[]", "'{0, 1}'", "list<item: int64>", [0, 1]),
]


@pytest.fixture
def server(postgres: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[sa.Connection]:
    """A connection to PostgreSQL; the variable POSTGRES names it, and its tables are gone afterwards."""
    monkeypatch.setenv("POSTGRES", postgres)
    engine = sa.create_engine(postgres, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection
        connection.exec_driver_sql("DROP OWNED BY reader")
        connection.exec_driver_sql("DROP TABLE IF EXISTS t")
    engine.dispose()


def test_postgresqls_types(server: sa.Connection) -> None:
    names = [f"c{number}" for number in range(len(POSTGRES_TYPES))]
    declared = ", ".join(f"{name} {line[0]}" for name, line in zip(names, POSTGRES_TYPES, strict=True))
    server.exec_driver_sql(f"CREATE TABLE t ({declared})")
    server.exec_driver_sql(f"INSERT INTO t VALUES ({', '.join(line[1] for line in POSTGRES_TYPES)})")
    server.exec_driver_sql("INSERT INTO t (c0) VALUES (NULL)")
    opened = open_("t", SqlOptions("POSTGRES"))
    assert [str(field.type).replace("Etc/", "") for field in opened.schema] == [line[2] for line in POSTGRES_TYPES]
    values, nulls = rows_of(opened)
    assert list(values) == [line[3] for line in POSTGRES_TYPES]
    assert set(nulls) == {None}


@pytest.mark.parametrize("query", ["public.t", "SELECT * FROM t WHERE k::text LIKE '20%-%' OR k IS NULL -- 100%"])
def test_postgresql_in_ranges_of_a_date(server: sa.Connection, query: str) -> None:
    server.exec_driver_sql(
        "CREATE TABLE t AS SELECT date '2020-01-01' + mod(n, 300) AS k, n FROM generate_series(1, 5000) n"
    )
    server.exec_driver_sql("UPDATE t SET k = NULL WHERE n = 17")
    opened = open_(query, SqlOptions("POSTGRES", "k", partitions=3))
    assert sum(task.what.rows for task in opened.tasks) == 5_000
    assert len(opened.tasks) == 4
    assert sorted(number for _, number in rows_of(opened)) == list(range(1, 5_001))


def test_a_wrong_password_is_not_shown(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = sa.make_url(postgres).set(password="hunter2").render_as_string(hide_password=False)
    monkeypatch.setenv("POSTGRES", wrong)
    with pytest.raises(InfeedError, match="password authentication failed") as caught:
        open_("t", SqlOptions("POSTGRES"))
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
