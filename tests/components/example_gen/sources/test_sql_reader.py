"""SQLite stands for every database, by SQLAlchemy and by ADBC; `test_sql_reader_postgres` is for what a server does.

Covers `sql_database`, too.
"""

from __future__ import annotations

import datetime as dt
import sqlite3
import traceback
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from opened_sources import batches_of

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.inputs import BadRows, OpenedSource
from infeed.components.example_gen.sources import sql_reader
from infeed.components.example_gen.sources.sql_database import driver_arguments
from infeed.components.example_gen.sources.sql_reader import SqlOptions, connect, without_secrets

UTC = dt.timezone.utc
ROWS = [(number if number % 10 else None, 0.0, "" if number % 2 else "grün", b"\x00\xff") for number in range(1_000)]
Execute = Callable[..., None]
by_sqlalchemy = pytest.mark.parametrize("sqlite", ["sqlite"], indirect=True)
by_adbc = pytest.mark.parametrize("sqlite", ["sqlite+adbc"], indirect=True)


@pytest.fixture(params=["sqlite", "sqlite+adbc"])
def sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Execute:
    """Executes statements in the database that the variable SQLITE names, to be read one way and the other."""
    monkeypatch.setenv("SQLITE", f"{request.param}:///{tmp_path}/a.db")

    def execute(statement: str, rows: list[tuple[Any, ...]] | None = None) -> None:
        with sqlite3.connect(tmp_path / "a.db") as connection:
            connection.execute("PRAGMA synchronous=OFF")
            connection.executemany(statement, rows) if rows else connection.execute(statement)

    return execute


@pytest.fixture
def trips(sqlite: Execute) -> Execute:
    sqlite("CREATE TABLE trips (id INTEGER, fare REAL, place TEXT, raw BLOB)")
    sqlite("INSERT INTO trips VALUES (?, ?, ?, ?)", ROWS)
    return sqlite


def open_(query: str, options: SqlOptions, **ingest: Any) -> OpenedSource:
    return sql_reader.open_sql({None: query}, IngestOptions(**ingest), options)


def rows_of(opened: OpenedSource, bad_rows: BadRows | None = None) -> Iterator[tuple[Any, ...]]:
    for batch in batches_of(opened, bad_rows):
        yield from zip(*batch.to_pydict().values(), strict=True)


@pytest.mark.usefixtures("trips")
@pytest.mark.parametrize("query", ["trips", "SELECT * FROM trips", "SELECT * FROM trips WHERE place <> ':x';"])
def test_one_statement_reads_every_value_in_order(query: str) -> None:
    opened = open_(query, SqlOptions("SQLITE"))
    assert opened.schema.names == ["id", "fare", "place", "raw"]
    assert len(opened.tasks) == 1
    assert list(rows_of(opened)) == ROWS


@pytest.mark.usefixtures("trips")
@pytest.mark.parametrize("query", ["trips", "SELECT * FROM trips"])
def test_ranges_of_a_key_read_every_row_once(query: str) -> None:
    opened = open_(query, SqlOptions("SQLITE", "id", partitions=4))
    assert [task.payload.rows for task in opened.tasks] == [225, 225, 224, 226, 100]  # the last without a key
    assert sorted(rows_of(opened), key=str) == sorted(ROWS, key=str)


@pytest.mark.parametrize(
    ("low", "high", "cuts"),
    [
        (0, 9, [0, 3, 6, 9]),
        (7, 7, [7, 7]),
        (0, 1, [0, 1]),
        (0.0, 1.5, [0.0, 0.5, 1.0, 1.5]),
        (Decimal(0), Decimal(3), [0, 1, 2, 3]),
        (dt.date(2020, 1, 1), dt.date(2020, 1, 4), [dt.date(2020, 1, day) for day in (1, 2, 3, 4)]),
        (dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, 3), [dt.datetime(2020, 1, 1, hour) for hour in range(4)]),
    ],
)
def test_a_range_is_cut_into_equal_parts(low: Any, high: Any, cuts: list[Any]) -> None:
    ranges = sql_reader.cut_range("k", low, high, 3)
    assert [one.low for one in ranges] + [ranges[-1].high] == cuts
    assert [one.last for one in ranges] == [False] * (len(ranges) - 1) + [True]


@pytest.mark.usefixtures("trips")
def test_queries_with_other_columns_are_read_as_one() -> None:
    queries = {"train": "SELECT id, place FROM trips LIMIT 2", "eval": "SELECT fare, id FROM trips LIMIT 1"}
    opened = sql_reader.open_sql(queries, IngestOptions(), SqlOptions("SQLITE"))
    assert [task.split for task in opened.tasks] == ["train", "eval"]
    assert opened.schema.names == ["id", "place", "fare"]
    assert list(rows_of(opened)) == [(None, "grün", None), (1, "", None), (None, None, 0.0)]


@pytest.mark.usefixtures("trips")
def test_no_rows_are_no_rows_and_names_that_stand_twice_are_refused() -> None:
    assert list(rows_of(open_("SELECT * FROM trips WHERE id < 0", SqlOptions("SQLITE", "id")))) == []
    with pytest.raises(InfeedError, match="'id' occurs twice"):
        open_("SELECT id, id FROM trips", SqlOptions("SQLITE"))


