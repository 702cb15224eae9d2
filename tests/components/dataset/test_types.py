"""docs/types.md, line by line."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import example_types
from infeed.components.dataset.encode import encode_examples

PAGE = Path(__file__).parents[3] / "docs" / "types.md"
WORDS = {
    **{name: getattr(pa, name) for name in dir(pa) if not name.startswith("_")},
    **{name: getattr(dt, name) for name in ("date", "datetime", "time", "timedelta", "timezone")},
    "Decimal": Decimal,
    "float16": lambda *value: np.float16(*value) if value else pa.float16(),
    "inf": float("inf"),
    "dictionary": pa.dictionary,
}
KINDS = {"int64": "int", "float": "float", "bytes": "bytes"}


def lines(columns_of_table: int) -> list[list[str]]:
    """The cells of the page's tables that have so many columns and begin with a type."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if "|" in line]
    return [row for row in rows if len(row) == columns_of_table and row[0].startswith("`")]


def python(cell: str) -> Any:
    """The value between a cell's backticks."""
    return eval(cell.split("`")[1], {}, WORDS)


def column_of(type_cell: str, value_cell: str) -> pa.Array:
    return pa.array([python(value_cell), None], python(type_cell))


@pytest.mark.parametrize(("arrow", "value", "kind", "holds"), lines(4), ids=lambda cell: cell[:40])
def test_a_type_that_has_a_place(arrow: str, value: str, kind: str, holds: str) -> None:
    column = column_of(arrow, value)
    assert example_types.kind_of(column.type) == KINDS[kind]
    expected = [] if holds.startswith("nothing") else python(f"`[{holds.split('`')[1]}]`")
    found = example_types.to_values(example_types.items_of(column)).to_pylist()
    assert found[: len(expected)] == expected
    assert set(found[len(expected) :]) <= {None}
    assert len(encode_examples(pa.RecordBatch.from_arrays([column], ["x"]))) == 2


@pytest.mark.parametrize(("arrow", "value", "says"), lines(3), ids=lambda cell: cell[:40])
def test_a_type_or_a_value_that_has_none(arrow: str, value: str, says: str) -> None:
    with pytest.raises(InfeedError, match=rf"{says}"):
        encode_examples(pa.RecordBatch.from_arrays([column_of(arrow, value)], ["x"]))


def test_the_page_says_something() -> None:
    assert len(lines(4)) == 33
    assert len(lines(3)) == 9
