"""SqlExampleGen in a pipeline, on a real PostgreSQL server."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from infeed import components
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.manifest import Manifest

pytestmark = pytest.mark.tfx


@pytest.fixture
def table(postgres: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[sa.Connection]:
    """A table `t` of 1,000 rows in the database that the variable TRIPS_DB names."""
    monkeypatch.setenv("TRIPS_DB", postgres)
    engine = sa.create_engine(postgres, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE t AS SELECT n AS id, 0.0::float8 AS fare, '' AS place FROM generate_series(1, 1000) n"
        )
        yield connection
        connection.exec_driver_sql("DROP TABLE t")
    engine.dispose()


def run(root: Path) -> list[Any]:
    """The artifacts that there are after one more run."""
    from ml_metadata import metadata_store
    from tfx.orchestration import metadata, pipeline
    from tfx.orchestration.local.local_dag_runner import LocalDagRunner

    gen = components.SqlExampleGen("TRIPS_DB", table="t", partition_column="id", partitions=3)
    connection = metadata.sqlite_metadata_connection_config(f"{root}/metadata.sqlite")
    LocalDagRunner().run(pipeline.Pipeline("p", str(root), connection, [gen], enable_cache=True))
    return metadata_store.MetadataStore(connection).get_artifacts_by_type("Examples")


def written_under(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())


def assert_nowhere(url: sa.URL, written: bytes, logged: str) -> None:
    """Neither the URL nor its password is there."""
    for secret in (str(url.password), url.render_as_string(hide_password=False), "s3cret%2Fof%40us"):
        assert secret.encode() not in written
        assert secret not in logged


def test_a_run_is_cached_until_the_table_grows_and_no_password_is_left_anywhere(
    tmp_path: Path, table: sa.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    url = table.engine.url
    caplog.set_level(logging.INFO)
    (first,) = run(tmp_path)
    assert Manifest.read(first.uri).rows_read == 1_000
    assert Manifest.read(first.uri).schema[1].nulls == 0
    assert len(run(tmp_path)) == 1  # took the first run's
    table.exec_driver_sql("INSERT INTO t VALUES (1001, 0, '')")
    second = run(tmp_path)[-1]
    assert Manifest.read(second.uri).rows_read == 1_001

    assert b"TRIPS_DB" in written_under(tmp_path)
    assert_nowhere(url, written_under(tmp_path), caplog.text)


def test_what_is_read_is_said_once() -> None:
    for given in ({}, {"query": "SELECT 1", "table": "t"}):
        with pytest.raises(InfeedError, match=r"\d of query, table and input_config"):
            components.SqlExampleGen("TRIPS_DB", **given)


def test_several_queries_are_a_split_each_also_by_adbc(
    tmp_path: Path,
    table: sa.Connection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    execute: Any,
) -> None:
    from tfx.proto import example_gen_pb2

    caplog.set_level(logging.INFO)
    by_adbc = table.engine.url.set(drivername="postgresql+adbc")
    monkeypatch.setenv("TRIPS_DB", by_adbc.render_as_string(hide_password=False))
    queries = {"train": "SELECT * FROM t WHERE id <= 900", "test": "SELECT * FROM t WHERE id > 900"}
    splits = [example_gen_pb2.Input.Split(name=name, pattern=query) for name, query in queries.items()]
    made = components.SqlExampleGen(
        "TRIPS_DB", input_config=example_gen_pb2.Input(splits=splits), partition_column="id"
    )
    artifact = execute(made, tmp_path / "out")
    assert {name: split.records for name, split in Manifest.read(artifact.uri).splits.items()} == {
        "train": 900,
        "test": 100,
    }
    assert_nowhere(by_adbc, written_under(tmp_path), caplog.text)


def test_a_function_is_read_anew_when_its_version_changes(tmp_path: Path, execute: Any) -> None:
    from infeed.components.example_gen.databases import Driver

    (tmp_path / "version").write_text("1")
    (tmp_path / "mine.py").write_text(
        "def rows(part, parts):\n    return [{'a': n} for n in range(part, 90, parts)]\n"
        f"rows.version = lambda: open('{tmp_path}/version').read()\n"
    )
    gen = components.ArrowExampleGen(reader=f"{tmp_path}/mine.py:rows", source={"parts": 4})
    assert gen.id == "ArrowExampleGen"

    def fingerprint() -> Any:
        return Driver(None).resolve_exec_properties(dict(gen.exec_properties), None, None)["input_fingerprint"]

    first = fingerprint()
    assert fingerprint() == first
    (tmp_path / "version").write_text("2")
    assert fingerprint() != first
    execute(gen, tmp_path / "out")
    manifest = Manifest.read(f"{tmp_path}/out")
    assert (manifest.rows_read, manifest.source.version) == (90, "2")
