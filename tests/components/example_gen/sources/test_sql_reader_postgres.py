"""A real PostgreSQL server: its types, its keys, its passwords."""

from __future__ import annotations

import datetime as dt
import math
import shutil
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from opened_sources import batches_of

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen import ingest
from infeed.components.example_gen.inputs import BadRows, OpenedSource
from infeed.components.example_gen.sources import sql_reader
from infeed.components.example_gen.sources.sql_reader import SqlOptions

pytestmark = pytest.mark.tfx  # not for TFX's sake: the server takes seconds to start

UTC = dt.timezone.utc
UTC_TIME = "timestamp[us, tz=UTC]"
UUID = "0f9e7a2c-0000-4000-8000-000000000000"


def open_(query: str, options: SqlOptions) -> OpenedSource:
    return sql_reader.open_sql({None: query}, IngestOptions(), options)


def rows_of(opened: OpenedSource, bad_rows: BadRows | None = None) -> Iterator[tuple[Any, ...]]:
    for batch in batches_of(opened, bad_rows):
        yield from zip(*batch.to_pydict().values(), strict=True)


# declared as, a value, its type by SQLAlchemy, by ADBC, and what is read by both
POSTGRES_TYPES = [
    ("boolean", "false", "bool", "bool", False),
    ("smallint", "0", "int64", "int16", 0),
    ("bigint", "-9223372036854775808", "int64", "int64", -(2**63)),
    ("real", "0", "double", "float", 0.0),
    ("double precision", "'NaN'", "double", "double", pytest.approx(float("nan"), nan_ok=True)),
    ("numeric(20, 2)", "1.25", "double", "double", 1.25),
    ("numeric", "'-Infinity'", "double", "double", -math.inf),
    ("text", "''", "string", "string", ""),
    ("varchar(5)", "'grün'", "string", "string", "grün"),
    ("bytea", r"'\x00ff'", "binary", "binary", b"\x00\xff"),
    ("date", "'2020-02-29'", "date32[day]", "date32[day]", dt.date(2020, 2, 29)),
    ("timestamp", "'2020-02-29 12:00'", "timestamp[us]", "timestamp[us]", dt.datetime(2020, 2, 29, 12)),
    ("timestamptz", "'2020-02-29 12:00+02'", UTC_TIME, UTC_TIME, dt.datetime(2020, 2, 29, 10, tzinfo=UTC)),
    ("uuid", f"'{UUID}'", "string", "string", UUID),
    ("jsonb", """'{"a": 0}'""", "string", "string", '{"a": 0}'),
    ("integer[]", "'{0, 1}'", "list<item: int64>", "list<item: int32>", [0, 1]),
    ("numeric[]", "'{0.5}'", "list<item: double>", "list<item: double>", [0.5]),
    ("uuid[]", f"'{{{UUID}}}'", "list<item: string>", "list<item: string>", [UUID]),
    ("text[]", "'{a, \"\"}'", "list<item: string>", "list<item: string>", ["a", ""]),
]


