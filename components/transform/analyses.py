"""Analyses of the training rows that features need: sums, counts and quantiles, computed batch by batch.

They use the same sums and sketches as column statistics. So an analysis comes from the statistics or from a pass over
the rows (see `columns`). Uses NumPy and Arrow, no TensorFlow.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.dataset.statistics.summaries import (
    ExactSum,
    QuantileSketch,
    sums_by_group,
    sums_of_floats,
    sums_of_ints,
)
from infeed.components.transform.counting import KeyedRuns, Tally, pairs

Array = npt.NDArray[Any]
_SAMPLE = 3
A = TypeVar("A", bound="Analysis")


class Analysis:
    """An analysis, filled by `add` and then queried.

    Args:
      folder: folder for counts that exceed memory. Several workers may share it. Empty keeps counts in memory.
    """

    def __init__(self, folder: str = "") -> None:
        self.rows = 0
        self.count = 0  # of values
        self.missing = 0  # number of values, and in columns with one value per row, number of rows without one
        self.sample: list[Any] = []  # sample of values, for errors

    def add(self, values: Array, missing: int = 0, rows: int = 0) -> None:
        """Add the values [n] of a batch: float32, int64, or bytes as objects."""
        self.rows += rows
        self.count += len(values)
        self.missing += missing
        self.sample += values[: _SAMPLE - len(self.sample)].tolist()
        if len(values):
            self._add(values)

    @classmethod
    def add_groups(cls: type[A], analyses: Sequence[A], values: Array, starts: Array) -> None:
        """Add a group of values to each analysis. The groups are concatenated, start at `starts`, and are not empty."""
        for analysis, part in zip(analyses, np.split(values, starts[1:]), strict=True):
            analysis.add(part)

    def merge(self: A, other: A) -> A:
        """Merge the rows of `other`, which follow these rows. Return self."""
        self.rows += other.rows
        self.count += other.count
        self.missing += other.missing
        self.sample = [*self.sample, *other.sample][:_SAMPLE]
        self._merge(other)
        return self

    @classmethod
    def of(cls: type[A], column: ColumnStatistics) -> A | None:
        """Create the analysis from a column's statistics, or return None if they do not suffice."""
        analysis = cls()
        analysis.rows = column.rows
        analysis.count = column.counts.total + column.counts.uncounted if column.type == "bytes" else column.finite
        lists = column.lengths.maximum > 1
        analysis.missing = (column.values if lists else column.rows) - analysis.count
        analysis.sample = [value for value, _ in itertools.islice(column.counts.items(), _SAMPLE)]
        return analysis if analysis._fill(column) else None

    def _add(self, values: Array) -> None:
        raise NotImplementedError

    def _merge(self: A, other: A) -> None:
        raise NotImplementedError

    def _fill(self, column: ColumnStatistics) -> bool:
        """Fill the analysis from statistics, and return whether they suffice."""
        raise NotImplementedError


class Moments(Analysis):
    """Mean, variance and range of numbers, from exact sums."""

    def __init__(self, folder: str = "") -> None:
        super().__init__(folder)
        self.least = math.inf
        self.most = -math.inf
        self.sum, self.squares = ExactSum(), ExactSum()

    @property
    def mean(self) -> float:
        """Return the mean of the values, or 0 if there are none."""
        return self.sum.units / (max(1, self.count) << self.sum.scale)

    @property
    def variance(self) -> float:
        """Return the population variance: the mean of the squares minus the square of the mean.

        Python integers divide with a single rounding, like fractions, which are ten times slower.
        """
        number, (total, squares) = max(1, self.count), (self.sum, self.squares)
        scale = max(2 * total.scale, squares.scale)
        of_squares = number * squares.units << (scale - squares.scale)
        return (of_squares - (total.units**2 << (scale - 2 * total.scale))) / (number**2 << scale)

    @property
    def deviation(self) -> float:
        return math.sqrt(self.variance)

    @classmethod
    def add_groups(cls, analyses: Sequence[Moments], values: Array, starts: Array) -> None:
        least, most = np.minimum.reduceat(values, starts).tolist(), np.maximum.reduceat(values, starts).tolist()
        sizes = np.diff(starts, append=len(values)).tolist()
        sums = sums_by_group(values, starts)
        for one, start, size, *found in zip(analyses, starts.tolist(), sizes, sums, least, most, strict=True):
            one.count += size
            if (lacking := _SAMPLE - len(one.sample)) > 0:
                one.sample += values[start : start + min(size, lacking)].tolist()
            one._take(*found)

    def _add(self, values: Array) -> None:
        sums = sums_of_floats(values) if values.dtype == np.float32 else sums_of_ints(values)
        self._take(sums, values.min().item(), values.max().item())

    def _take(self, sums: tuple[ExactSum, ExactSum], least: float, most: float) -> None:
        self.sum, self.squares = self.sum + sums[0], self.squares + sums[1]
        self.least, self.most = min(self.least, least), max(self.most, most)

    def _merge(self, other: Moments) -> None:
        self._take((other.sum, other.squares), other.least, other.most)

    def _fill(self, column: ColumnStatistics) -> bool:
        self.sum, self.squares = column.total, column.squares
        if column.minimum is not None and column.maximum is not None:
            self.least, self.most = column.minimum, column.maximum
        return True