def test_text_cannot_be_cut_into_ranges() -> None:
    with pytest.raises(InfeedError, match=r"(?s)'apple' cannot be divided.*partition_column='name'"):
        sql_reader.cut_range("name", "apple", "pear", 3)


def test_a_table_that_changes_meanwhile_is_noticed(trips: Execute) -> None:
    opened = open_("trips", SqlOptions("SQLITE", "id", partitions=2))
    trips("INSERT INTO trips VALUES (5, 0, '', NULL)")
    with pytest.raises(InfeedError, match=r"(?s)451 rows, but the plan had 450.*trips, id 1 to 500"):
        list(rows_of(opened))


def test_rows_come_in_blocks_that_fit(trips: Execute) -> None:
    (task,) = (opened := open_("trips", SqlOptions("SQLITE"), block_bytes=20_000)).tasks
    blocks = list(opened.read(task.payload, bad_rows=BadRows()))
    assert 1 < len(blocks) < 50
    assert max(block.nbytes for block in blocks) < 20_000
    assert sum(block.num_rows for block in blocks) == 1_000


@by_sqlalchemy
def test_a_column_that_begins_with_nulls_finds_its_type(sqlite: Execute) -> None:
    sqlite("CREATE TABLE t (x, never)")
    sqlite("INSERT INTO t VALUES (?, ?)", [(None, None)] * 10_500 + [("late", None)])
    opened = open_("t", SqlOptions("SQLITE"))
    assert [str(field.type) for field in opened.schema] == ["string", "null"]
    assert list(rows_of(opened))[-1] == ("late", None)


@by_sqlalchemy
def test_a_value_of_another_type_is_a_bad_row_never_another_value(sqlite: Execute) -> None:
    sqlite("CREATE TABLE t (n)")
    sqlite(
        "INSERT INTO t VALUES (?)",
        [(number,) for number in range(10_000)] + [(1.5,), ("x",), (None,), ("007",), (7.0,)],
    )
    opened = open_("t", SqlOptions("SQLITE"))
    with pytest.raises(InfeedError, match=r"(?s)1\.5 does not fit type int64.*t, line 10001, column 'n'"):
        list(rows_of(opened))
    bad_rows = BadRows("reject", limit=3)
    assert list(rows_of(opened, bad_rows))[-2:] == [(None,), (7,)]
    assert [row.text for row in bad_rows.take()] == ["(1.5,)", "('x',)", "('007',)"]


@by_sqlalchemy
@pytest.mark.parametrize("rows", [[(1,), ("x",)], [(b"x",), (1,)]])
def test_a_column_of_mixed_values_is_refused(sqlite: Execute, rows: list[tuple[Any, ...]]) -> None:
    sqlite("CREATE TABLE t (n)")
    sqlite("INSERT INTO t VALUES (?)", rows)
    with pytest.raises(InfeedError, match=r"(?s)mixed or unsupported types.*t, column 'n'.*CAST"):
        open_("t", SqlOptions("SQLITE"))


@by_adbc
@pytest.mark.parametrize(
    ("rows", "read"),
    [
        ([(1,), (0.5,)], [1.0, 0.5]),
        ([(1,), ("x",)], ["1", "x"]),
        ([(b"\xff",), (1,), ("",)], [b"\xff", b"1", b""]),
        ([(None,), ("x",)], [None, "x"]),
    ],
)
def test_adbcs_driver_finds_a_type_that_holds_all_of_the_first_rows(
    sqlite: Execute, rows: list[tuple[Any, ...]], read: list[Any]
) -> None:
    sqlite("CREATE TABLE t (n)")
    sqlite("INSERT INTO t VALUES (?)", rows)
    assert [value for (value,) in rows_of(open_("t", SqlOptions("SQLITE")))] == read


@by_adbc
def test_a_value_that_does_not_fit_adbcs_type_ends_the_run(sqlite: Execute) -> None:
    sqlite("CREATE TABLE t (n)")
    sqlite("INSERT INTO t VALUES (?)", [(number,) for number in range(10_000)] + [(1.5,)])
    opened = open_("t", SqlOptions("SQLITE"))
    with pytest.raises(InfeedError, match=r"(?s)column 0: expected INT64 but got DOUBLE.*CAST.*remove \+adbc"):
        list(rows_of(opened, BadRows("reject", limit=2)))
    assert len(list(rows_of(open_("SELECT CAST(n AS REAL) AS n FROM t", SqlOptions("SQLITE"))))) == 10_001


@by_adbc
def test_a_range_that_adbc_finds_another_type_in_is_read_as_planned(sqlite: Execute) -> None:
    sqlite("CREATE TABLE t (k INTEGER, n)")
    sqlite("INSERT INTO t VALUES (?, ?)", [(key, {201: 1.5}.get(key, key)) for key in range(403)])
    opened = open_("SELECT * FROM t ORDER BY k", SqlOptions("SQLITE", "k", partitions=2), block_bytes=2_000)
    with pytest.raises(InfeedError, match=r"(?s)1\.5 does not fit type int64.*k 201 to 402.*column 'n'"):
        list(rows_of(opened))
    bad_rows = BadRows("reject", limit=2)
    read = list(rows_of(opened, bad_rows))
    assert (len(read), read[-1]) == (402, (402, 402))
    assert [row.text for row in bad_rows.take()] == ["(201, 1.5)"]