@pytest.fixture
def server(postgres: str) -> Iterator[sa.Connection]:
    """A connection to PostgreSQL, whose tables are gone afterwards."""
    engine = sa.create_engine(postgres, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection
        connection.exec_driver_sql("DROP OWNED BY reader")
        connection.exec_driver_sql("DROP TABLE IF EXISTS t")
    engine.dispose()


@pytest.fixture(params=["psycopg", "adbc"])
def driver(postgres: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The driver by which the variable POSTGRES reaches the server."""
    monkeypatch.setenv("POSTGRES", postgres.replace("psycopg", request.param))
    return str(request.param)


by_adbc = pytest.mark.parametrize("driver", ["adbc"], indirect=True)


def test_postgresqls_types(server: sa.Connection, driver: str) -> None:
    names = [f"c{number}" for number in range(len(POSTGRES_TYPES))]
    declared = ", ".join(f"{name} {line[0]}" for name, line in zip(names, POSTGRES_TYPES, strict=True))
    server.exec_driver_sql(f"CREATE TABLE t ({declared})")
    server.exec_driver_sql(f"INSERT INTO t VALUES ({', '.join(line[1] for line in POSTGRES_TYPES)})")
    server.exec_driver_sql("INSERT INTO t (c0) VALUES (NULL)")
    opened = open_("t", SqlOptions("POSTGRES"))
    types = [str(field.type).replace("Etc/", "") for field in opened.schema]
    assert types == [line[3 if driver == "adbc" else 2] for line in POSTGRES_TYPES]
    values, nulls = rows_of(opened)
    assert list(values) == [line[4] for line in POSTGRES_TYPES]
    assert set(nulls) == {None}


def test_both_drivers_write_the_same_records(
    server: sa.Connection, postgres: str, monkeypatch: pytest.MonkeyPatch, job: Any, multiset: Any
) -> None:
    server.exec_driver_sql(
        """CREATE TABLE t AS SELECT n, n / 7.0 AS numeric, (n / 7.0)::float8 AS double, (n / 7.0)::real AS single,
        NULLIF('row ' || mod(n, 10), 'row 3') AS text, decode(md5(n::text), 'hex') AS bytes, md5(n::text)::uuid AS uuid,
        date '2020-01-01' + n AS day, timestamptz '2020-01-01 00:00:00.123456+01' + n * interval '1 hour' AS time,
        mod(n, 3) = 0 AS third, ARRAY[n, -n] AS pair, ARRAY[n / 4.0] AS quarters, jsonb_build_object('n', n) AS json
        FROM generate_series(1, 2000) n"""
    )
    written = []
    for driver in ("psycopg", "adbc"):
        monkeypatch.setenv("POSTGRES", postgres.replace("psycopg", driver))
        opened = open_("t", SqlOptions("POSTGRES", "n", partitions=3))
        made = job(opened)
        ingest.ingest(opened.tasks, made)
        written.append(multiset(made.root))
        shutil.rmtree(made.root)
    assert sum(len(records) for records in written[0].values()) == 2_000
    assert written[0] == written[1]


@by_adbc
@pytest.mark.usefixtures("driver")
def test_what_adbc_alone_reads(server: sa.Connection) -> None:
    server.exec_driver_sql("CREATE TABLE t (never integer, m money, a integer[])")
    server.exec_driver_sql("INSERT INTO t VALUES (NULL, 1.5, '{{0, 1}, {2, 3}}')")
    opened = open_("t", SqlOptions("POSTGRES"))
    assert str(opened.schema.field("never").type) == "int32"
    assert list(rows_of(opened)) == [(None, 150, [0, 1, 2, 3])]


@by_adbc
@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    ("declared", "value", "says"),
    [
        ("inet", "1.1.1.1", "the database type inet"),
        ("timetz[]", "{12:00+02}", "the database type timetz"),
        ("interval", "1 day", "month_day_nano_interval"),
    ],
)
def test_a_type_without_a_place_is_named_with_its_column(
    server: sa.Connection, declared: str, value: str, says: str
) -> None:
    server.exec_driver_sql(f"CREATE TABLE t AS SELECT '{value}'::{declared} AS v")
    with pytest.raises(InfeedError, match=rf"(?s){says}.*t, column 'v'.*CAST"):
        open_("t", SqlOptions("POSTGRES"))
    assert len(list(rows_of(open_("SELECT v::text FROM t", SqlOptions("POSTGRES"))))) == 1


@by_adbc
@pytest.mark.usefixtures("driver")
def test_infinite_dates_and_times_are_bad_rows(server: sa.Connection) -> None:
    for value in ("date 'infinity'", "timestamp '-infinity'", "ARRAY[timestamptz 'infinity']"):
        server.exec_driver_sql(f"CREATE TABLE t AS SELECT {value} AS v UNION ALL SELECT NULL")
        bad_rows = BadRows("reject", limit=1)
        assert list(rows_of(open_("t", SqlOptions("POSTGRES")), bad_rows)) == [(None,)]
        (row,) = bad_rows.take()
        assert row.reason.startswith("'outside the years 1 to 9999' does not fit type ")
        with pytest.raises(InfeedError, match=r"(?s)OverflowError.*WHERE"):
            open_("SELECT * FROM t", SqlOptions("POSTGRES", "v"))
        server.exec_driver_sql("DROP TABLE t")


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    "key",
    [
        "n * 1000000000000::bigint",
        "12345678901234567890.01 + n",
        "0.1::float8 * n",
        "timestamptz '2020-01-01 12:00+02' + n * interval '1 microsecond'",
    ],
)
def test_ranges_leave_no_key_out(server: sa.Connection, key: str) -> None:
    server.exec_driver_sql(f"CREATE TABLE t AS SELECT {key} AS k, n FROM generate_series(1, 100) n")
    opened = open_("t", SqlOptions("POSTGRES", "k", partitions=3))
    assert len(opened.tasks) == 3
    assert sorted(number for _, number in rows_of(opened)) == list(range(1, 101))


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("query", ["public.t", "SELECT * FROM t WHERE k::text LIKE '20%-%' OR k IS NULL -- 100%"])
def test_postgresql_in_ranges_of_a_date(server: sa.Connection, query: str) -> None:
    server.exec_driver_sql(
        "CREATE TABLE t AS SELECT date '2020-01-01' + mod(n, 300) AS k, n FROM generate_series(1, 5000) n"
    )
    server.exec_driver_sql("UPDATE t SET k = NULL WHERE n = 17")
    opened = open_(query, SqlOptions("POSTGRES", "k", partitions=3))
    assert sum(task.payload.rows for task in opened.tasks) == 5_000
    assert len(opened.tasks) == 4
    assert sorted(number for _, number in rows_of(opened)) == list(range(1, 5_001))


@pytest.mark.parametrize("driver", ["psycopg", "adbc"])
def test_a_wrong_password_is_not_shown(postgres: str, driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = (
        sa.make_url(postgres)
        .set(drivername=f"postgresql+{driver}", password="hunter2")
        .render_as_string(hide_password=False)
    )
    monkeypatch.setenv("POSTGRES", wrong)
    with pytest.raises(InfeedError, match="password authentication failed") as caught:
        open_("t", SqlOptions("POSTGRES"))
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