class Quantiles(Analysis):
    """A quantile sketch with a known error."""

    def __init__(self, folder: str = "") -> None:
        super().__init__(folder)
        self.sketch = QuantileSketch()

    def at(self, fractions: Sequence[float]) -> list[float]:
        """Return the quantile at each fraction, or 0 if there are no values."""
        return self.sketch.at(fractions) if self.count else [0.0 for _ in fractions]

    def _add(self, values: Array) -> None:
        self.sketch += QuantileSketch.of(*np.unique(values, return_counts=True))

    def _merge(self, other: Quantiles) -> None:
        self.sketch += other.sketch

    def _fill(self, column: ColumnStatistics) -> bool:
        self.sketch = column.quantiles
        return True


class Frequencies(Analysis):
    """Exact counts of values, in bounded memory."""

    def __init__(self, folder: str = "") -> None:
        super().__init__(folder)
        self._new = partial(Tally, folder, None if folder else sys.maxsize)
        self.tally = self._new()  # for floats: their bits
        self._floats = False

    @property
    def counts(self) -> dict[Any, int]:
        """Return the count of each value. All are in memory, so there must be few distinct values."""
        return dict(self._items())

    @property
    def mode(self) -> Any:
        """Return the most frequent value. Ties go to the last in text order."""
        return max(self._items(), key=lambda pair: (pair[1], str(pair[0])))[0]

    def _as_text(self) -> Tally:
        text = self._new()
        for batch in self.tally.items():
            if not pa.types.is_integer(batch.column(0).type):
                return self.tally
            text.add(np.array([*map(as_word, batch.column(0).to_pylist())], object), batch.column(1).to_numpy())
        return text

    def _items(self) -> Iterator[tuple[Any, int]]:
        for batch in self.tally.items():
            values = batch.column(0)
            if self._floats:
                values = values.to_numpy().astype(np.int32).view(np.float32)
            yield from zip(values.tolist(), batch.column(1).to_pylist(), strict=True)

    def _add(self, values: Array, counts: Array | None = None) -> None:
        if values.dtype == np.float32:
            self._floats = True
            values = (values + np.float32(0)).view(np.int32).astype(np.int64)  # -0.0 counts as 0.0
        self.tally.add(values, counts)

    def _merge(self, other: Frequencies) -> None:
        self.tally.merge(other.tally)
        self._floats |= other._floats

    def _fill(self, column: ColumnStatistics) -> bool:
        known = dict(column.counts.items())
        kind = {"bytes": object, "int": np.int64, "float": np.float32}[column.type]
        if known:
            self._add(np.array([*known], kind), np.array([*known.values()], np.int64))
        return column.counts.exact

    def ranked(self, size: int | None = None, least: int = 1) -> dict[bytes, int]:
        """Return the counts of values as text, most frequent first. Ties are in descending byte order, as in tft.

        The empty string and values with a line break are excluded, because a vocabulary file has one value per line.
        At most `size` values with a count of at least `least` remain.
        """
        found = pairs(self._as_text().ranked(least=least))
        return dict(itertools.islice((pair for pair in found if is_word(pair[0])), size))


def as_word(value: Any) -> bytes:
    """Return a value in the form that vocabularies use."""
    return value if isinstance(value, bytes) else b"%d" % value


def is_word(value: bytes) -> bool:
    """Return whether a vocabulary file can hold a value."""
    return bool(value) and b"\n" not in value and b"\r" not in value


class ByKey(Generic[A]):
    """Analyses of all values and of each key. Keys without training rows use the analysis of all values.

    Args:
      folder: see `Analysis`.
      secret: see `KeyedRuns`.
    """

    def __init__(self, kind: type[A], folder: str = "", secret: bytes | None = None) -> None:
        self._kind, self._folder = kind, folder
        self.overall = kind(folder)  # analysis of all values
        self.of: KeyedRuns[A] = KeyedRuns(folder, kind.merge, None if folder else sys.maxsize, secret)

    @property
    def keys(self) -> list[bytes]:
        return self.of.keys()

    @property
    def in_order(self) -> Iterator[A]:
        """Yield the analysis of all values, then those of `keys`. Place -1, an unknown key, has index 0."""
        yield self.overall
        yield from (analysis for _, analysis in self.of.items())

    def add(self, values: Array, keys: Array, missing: int = 0, rows: int = 0) -> None:
        """Add the values [n] of a batch with their keys: bytes, as objects [n]."""
        self.overall.add(values, missing, rows)
        if not len(values):
            return
        coded = pa.array(keys, pa.large_binary()).dictionary_encode()
        codes = coded.indices.to_numpy(zero_copy_only=False)
        sizes = np.bincount(codes)
        of = {key: self.of.get(key, partial(self._kind, self._folder)) for key in coded.dictionary.to_pylist()}
        self._kind.add_groups([*of.values()], values[np.argsort(codes, kind="stable")], np.cumsum(sizes) - sizes)
        self.of.update(of)

    def merge(self, other: ByKey[A]) -> ByKey[A]:
        """Merge the rows of `other`, which follow these rows. Return self."""
        self.overall.merge(other.overall)
        self.of.merge(other.of)
        return self
