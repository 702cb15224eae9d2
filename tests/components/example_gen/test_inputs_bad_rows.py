from __future__ import annotations

import json

import pytest

from infeed.components.errors import InfeedError
from infeed.components.example_gen.inputs import BadRow, BadRows, to_jsonl

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
