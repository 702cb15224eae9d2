"""Histograms of a column's numbers, and how far two of them are apart, as TensorFlow Data Validation defines both.

A column's numbers are a `Distribution`: ascending values, and how many numbers lie at or below each. It is exact where
few values differ, and else stands on the quantile sketch, with the error of that. Infinite values are numbers here; NaN
is counted beside them.
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
BUCKETS = 10  # TFDV's own number


@dataclass(frozen=True)
class Bucket:
    """`count` numbers above `low`, up to and with `high`; all of them equal where those two are."""

    low: float
    high: float
    count: float


@dataclass(frozen=True)
class Histogram:
    """Ascending buckets, the first of which holds its lower bound too, and the count of NaN."""

    buckets: tuple[Bucket, ...]
    nans: int = 0


@dataclass(frozen=True, eq=False)
class Distribution:
    """The numbers of a column.

    Attributes:
      values: float64 [n], ascending, each once; may begin and end with an infinity
      upto: int64 [n], how many numbers are at or below each
      nans: how many are NaN, which are none of these
    """

    values: Floats
    upto: Counts
    nans: int = 0

    @classmethod
    def of(cls, values: Floats, counts: Counts, *, below: int = 0, above: int = 0, nans: int = 0) -> Distribution:
        """
        Args:
          values: finite, ascending, each once.
          counts: int64 [n], how often each occurs.
          below, above: how many are negative and positive infinity.
          nans: how many are NaN.
        """
        ends = [([-np.inf], [below], below), (values, counts, len(values)), ([np.inf], [above], above)]
        parts = [(some, of_each) for some, of_each, there in ends if there]
        if not parts:
            return cls(np.empty(0), np.empty(0, np.int64), nans)
        together = np.concatenate([np.asarray(some, np.float64) for some, _ in parts])
        return cls(together, np.cumsum(np.concatenate([of_each for _, of_each in parts])).astype(np.int64), nans)

    @property
    def total(self) -> int:
        """How many numbers there are, without NaN."""
        return int(self.upto[-1]) if len(self.upto) else 0

    @property
    def below(self) -> int:
        """How many are negative infinity."""
        return int(self.rank(np.array([-np.inf]))[0])

    @property
    def above(self) -> int:
        """How many are positive infinity."""
        return self.total - int(self.rank(np.array([np.finfo(np.float64).max]))[0])

    @property
    def finite(self) -> Floats:
        found: Floats = self.values[np.isfinite(self.values)]
        return found

    def at(self, fractions: Sequence[float] | Floats) -> Floats:
        """The values below which lie these fractions of all numbers; the least and the largest at 0 and 1."""
        ranks = np.minimum(np.floor(np.asarray(fractions) * self.total) + 1, self.total)
        found: Floats = self.values[np.searchsorted(self.upto, ranks)]
        return found

    def rank(self, values: Floats) -> Counts:
        """How many numbers are at or below each of these."""
        found: Counts = np.concatenate([[0], self.upto])[np.searchsorted(self.values, values, side="right")]
        return found


def numbers_of(column: ColumnStatistics) -> Distribution:
    """The numbers of a column, lists and their rows as one; none of bytes."""
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
    """How many values the rows have that have any, or an empty list."""
    return Distribution.of(*_steps(lengths.quantiles, lengths.minimum, lengths.maximum))


def _steps(sketch: QuantileSketch, least: float | None, largest: float | None) -> tuple[Floats, Counts]:
    """What a sketch tells of its values: ascending ones, and how many lie above the one before, up to it."""
    if not sketch.total or least is None or largest is None:
        return np.empty(0), np.empty(0, np.int64)
    inner = sketch.at(np.arange(1, CAPACITY) / CAPACITY)
    values = np.unique([least, *inner, largest])
    upto = np.asarray(sketch.ranks(values.tolist()))
    upto[0], upto[-1] = max(1, upto[0]), sketch.total  # a sketch may have lost its ends
    return values, np.diff(upto, prepend=0)


def standard_histogram(numbers: Distribution, buckets: int = BUCKETS) -> Histogram:
    """Buckets of one width from the least to the largest finite number, and one for each infinity that occurs."""
    finite = numbers.finite
    if not len(finite):
        return _with_infinities(numbers, ())
    low, high = float(finite[0]), float(finite[-1])
    edges = np.linspace(low, high, buckets + 1) if low < high else np.array([low, high])
    ranks = numbers.rank(edges)
    ranks[0] = numbers.below  # the first bucket holds its lower bound too
    return _with_infinities(numbers, map(Bucket, edges[:-1].tolist(), edges[1:].tolist(), np.diff(ranks).tolist()))


def _with_infinities(numbers: Distribution, finite: Iterable[Bucket]) -> Histogram:
    low = [Bucket(-np.inf, -np.inf, numbers.below)] if numbers.below else []
    high = [Bucket(np.inf, np.inf, numbers.above)] if numbers.above else []
    return Histogram((*low, *finite, *high), numbers.nans)


def common_histograms(first: Distribution, second: Distribution, buckets: int = 20) -> tuple[Histogram, Histogram]:
    """Both in the same buckets, which end at quantiles of either; the least number of both is a bucket of its own."""
    fractions = np.arange(buckets + 1) / buckets
    ends = [one.finite[[0, -1]] for one in (first, second) if len(one.finite)]
    inner = [one.at(fractions) for one in (first, second) if one.total]
    bounds = np.unique(np.concatenate([*ends, *inner, np.empty(0)]))
    bounds = bounds[np.isfinite(bounds)]
    return _up_to(first, bounds), _up_to(second, bounds)


def _up_to(numbers: Distribution, bounds: Floats) -> Histogram:
    """The numbers at the lowest bound, then those from each bound to the next."""
    if not numbers.total:
        return Histogram((), numbers.nans)
    lows = [*bounds[:1], *bounds[:-1]]
    counts = np.diff(numbers.rank(bounds), prepend=numbers.below)
    return _with_infinities(numbers, map(Bucket, map(float, lows), bounds.tolist(), counts.tolist()))


def quantile_histogram(numbers: Distribution, buckets: int = BUCKETS) -> Histogram:
    """Buckets of about one count each. Several with one upper bound share what lies in them, as in TFDV's."""
    if not numbers.total:
        return Histogram((), numbers.nans)
    bounds = numbers.at(np.arange(buckets + 1) / buckets)
    ranks = numbers.rank(bounds)
    counts = _shared(np.diff(ranks).astype(np.float64), bounds[1:])
    lows, highs = bounds[:-1], bounds[1:]
    first = (lows == lows[0]) & (highs == highs[0])  # they hold the least number as well
    counts[first] += ranks[0] / first.sum()
    return Histogram(tuple(map(Bucket, lows.tolist(), highs.tolist(), counts.tolist())), numbers.nans)