def test_the_fingerprint_changes_with_rows_keys_and_query(trips: Execute) -> None:
    seen = set()
    for query, column in (("trips", None), ("trips", "id"), ("SELECT * FROM trips", None)):
        seen.add(sql_reader.fingerprint({None: query}, SqlOptions("SQLITE", column)))
    assert sql_reader.fingerprint({None: "trips"}, SqlOptions("SQLITE")) in seen
    trips("INSERT INTO trips VALUES (5000, 0, '', NULL)")
    seen.add(sql_reader.fingerprint({None: "trips"}, SqlOptions("SQLITE")))
    trips("UPDATE trips SET id = 6000 WHERE id = 5000")
    seen.add(sql_reader.fingerprint({None: "trips"}, SqlOptions("SQLITE", "id")))
    assert len(seen) == 5


@pytest.mark.usefixtures("trips")
@pytest.mark.parametrize(
    ("query", "options", "says"),
    [
        ("nowhere", SqlOptions("SQLITE"), r"(?s)no such table: nowhere.*SQLITE"),
        ("SELECT FROM trips", SqlOptions("SQLITE"), r"syntax error"),
        ("trips", SqlOptions("UNSET"), r"(?s)UNSET is not set.*export it"),
        ("trips", SqlOptions("SQLITE", "far"), r"no such column: trips\.far"),
    ],
)
def test_what_the_database_refuses(query: str, options: SqlOptions, says: str) -> None:
    with pytest.raises(InfeedError, match=says):
        open_(query, options)


@by_sqlalchemy
@pytest.mark.usefixtures("trips")
def test_two_statements_in_a_query_are_an_error() -> None:
    with pytest.raises(InfeedError, match="one statement at a time") as raised:
        open_("SELECT * FROM trips; SELECT 1", SqlOptions("SQLITE"))
    assert raised.value.where == "the database of SQLITE"


URL = "postgresql+psycopg://ann:p%40ss%2Fword@localhost:1/db?sslpassword=t0ken"


def told(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything that a user or a log would see of a connection that fails."""
    monkeypatch.setenv("DATABASE", url)
    with pytest.raises(InfeedError) as caught, connect("DATABASE") as database:
        database.fetch_row(sa.text("SELECT 1"))
    return "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "text",
    [
        URL,
        "password p@ss/word is wrong",
        "password p%40ss%2Fword is wrong",
        "postgresql+psycopg://ann:p%40ss%2Fword@localhost:1/db?sslpassword=t0ken is down",
        "t0ken is worth nothing",
    ],
)
def test_no_secret_stays_in_a_text(text: str) -> None:
    hidden = without_secrets(text, URL)
    assert "***" in hidden
    for secret in ("p@ss", "p%40ss", "t0ken"):
        assert secret not in hidden


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (URL.replace("?sslpassword=t0ken", ""), "Connection refused"),
        ("sqlite+nothing://ann:p%40ss@host/db", "plugin"),
        ("nonsense p@ss", "not a SQLAlchemy URL"),
        ("postgresql+psycopg://ann:p%40ss@host:port/db", "not a SQLAlchemy URL"),
        ("oracle+oracledb://ann:p%40ss@host/db", "pip install oracledb"),
        (URL.replace("+psycopg", "+adbc").replace("?sslpassword=t0ken", ""), "Connection refused"),
        ("postgresql+adbc://ann:p%40ss@host/db?nothing=p%40ss", "invalid URI query parameter"),
        ("oracle+adbc://ann:p%40ss@host/db", "pip install adbc-driver-oracle"),
    ],
)
def test_what_goes_wrong_is_told_without_the_secret(url: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = told(url, monkeypatch)
    assert says in shown
    assert "DATABASE" in shown
    assert "p@ss" not in shown
    assert "p%40ss" not in shown


def test_a_secret_given_for_a_name_is_not_quoted() -> None:
    with pytest.raises(InfeedError, match="not the name of an environment variable") as caught:
        SqlOptions(URL)
    assert "p%40ss" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "uri", "options"),
    [
        ("sqlite+adbc:///a.db", "a.db", {}),
        ("sqlite+adbc:////data/a b.db", "/data/a b.db", {}),
        ("duckdb+adbc://", ":memory:", {}),
        ("postgresql+adbc://ann:p%40ss@/db?host=%2Frun", "postgresql://ann:p%40ss@/db?host=%2Frun", {}),
        ("flightsql+adbc://?uri=grpc://host:1&username=ann", "grpc://host:1", {"username": "ann"}),
    ],
)
def test_what_adbcs_driver_is_given(url: str, uri: str, options: dict[str, str]) -> None:
    assert driver_arguments(sa.make_url(url)) == (uri, options)
