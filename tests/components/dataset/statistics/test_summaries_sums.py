from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.dataset.statistics.summaries import ExactSum, sums_of_floats, sums_of_ints

FLOATS = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=60)
NEAR = st.lists(st.integers(-(2**24), 2**24).map(lambda value: value / 2**10), max_size=60)  # as most columns are
INTS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=60)


@given(FLOATS | NEAR)
def test_a_sum_of_floats_is_that_of_fractions(values: list[float]) -> None:
    total, squares = sums_of_floats(np.array(values, np.float32))
    assert total.fraction == sum(map(Fraction, values))
    assert squares.fraction == sum(Fraction(value) ** 2 for value in values)
    assert float(total) == math.fsum(values)


@given(INTS)
def test_a_sum_of_integers_is_pythons(values: list[int]) -> None:
    total, squares = sums_of_ints(np.array(values, np.int64))
    assert total.fraction == sum(values)
    assert squares.fraction == sum(value**2 for value in values)


@given(FLOATS, st.randoms(), st.integers(0, 60))
def test_neither_order_nor_parts_change_a_sum(values: list[float], random: object, cut: int) -> None:
    whole = sums_of_floats(np.array(values, np.float32))
    shuffled = sorted(values, key=lambda _: random.random())  # type: ignore[attr-defined]
    one, other = (sums_of_floats(np.array(part, np.float32)) for part in (shuffled[:cut], shuffled[cut:]))
    assert (one[0] + other[0], one[1] + other[1]) == whole
    assert one[0] + other[0] == other[0] + one[0]


@pytest.mark.parametrize("units", [1, -1])
def test_a_sum_beyond_float64_is_infinite(units: int) -> None:
    assert float(ExactSum(units << 2000)) == units * math.inf


def test_many_values_of_one_size_do_not_lose_a_bit() -> None:
    values = np.full(1_000_001, np.float32(16_777_215 / 2**20))
    total, squares = sums_of_floats(values)
    assert total.fraction == Fraction(16_777_215, 2**20) * 1_000_001
    assert squares.fraction == Fraction(16_777_215, 2**20) ** 2 * 1_000_001
