from __future__ import annotations

import functools
import operator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infeed.components.dataset.statistics.summaries import (
    CAPACITY,
    QuantileSketch,
    StoredRun,
    sums_by_group,
    sums_of_floats,
    sums_of_ints,
)

FRACTIONS = [0, 0.001, 0.1, 0.25, 0.5, 0.9, 0.999, 1]


def sketch_of(values: np.ndarray) -> QuantileSketch:
    return QuantileSketch.of(*np.unique(values, return_counts=True))


def furthest_rank(sketch: QuantileSketch, values: np.ndarray) -> float:
    """By how much, as a share of all values, the found quantiles miss the ranks that were asked for."""
    ordered, missed = np.sort(values), 0.0
    for fraction, found in zip(FRACTIONS, sketch.at(FRACTIONS), strict=True):
        low, high = np.searchsorted(ordered, found), np.searchsorted(ordered, found, side="right")
        wanted = min(max(fraction * len(values), 1), len(values))
        missed = max(missed, low + 1 - wanted - 1, wanted - high)
    return missed / len(values)


@given(st.lists(st.lists(st.integers(-50, 50), max_size=30), min_size=1, max_size=8))
def test_few_different_values_give_numpys_quantiles_in_any_order(parts: list[list[int]]) -> None:
    values = np.array([value for part in parts for value in part], np.int64)
    sketches = [sketch_of(np.array(part, np.int64)) for part in parts]
    added = functools.reduce(operator.add, sketches, QuantileSketch())
    backwards = functools.reduce(operator.add, reversed(sketches), QuantileSketch())
    assert added.plain() == backwards.plain()
    assert (added.total, added.error) == (len(values), 0)
    if len(values):
        assert added.at(FRACTIONS) == np.quantile(values, FRACTIONS, method="inverted_cdf").tolist()
        assert added.ranks([-1, 0.5, 60]) == [int((values <= value).sum()) for value in (-1, 0.5, 60)]


@settings(max_examples=15)
@given(st.integers(0, 2**32), st.lists(st.integers(1, 9_000), min_size=1, max_size=24), st.booleans())
def test_many_different_values_are_found_within_the_error_that_is_said(seed: int, sizes: list[int], sort: bool) -> None:
    values = np.random.default_rng(seed).lognormal(size=sum(sizes)).astype(np.float32)
    values = np.sort(values) if sort else values
    added = functools.reduce(operator.add, map(sketch_of, np.split(values, np.cumsum(sizes)[:-1])))
    assert added.total == len(values)
    assert furthest_rank(added, values) <= added.error + 1 / len(values)
    assert added.error <= (2 + np.log2(len(sizes) + 1)) / CAPACITY
    assert added.at([0, 1]) == [values.min(), values.max()]
    kept = added.collapse()
    assert len(kept.runs) == 1
    assert furthest_rank(kept, values) <= kept.error + 1 / len(values)


def test_memory_stays_bounded_by_the_logarithm_of_the_parts() -> None:
    part = sketch_of(np.arange(5_000))
    added = functools.reduce(operator.add, [part] * 64)
    assert len(added.runs) <= 7
    assert all(len(run.values) <= CAPACITY for run in added.runs)


def test_a_sketch_of_nothing_has_no_quantiles() -> None:
    assert QuantileSketch().total == 0
    assert QuantileSketch().ranks([1.0]) == [0]
    with pytest.raises(ValueError, match="no quantiles"):
        QuantileSketch().at([0.5])


@pytest.mark.parametrize(
    ("values", "weights", "error", "says"),
    [
        ([2.0, 1.0], [1, 1], 0, "not ascending"),
        ([1.0, float("nan")], [1, 1], 0, "not ascending"),
        ([1.0, 2.0], [1], 0, "2 values and 1 weights"),
        ([], [], 0, "0 values"),
        ([1.0, 2.0], [1, 0], 0, "impossible weight"),
        ([1.0, 2.0], [1, 1], 3, "impossible weight"),
    ],
)
def test_a_run_that_cannot_be_is_refused(values: list[float], weights: list[int], error: int, says: str) -> None:
    from infeed.components.dataset.statistics.cells import pack

    stored = StoredRun(pack(np.array(values, np.float32)), pack(np.array(weights, np.int64)), error, 0)
    with pytest.raises(ValueError, match=says):
        stored.run(np.float32)


FLOATS = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=60)
NEAR = st.lists(st.integers(-(2**24), 2**24).map(lambda value: value / 2**10), max_size=60)  # as most columns are
INTS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=60)


@given(FLOATS | NEAR)
def test_a_sum_of_floats_is_that_of_fractions(values: list[float]) -> None:
    total, squares = sums_of_floats(np.array(values, np.float32))
    assert total.fraction == sum(map(Fraction, values))
    assert squares.fraction == sum(Fraction(value) ** 2 for value in values)


@given(INTS)
def test_a_sum_of_integers_is_pythons(values: list[int]) -> None:
    total, squares = sums_of_ints(np.array(values, np.int64))
    assert total.fraction == sum(values)
    assert squares.fraction == sum(value**2 for value in values)


@given((FLOATS | NEAR | INTS).filter(len), st.sets(st.integers(1, 60)))
def test_the_sums_of_groups_are_those_of_each(values: list[float], cuts: set[int]) -> None:
    is_float = any(isinstance(value, float) for value in values)
    array = np.array(values, np.float32 if is_float else np.int64)
    starts = np.array([0, *sorted(cut for cut in cuts if cut < len(values))])
    of_one = sums_of_floats if is_float else sums_of_ints
    assert list(sums_by_group(array, starts)) == [of_one(part) for part in np.split(array, starts[1:])]


@given(FLOATS, st.randoms(), st.integers(0, 60))
def test_neither_order_nor_parts_change_a_sum(values: list[float], random: object, cut: int) -> None:
    whole = sums_of_floats(np.array(values, np.float32))
    shuffled = sorted(values, key=lambda _: random.random())  # type: ignore[attr-defined]
    one, other = (sums_of_floats(np.array(part, np.float32)) for part in (shuffled[:cut], shuffled[cut:]))
    assert (one[0] + other[0], one[1] + other[1]) == whole
    assert one[0] + other[0] == other[0] + one[0]


def test_many_values_of_one_size_do_not_lose_a_bit() -> None:
    values = np.full(1_000_001, np.float32(16_777_215 / 2**20))
    total, squares = sums_of_floats(values)
    assert total.fraction == Fraction(16_777_215, 2**20) * 1_000_001
    assert squares.fraction == Fraction(16_777_215, 2**20) ** 2 * 1_000_001
