from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.inputs import BadRow, BadRows, to_jsonl
from infeed.components.example_gen.local import ingest

ROW = BadRow("a.csv", 7, "fare", "not a number: 'x'", "1,x,é")


def test_the_first_bad_row_is_an_error_unless_asked_otherwise() -> None:
    with pytest.raises(InfeedError, match=r"(?s)not a number: 'x'.*a\.csv, line 7, column 'fare'.*on_bad_row='reject'"):
        BadRows().report(ROW)


def test_rejected_rows_are_kept_until_taken() -> None:
    bad_rows = BadRows("reject", limit=3)
    bad_rows.report(ROW)
    bad_rows.report(ROW)
    assert bad_rows.take() == (ROW, ROW)
    assert bad_rows.take() == ()


def test_more_than_the_limit_is_an_error() -> None:
    bad_rows = BadRows("reject", limit=1)
    bad_rows.report(ROW)
    bad_rows.take()
    with pytest.raises(InfeedError, match=r"(?s)more than 1 bad rows.*the last at a\.csv, line 7"):
        bad_rows.report(ROW)


def test_the_reject_file_has_one_object_a_line() -> None:
    whole = BadRow("b.csv", None, None, "cut short", "")
    lines = to_jsonl([ROW, whole]).decode().splitlines()
    assert json.loads(lines[0]) == {
        "file": "a.csv",
        "line": 7,
        "column": "fare",
        "reason": "not a number: 'x'",
        "text": "1,x,é",
    }
    assert json.loads(lines[1])["line"] is None
    assert whole.where == "b.csv"


@pytest.mark.parametrize(
    ("name", "content", "line", "reason"),
    [
        ("a.csv", b"a,b\n1,caf\xe9\n", "line 2", "utf-8"),
        ("a.jsonl", b'not json\n{"a": \n', "line 1", "JSON"),
    ],
)
def test_an_input_whose_rows_are_all_rejected_names_the_first_and_why(
    tmp_path: Path, name: str, content: bytes, line: str, reason: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InfeedError, match=rf"(?i)every row is rejected.*{reason}") as raised:
        ingest(tmp_path / name, tmp_path / "out", options=IngestOptions(on_bad_row="reject"))
    assert raised.value.where.endswith(f"{name}, {line}")


def test_a_parquet_file_whose_rows_are_all_rejected_names_the_column_and_not_the_filter(tmp_path: Path) -> None:
    pq.write_table(pa.table({"tags": [[1, None]] * 5}), tmp_path / "a.parquet")
    with pytest.raises(InfeedError, match="every row is rejected") as raised:
        ingest(tmp_path / "a.parquet", tmp_path / "out", options=IngestOptions(on_bad_row="reject"))
    assert raised.value.where.endswith("a.parquet, line 1, column 'tags'")
    assert "filter" not in raised.value.do
