from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.pipelines.project.coded_columns import CrossTable, gains, smooth

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
