"""Which rows of a batch go on."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.inputs import BadRows
from infeed.components.example_gen.spills import choose_columns, choose_rows

BATCH = pa.RecordBatch.from_pydict(
    {
        "x": [1, 2, 3, 4],
        "text": pa.array(["a", None, "", "b"]),
        "number": pa.array([0.5, None, np.nan, np.inf]),
        "list": pa.array([[1], [], None, [2, 3]]),
        "nothing": pa.nulls(4),
    }
)


def chosen(bad_rows: BadRows | None = None, **options: Any) -> list[int]:
    bad_rows = bad_rows or BadRows("reject", 9)
    rows: list[int] = choose_rows(BATCH, IngestOptions(**options), "in.csv", bad_rows).column("x").to_pylist()
    return rows


@pytest.mark.parametrize(
    ("required", "rows"),
    [
        ((), [1, 2, 3, 4]),
        (("text",), [1, 3, 4]),  # an empty text is a value
        (("number",), [1]),
        (("list",), [1, 4]),
        (("text", "list"), [1, 4]),
        (("nothing",), []),
    ],
)
def test_a_row_without_a_required_value_is_a_bad_row(required: tuple[str, ...], rows: list[int]) -> None:
    bad_rows = BadRows("reject", 9)
    assert chosen(bad_rows, required=required) == rows
    assert len(bad_rows.take()) == 4 - len(rows)


def test_a_bad_row_is_told_with_its_file_column_and_cells() -> None:
    bad_rows = BadRows("reject", 9)
    chosen(bad_rows, required=("text",))
    (row,) = bad_rows.take()
    assert (row.file, row.column, json.loads(row.text)["x"]) == ("in.csv", "text", 2)
    with pytest.raises(InfeedError, match="column 'text'"):
        chosen(BadRows(), required=("text",))
    with pytest.raises(InfeedError, match="more than 1 bad rows"):
        chosen(BadRows("reject", 1), required=("number",))


def test_rows_that_the_filter_leaves_out_need_no_value() -> None:
    bad_rows = BadRows("reject", 9)
    assert chosen(bad_rows, filter="x > 2", required=("text", "number")) == []
    assert [json.loads(row.text)["x"] for row in bad_rows.take()] == [3, 4]


def test_columns_are_written_in_the_order_that_they_are_named_in() -> None:
    assert choose_columns(BATCH, IngestOptions(columns=("text", "x"))).schema.names == ["text", "x"]
    with pytest.raises(InfeedError, match="'y'"):
        choose_columns(BATCH, IngestOptions(columns=("y",)))
    with pytest.raises(InfeedError, match="'y'"):
        chosen(required=("y",))


@pytest.mark.parametrize(
    ("labeled", "rows"),
    [(("text",), [1, 4]), (("number",), [1]), (("list",), [1, 2, 4]), (("nothing",), []), (("x", "list"), [1, 2, 4])],
)
def test_rows_without_a_label_are_left_out_and_are_no_bad_rows(labeled: tuple[str, ...], rows: list[int]) -> None:
    assert chosen(BadRows("fail"), labeled=labeled) == rows


def test_dropped_columns_are_not_written() -> None:
    options = IngestOptions(drop=("list", "x"))
    assert choose_columns(BATCH, options).schema.names == ["text", "number", "nothing"]
    chosen_and_dropped = IngestOptions(columns=("text", "x"), drop=("x",))
    assert choose_columns(BATCH, chosen_and_dropped).schema.names == ["text"]


@pytest.mark.parametrize(("drop", "word"), [(("txt",), "'txt'"), (tuple(BATCH.schema.names), "every column")])
def test_columns_that_cannot_be_dropped_are_reported(drop: tuple[str, ...], word: str) -> None:
    with pytest.raises(InfeedError, match=word) as raised:
        choose_columns(BATCH, IngestOptions(drop=drop))
    assert "drop" in raised.value.where
