from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.dataset.statistics.cells import Cells
from infeed.pipelines.project.coded_columns import CodedColumn


def column(values: object) -> CodedColumn:
    cells = Cells.of(pa.array(values))
    assert cells
    return CodedColumn("c", cells)


@pytest.mark.parametrize(
    ("values", "present", "coded", "shown"),
    [
        ([7, None, 3, 7], [1, 0, 1, 1], [1, 0, 1], "7"),
        ([0.5, float("nan"), None, -2.0], [1, 0, 0, 1], [1, 0], "0.5"),
        (["b", "", None, "a"], [1, 0, 0, 1], [1, 0], "'b'"),
    ],
)
def test_values_are_numbered_in_their_order_and_nothings_are_missing(
    values: object, present: list[int], coded: list[int], shown: str
) -> None:
    found = column(values)
    assert found.present.astype(int).tolist() == present
    assert found.numbers.tolist() == coded
    assert (found.different, found.shown(coded[0])) == (2, shown)


def test_long_texts_are_cut_in_messages() -> None:
    assert column(["x" * 90]).shown(0) == repr("x" * 40 + "...")


def test_texts_are_read_as_quantities_without_their_units() -> None:
    read = column(["12.50 CHF", "-3 CHF"]).quantities()
    assert read is not None
    assert read.tolist() == [12.5, -3.0]
    assert column(["12.50", "twelve"]).quantities() is None
    assert column([b"\xff\xfe"]).quantities() is None


def test_items_of_lists_and_words_of_texts_know_their_row() -> None:
    rows, items = column([[5, 6], None, [], [5]]).lists()
    assert (rows.tolist(), items.numbers.tolist()) == ([0, 0, 3], [0, 1, 0])
    found = column(["Late, late!", None, "on time"]).words()
    assert found
    rows, items = found
    assert [items.shown(number) for number in items.numbers] == ["'late'", "'late'", "'on'", "'time'"]
    assert rows.tolist() == [0, 0, 2, 2]
    assert column([b"\xff"]).words() is None


def test_empty_columns_have_no_values() -> None:
    assert not column([float("nan"), None]).present.any()
    assert column(np.empty(0)).numbers.tolist() == []
