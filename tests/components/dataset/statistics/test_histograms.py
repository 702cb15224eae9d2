from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.dataset.statistics.histograms import (
    Bucket,
    Distribution,
    Histogram,
    common_histograms,
    jensen_shannon,
    lengths_of,
    numbers_of,
    quantile_histogram,
    standard_histogram,
)

INF, NAN = math.inf, math.nan
FLOATS = st.lists(st.floats(width=32), max_size=60)


def column(values: list[object], kind: pa.DataType | None = None) -> ColumnStatistics:
    return ColumnStatistics.of("x", pa.array(values, kind or pa.float32()))


def numbers(*values: float) -> Distribution:
    return numbers_of(column(list(values)))


def triples(histogram: Histogram) -> list[tuple[float, float, float]]:
    return [(bucket.low, bucket.high, bucket.count) for bucket in histogram.buckets]


def test_buckets_of_one_width_hold_their_upper_bound_and_the_first_its_lower_one_too() -> None:
    assert triples(standard_histogram(numbers(0, 0, 1, 2, 4), 4)) == [(0, 1, 3), (1, 2, 1), (2, 3, 0), (3, 4, 1)]


def test_a_constant_column_is_one_bucket() -> None:
    assert triples(standard_histogram(numbers(3.5, 3.5))) == [(3.5, 3.5, 2)]


def test_infinities_have_buckets_of_their_own_and_nan_is_counted_beside_them() -> None:
    found = standard_histogram(numbers(-INF, 1, 2, INF, INF, NAN), 1)
    assert triples(found) == [(-INF, -INF, 1), (1, 2, 2), (INF, INF, 2)]
    assert found.nans == 1


@pytest.mark.parametrize("empty", [[], [NAN, NAN], [None]])
def test_a_column_without_numbers_has_no_buckets(empty: list[float]) -> None:
    assert standard_histogram(numbers(*empty)).buckets == quantile_histogram(numbers(*empty)).buckets == ()
    assert standard_histogram(numbers(*empty)).nans == sum(value is not None for value in empty)


def test_quantiles_that_are_equal_share_what_lies_in_them() -> None:
    """As TFDV has it: three of ten bounds are 0, and the bucket from 0 to 1 ends where the next ones do."""
    found = triples(quantile_histogram(numbers(*[0] * 5, *[1] * 5), 4))
    assert found == [
        (0, 0, 5),
        (0, 1, pytest.approx(5 / 3)),
        (1, 1, pytest.approx(5 / 3)),
        (1, 1, pytest.approx(5 / 3)),
    ]


@given(FLOATS, st.integers(1, 12))
def test_no_number_is_lost(values: list[float], buckets: int) -> None:
    found = numbers(*values)
    for histogram in (standard_histogram(found, buckets), quantile_histogram(found, buckets)):
        assert sum(bucket.count for bucket in histogram.buckets) == pytest.approx(found.total)
        assert found.total + histogram.nans == len(values)
        bounds = [bound for bucket in histogram.buckets for bound in (bucket.low, bucket.high)]
        assert bounds == sorted(bounds)


@given(st.lists(st.integers(-5, 5), min_size=1))
def test_quantiles_are_numbers_of_the_column(values: list[int]) -> None:
    found = numbers_of(column(list(values), pa.int64()))
    assert found.at([0])[0] == min(values)
    assert found.at([1])[0] == max(values)
    assert found.at([0.5])[0] == sorted(values)[len(values) // 2]


def test_a_column_of_many_values_stands_on_its_sketch_and_keeps_its_ends() -> None:
    values = np.random.default_rng(0).normal(size=50_000).astype(np.float32)
    whole = sum((column(list(part)) for part in np.split(values, 50)[1:]), column(list(values[:1000])))
    assert not whole.counts.exact
    found = numbers_of(whole)
    assert (found.total, found.values[0], found.values[-1]) == (len(values), values.min(), values.max())
    for bucket in standard_histogram(found).buckets:
        inside = np.count_nonzero((values > bucket.low) & (values <= bucket.high))
        assert bucket.count == pytest.approx(inside, abs=2 * (whole.quantiles.error + 1 / 2048) * len(values) + 1)


def test_lengths_are_of_the_rows_that_have_a_list() -> None:
    lists = column([[1, 2], [], None, [3, 4, 5]], pa.list_(pa.float32()))
    found = lengths_of(lists.lengths)
    assert (found.values.tolist(), found.upto.tolist()) == ([0, 2, 3], [1, 2, 3])


def test_histograms_to_be_compared_have_the_same_buckets() -> None:
    one, other = common_histograms(numbers(1, 2, 3), numbers(2, INF))
    assert triples(one) == [(1, 1, 1), (1, 2, 1), (2, 3, 1)]
    assert triples(other) == [(1, 1, 0), (1, 2, 1), (2, 3, 0), (INF, INF, 1)]


U = Histogram((Bucket(0, 1, 10), Bucket(1, 2, 30)))
DIVERGENCES = [  # as `tfdv.validate_statistics` measures these very histograms
    (U, Histogram((Bucket(0, 0.5, 10), Bucket(0.5, 3, 10))), 0.31021981808339066),
    (Histogram(U.buckets, 5), U, 0.05791426176250235),  # NaN is a bucket
    (Histogram((Bucket(-INF, -INF, 5), *U.buckets, Bucket(INF, INF, 3))), U, 0.08880563947945651),
    (Histogram((Bucket(0, 0, 5), Bucket(0, 2, 5))), Histogram((Bucket(0, 0, 2), Bucket(1, 1, 3))), 0.5540157730728),
    (Histogram((Bucket(3, 3, 50),)), Histogram((Bucket(0, 4, 50),)), 1.0),  # a point is no part of a width
    (Histogram((Bucket(0, 1, 3),)), Histogram((Bucket(5, 6, 3),)), 1.0),
]


@pytest.mark.parametrize(("first", "second", "divergence"), DIVERGENCES)
def test_the_divergence_is_what_tfdv_measures(first: Histogram, second: Histogram, divergence: float) -> None:
    assert jensen_shannon(first, second) == pytest.approx(divergence, rel=1e-12)


def test_nan_on_both_sides_is_the_same() -> None:
    assert jensen_shannon(Histogram(U.buckets, 5), Histogram(U.buckets, 5)) == 0


def test_without_numbers_there_is_no_divergence() -> None:
    assert jensen_shannon(U, Histogram((), nans=3)) is None


@given(FLOATS, FLOATS)
def test_the_divergence_is_symmetrical_and_from_0_to_1(first: list[float], second: list[float]) -> None:
    one, other = common_histograms(numbers(*first), numbers(*second))
    for histogram, values in ((one, first), (other, second)):
        assert sum(bucket.count for bucket in histogram.buckets) + histogram.nans == len(values)
    found = jensen_shannon(one, other)
    if found is not None:
        assert found == pytest.approx(jensen_shannon(other, one))
        assert -1e-9 <= found <= 1 + 1e-9
        assert jensen_shannon(one, one) == pytest.approx(0, abs=1e-9)