def _shared(counts: Floats, highs: Floats) -> Floats:
    """Each count replaced by the mean of those whose buckets end at the same bound."""
    _, which, sizes = np.unique(highs, return_inverse=True, return_counts=True)
    which = which.reshape(-1)
    shared: Floats = (np.bincount(which, weights=counts) / sizes)[which]
    return shared


def jensen_shannon(first: Histogram, second: Histogram) -> float | None:
    """The Jensen-Shannon divergence, to base 2: 0 for equal shares, 1 for histograms that have nothing in common.

    JSD(P, Q) = (KL(P, M) + KL(Q, M)) / 2 with M = (P + Q) / 2 (Lin, "Divergence measures based on the Shannon entropy",
    1991). Both are cut at the bounds of both, with a bucket's numbers spread evenly over its width; a value that is a
    bucket of its own stays one, and so does NaN, which TFDV forgets where the bounds differ, and takes for two values
    where both have it. None where one of them has no buckets.
    """
    if not (first.buckets and second.buckets):
        return None
    both = (*first.buckets, *second.buckets)
    bounds = np.unique([bound for bucket in both for bound in (bucket.low, bucket.high) if bucket.low < bucket.high])
    points = sorted({bucket.low for bucket in both if bucket.low == bucket.high})
    shares = [_masses(histogram, bounds, points) for histogram in (first, second)]
    return _divergence(*(mass / mass.sum() for mass in shares))


def _masses(histogram: Histogram, bounds: Floats, points: Sequence[float]) -> Floats:
    """Counts between the bounds, then those at the points, then NaN."""
    wide = [bucket for bucket in histogram.buckets if bucket.low < bucket.high]
    between = np.zeros(max(len(bounds) - 1, 0))
    if wide:
        edges = [wide[0].low, *(bucket.high for bucket in wide)]
        upto = np.concatenate([[0], np.cumsum([bucket.count for bucket in wide])])
        between = np.diff(np.interp(bounds, edges, upto))
    alone = {bucket.low: bucket.count for bucket in histogram.buckets if bucket.low == bucket.high}
    return np.concatenate([between, [alone.get(point, 0) for point in points], [histogram.nans]])


def _divergence(first: Floats, second: Floats) -> float:
    middle = (first + second) / 2
    return float(sum(_kullback_leibler(share, middle) for share in (first, second)) / 2)


def _kullback_leibler(share: Floats, of: Floats) -> float:
    there = share > 0
    return float((share[there] * np.log2(share[there] / of[there])).sum())
