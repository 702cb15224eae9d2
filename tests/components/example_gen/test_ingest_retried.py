"""Tasks of ingest whose file cannot be read for a while."""

from __future__ import annotations

import gzip
import io
import logging
from collections.abc import Callable
from pathlib import Path

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from infeed.components.base.errors import ReadFailedError
from infeed.components.dataset import files, read_errors
from infeed.components.example_gen import ingest as steps
from infeed.components.example_gen.local import ingest
from infeed.components.example_gen.sources import columnar

ROWS = [{"a": row, "b": f"text {row}"} for row in range(200)]
CSV = "".join(["a,b\n", *(f"{row['a']},{row['b']}\n" for row in ROWS)]).encode()
Fail = Callable[[str, int], None]


def _parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), sink)
    return sink.getvalue()


def _avro(**how: int) -> bytes:
    sink = io.BytesIO()
    fields = [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]
    fastavro.writer(sink, {"type": "record", "name": "row", "fields": fields}, ROWS, **how)
    return sink.getvalue()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_errors, "PAUSE", 0.0)


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child process of a reader has an environment and a client of its own."""
    for function in ("batches_apart", "call_apart"):
        monkeypatch.setattr(columnar, function, lambda read, *given, where, memory: read(*given))


@pytest.fixture
def failing_tasks(s3_failing: Fail, monkeypatch: pytest.MonkeyPatch) -> Fail:
    """As `s3_failing`, from the first task on: the source is opened before."""
    spill, wanted = steps.spill_task, dict[str, int]()

    def spill_task(task: steps.Task, job: steps.Job) -> steps.SpilledTask:
        while wanted:
            s3_failing(*wanted.popitem())
        return spill(task, job)

    monkeypatch.setattr(steps, "spill_task", spill_task)
    return wanted.__setitem__


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", CSV),
        ("t.csv.gz", gzip.compress(CSV)),
        ("t.parquet", _parquet()),
        ("t.avro", _avro()),
    ],
    ids=["csv", "gzip", "parquet", "avro"],
)
def test_a_task_survives_two_errors_of_the_store_with_the_same_bytes(
    name: str, content: bytes, s3: str, failing_tasks: Fail, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files.write_bytes(f"{s3}/{name}", content)
    expected = ingest(f"{s3}/{name}", tmp_path / "once", workers=1)
    failing_tasks(f"{s3}/{name}", 2)
    with caplog.at_level(logging.WARNING):
        written = ingest(f"{s3}/{name}", tmp_path / "again", workers=1)
    assert written.splits == expected.splits
    told = [message for message in caplog.messages if "attempt" in message]
    assert [f"attempt {number} of 3" in message for number, message in enumerate(told, 1)] == [True, True]
    assert all(f"{s3}/{name}" in message for message in told)


def test_columns_and_blocks_of_an_object_come_in_few_large_ranges(
    s3: str, s3_requests: list[str], tmp_path: Path
) -> None:
    table = pa.table({f"f{column}": np.random.default_rng(column).random(200_000) for column in range(10)})
    with files.open_output(f"{s3}/t.parquet") as file:
        pq.write_table(table, file)
    s3_requests.clear()
    ingest(f"{s3}/t.parquet", tmp_path / "parquet", workers=1)
    assert len([request for request in s3_requests if request.startswith("GET bytes")]) <= 4  # two of the footer
    files.write_bytes(f"{s3}/t.avro", _avro(sync_interval=100))
    s3_requests.clear()
    ingest(f"{s3}/t.avro", tmp_path / "avro", workers=1)
    assert len([request for request in s3_requests if request.startswith("GET bytes")]) <= 4  # of 40 blocks


def test_a_store_that_stays_away_is_an_error_that_names_the_file(s3: str, failing_tasks: Fail, tmp_path: Path) -> None:
    files.write_bytes(f"{s3}/t.csv", CSV)
    failing_tasks(f"{s3}/t.csv", 1_000)
    with pytest.raises(ReadFailedError, match="3 attempts") as raised:
        ingest(f"{s3}/t.csv", tmp_path / "out", workers=1)
    assert raised.value.where == f"{s3}/t.csv"
    assert not (tmp_path / "out").exists()
