from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.dataset.statistics.cells import Cells
from infeed.pipelines.project.coded_columns import CodedColumn, CrossTable, gains, smooth


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


TENS = np.repeat([0, 1], 10)  # a label of two classes, ten rows each


def table(values: object, labels: object = TENS) -> CrossTable:
    return CrossTable.of(np.asarray(values), np.asarray(labels), int(np.max(labels)) + 1)


def test_the_purest_pair_is_a_value_and_its_class() -> None:
    gain, value, of_class = table([2] * 9 + [1] + [0] * 10).purest()
    assert (gain, value, of_class) == (pytest.approx(1.0), 0, 1)
    gain, value, of_class = table([2] * 9 + [1] + [0, 2] * 5).purest()
    assert (gain, value, of_class) == (pytest.approx(0.5), 0, 1)


def test_a_class_of_few_rows_is_pure_by_chance() -> None:
    assert table([0] * 15 + [1] * 5, np.repeat([0, 1], [15, 5])).purest()[0] == 0
    assert gains(np.arange(20) < 15, np.repeat([0, 1], [15, 5]), np.array([15, 5])).tolist() == [0, 0]


def test_what_all_but_one_class_have_loses() -> None:
    labels = np.repeat([0, 1, 2], 10)
    assert gains(labels != 1, labels, np.array([10, 10, 10])).tolist() == [0.5, -1, 0.5]


def test_a_row_does_not_vote_for_itself() -> None:
    alone, pairs = table(range(20)), table(np.arange(20) // 2)
    assert alone.recall(alone.voted()) == 0
    assert pairs.recall(pairs.voted()) == 1


def test_a_common_class_does_not_outvote_a_rare_one() -> None:
    labels = np.repeat([0, 1], [990, 10])
    mixed = table(np.where(np.arange(1_000) < 980, 0, 1), labels)  # of value 1: ten rows of each class
    assert mixed.recall(mixed.voted()) == pytest.approx((980 / 990 + 1) / 2)


def test_a_value_that_occurs_once_is_judged_by_its_neighbours() -> None:
    ordered = table(range(20))
    assert ordered.recall(ordered.neighbored()) == 1
    assert np.count_nonzero(np.diff(ordered.ruling())) == 1
    noise = table(range(20), np.arange(20) % 2)
    assert noise.recall(noise.neighbored()) == 0


def test_classes_own_the_values_that_nearly_all_of_their_rows_have() -> None:
    assert table([3] * 10 + [5] * 9 + [4]).owners(0.95) == [(0, 3)]


def test_a_smooth_curve_is_predicted_by_neighbours_and_noise_is_not() -> None:
    x = np.arange(500)
    assert smooth(x, np.sin(x / 50)) > 0.999
    assert smooth(x, np.random.default_rng(0).normal(size=500)) < 0.2
    assert smooth(x // 2, np.repeat(np.arange(250.0), 2)) == 1


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2)), min_size=40, max_size=80))
def test_the_best_threshold_is_that_of_trying_all(rows: list[tuple[int, int]]) -> None:
    values = np.unique([value for value, _ in rows], return_inverse=True)[1].reshape(-1)
    labels = np.array([label for _, label in rows])
    of_class = np.bincount(labels, minlength=3)
    tried = [
        gains(has, labels, of_class)[one]
        for limit in range(values.max() + 1)
        for has in (values <= limit, values >= limit)
        for one in np.unique(labels[values == limit])
    ]
    gain, value, one, is_below = CrossTable.of(values, labels, 3).divided()
    assert gain == pytest.approx(max(tried))
    has = values <= value if is_below else values >= value
    assert gains(has, labels, of_class)[one] == pytest.approx(gain)
