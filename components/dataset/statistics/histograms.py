"""Histograms of a column's numbers, and their divergence, as defined by TensorFlow Data Validation.

A column's numbers are a `Distribution`: ascending values with cumulative counts. The distribution is exact if there are
few distinct values, and otherwise approximated by the quantile sketch. Infinities count as numbers. NaN is counted
separately.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from infeed.components.dataset.statistics.column_statistics import ColumnStatistics, Lengths
from infeed.components.dataset.statistics.summaries import CAPACITY, QuantileSketch

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
BUCKETS = 10  # TFDV's default


@dataclass(frozen=True)
class Bucket:
    """`count` numbers above `low`, up to and including `high`. If both bounds are equal, all numbers equal them."""

    low: float
    high: float
    count: float


@dataclass(frozen=True)
class Histogram:
    """Ascending buckets and the number of NaNs. The first bucket includes its lower bound."""

    buckets: tuple[Bucket, ...]
    nans: int = 0


@dataclass(frozen=True, eq=False)
class Distribution:
    """The numbers of a column.

    Attributes:
      values: float64 [n], ascending and distinct, possibly with infinities at either end.
      upto: int64 [n], number of values at or below each.
      nans: number of NaNs, which are not in `values`.
    """

    values: Floats
    upto: Counts
    nans: int = 0

    @classmethod
    def of(cls, values: Floats, counts: Counts, *, below: int = 0, above: int = 0, nans: int = 0) -> Distribution:
        """Create a distribution.

        Args:
          values: finite, ascending and distinct.
          counts: int64 [n], number of occurrences of each.
        """
        ends = [([-np.inf], [below], below), (values, counts, len(values)), ([np.inf], [above], above)]
        parts = [(some, of_each) for some, of_each, there in ends if there]
        if not parts:
            return cls(np.empty(0), np.empty(0, np.int64), nans)
        together = np.concatenate([np.asarray(some, np.float64) for some, _ in parts])
        return cls(together, np.cumsum(np.concatenate([of_each for _, of_each in parts])).astype(np.int64), nans)

    @property
    def total(self) -> int:
        """Number of values, excluding NaNs."""
        return int(self.upto[-1]) if len(self.upto) else 0

    @property
    def below(self) -> int:
        """Number of negative infinities."""
        return int(self.rank(np.array([-np.inf]))[0])

    @property
    def above(self) -> int:
        """Number of positive infinities."""
        return self.total - int(self.rank(np.array([np.finfo(np.float64).max]))[0])

    @property
    def finite(self) -> Floats:
        found: Floats = self.values[np.isfinite(self.values)]
        return found

    def at(self, fractions: Sequence[float] | Floats) -> Floats:
        """Return the quantiles at these fractions. 0 and 1 give the smallest and the largest value."""
        ranks = np.minimum(np.floor(np.asarray(fractions) * self.total) + 1, self.total)
        found: Floats = self.values[np.searchsorted(self.upto, ranks)]
        return found

    def rank(self, values: Floats) -> Counts:
        """Return the number of values at or below each of these."""
        found: Counts = np.concatenate([[0], self.upto])[np.searchsorted(self.values, values, side="right")]
        return found


def numbers_of(column: ColumnStatistics) -> Distribution:
    """Return the distribution of a column's numbers, with lists flattened. Empty for bytes."""
    if column.type == "bytes":
        return Distribution.of(np.empty(0), np.empty(0, np.int64))
    if column.counts.exact:
        values, counts = column.counts.values, column.counts.counts
    else:
        values, counts = _steps(column.quantiles, column.minimum, column.maximum)
    return Distribution.of(
        np.asarray(values, np.float64),
        counts,
        below=column.negative_infinities,
        above=column.positive_infinities,
        nans=column.nans,
    )


def lengths_of(lengths: Lengths) -> Distribution:
    """Return the distribution of the number of values of rows with the feature."""
    return Distribution.of(*_steps(lengths.quantiles, lengths.minimum, lengths.maximum))


def _steps(sketch: QuantileSketch, least: float | None, largest: float | None) -> tuple[Floats, Counts]:
    """Return ascending values of a sketch, and the number of values from each to the next."""
    if not sketch.total or least is None or largest is None:
        return np.empty(0), np.empty(0, np.int64)
    inner = sketch.at(np.arange(1, CAPACITY) / CAPACITY)
    values = np.unique([least, *inner, largest])
    upto = np.asarray(sketch.ranks(values.tolist()))
    upto[0], upto[-1] = max(1, upto[0]), sketch.total  # the sketch may have lost its extremes
    return values, np.diff(upto, prepend=0)


def standard_histogram(numbers: Distribution, buckets: int = BUCKETS) -> Histogram:
    """Return buckets of equal width over the finite numbers, and one bucket for each infinity."""
    finite = numbers.finite
    if not len(finite):
        return _with_infinities(numbers, ())
    low, high = float(finite[0]), float(finite[-1])
    edges = np.linspace(low, high, buckets + 1) if low < high else np.array([low, high])
    ranks = numbers.rank(edges)
    ranks[0] = numbers.below  # the first bucket includes its lower bound
    return _with_infinities(numbers, map(Bucket, edges[:-1].tolist(), edges[1:].tolist(), np.diff(ranks).tolist()))


def _with_infinities(numbers: Distribution, finite: Iterable[Bucket]) -> Histogram:
    low = [Bucket(-np.inf, -np.inf, numbers.below)] if numbers.below else []
    high = [Bucket(np.inf, np.inf, numbers.above)] if numbers.above else []
    return Histogram((*low, *finite, *high), numbers.nans)


def common_histograms(first: Distribution, second: Distribution, buckets: int = 20) -> tuple[Histogram, Histogram]:
    """Return histograms with common bounds at the quantiles of both. The smallest number has a separate bucket."""
    fractions = np.arange(buckets + 1) / buckets
    ends = [one.finite[[0, -1]] for one in (first, second) if len(one.finite)]
    inner = [one.at(fractions) for one in (first, second) if one.total]
    bounds = np.unique(np.concatenate([*ends, *inner, np.empty(0)]))
    bounds = bounds[np.isfinite(bounds)]
    return _up_to(first, bounds), _up_to(second, bounds)


def _up_to(numbers: Distribution, bounds: Floats) -> Histogram:
    """Count the numbers at the lowest bound, and from each bound to the next."""
    if not numbers.total:
        return Histogram((), numbers.nans)
    lows = [*bounds[:1], *bounds[:-1]]
    counts = np.diff(numbers.rank(bounds), prepend=numbers.below)
    return _with_infinities(numbers, map(Bucket, map(float, lows), bounds.tolist(), counts.tolist()))


def quantile_histogram(numbers: Distribution, buckets: int = BUCKETS) -> Histogram:
    """Return buckets of about equal counts. Buckets with equal upper bounds share their count, as in TFDV."""
    if not numbers.total:
        return Histogram((), numbers.nans)
    bounds = numbers.at(np.arange(buckets + 1) / buckets)
    ranks = numbers.rank(bounds)
    lows, highs = bounds[:-1], bounds[1:]
    _, which, sizes = np.unique(highs, return_inverse=True, return_counts=True)
    which = which.reshape(-1)
    counts = (np.bincount(which, weights=np.diff(ranks)) / sizes)[which]
    first = (lows == lows[0]) & (highs == highs[0])  # they include the smallest number
    counts[first] += ranks[0] / first.sum()
    return Histogram(tuple(map(Bucket, lows.tolist(), highs.tolist(), counts.tolist())), numbers.nans)


def jensen_shannon(first: Histogram, second: Histogram) -> float | None:
    """Return the Jensen-Shannon divergence to base 2: 0 for equal shares, 1 for disjoint histograms.

    JSD(P, Q) = (KL(P, M) + KL(Q, M)) / 2 with M = (P + Q) / 2 (Lin, "Divergence measures based on the Shannon entropy",
    1991). Both histograms are divided at the bounds of both, assuming that the numbers of a bucket are spread evenly.
    Single-value buckets and NaN stay points. TFDV drops NaN if the bounds differ, and counts it twice if
    both have it. Returns None if one histogram has no buckets.
    """
    if not (first.buckets and second.buckets):
        return None
    both = (*first.buckets, *second.buckets)
    bounds = np.unique([bound for bucket in both for bound in (bucket.low, bucket.high) if bucket.low < bucket.high])
    points = sorted({bucket.low for bucket in both if bucket.low == bucket.high})
    masses = [_masses(histogram, bounds, points) for histogram in (first, second)]
    shares = [mass / mass.sum() for mass in masses]
    middle = (shares[0] + shares[1]) / 2
    return float(sum(_kullback_leibler(share, middle) for share in shares) / 2)


def _masses(histogram: Histogram, bounds: Floats, points: Sequence[float]) -> Floats:
    """Return the counts between the bounds, the counts at the points, and the number of NaNs."""
    wide = [bucket for bucket in histogram.buckets if bucket.low < bucket.high]
    between = np.zeros(max(len(bounds) - 1, 0))
    if wide:
        edges = [wide[0].low, *(bucket.high for bucket in wide)]
        upto = np.concatenate([[0], np.cumsum([bucket.count for bucket in wide])])
        between = np.diff(np.interp(bounds, edges, upto))
    alone = {bucket.low: bucket.count for bucket in histogram.buckets if bucket.low == bucket.high}
    return np.concatenate([between, [alone.get(point, 0) for point in points], [histogram.nans]])


def _kullback_leibler(share: Floats, of: Floats) -> float:
    there = share > 0
    return float((share[there] * np.log2(share[there] / of[there])).sum())
