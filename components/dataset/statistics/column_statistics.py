"""Statistics of one column of a split, which can be merged over parts in any order."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.base.annotations import Count
from infeed.components.dataset.manifest import ColumnType
from infeed.components.dataset.statistics.cells import MAX_BYTES, Cells, are_utf8
from infeed.components.dataset.statistics.summaries import (
    ExactSum,
    QuantileSketch,
    StoredRun,
    sums_of_floats,
    sums_of_ints,
)
from infeed.components.dataset.statistics.value_counts import StoredCounts, ValueCounts

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Lengths:
    """Statistics of lengths: numbers of values per row, or numbers of bytes per value.

    Attributes:
      minimum, maximum: 0 if there are none.
    """

    number: int = 0
    minimum: int = 0
    maximum: int = 0
    total: int = 0
    quantiles: QuantileSketch = field(default_factory=QuantileSketch)

    @classmethod
    def of(cls, lengths: Ints) -> Lengths:
        if not len(lengths):
            return cls()
        low, high = int(lengths.min()), int(lengths.max())
        found, counts = _counted_ints(lengths, low, high)
        return cls(len(lengths), low, high, int(lengths.sum()), QuantileSketch.of(found, counts))

    def __add__(self, other: Lengths) -> Lengths:
        some = [one for one in (self, other) if one.number] or [self]
        return Lengths(
            sum(one.number for one in some),
            min(one.minimum for one in some),
            max(one.maximum for one in some),
            sum(one.total for one in some),
            self.quantiles + other.quantiles,
        )

    @property
    def mean(self) -> float:
        """Mean length. 0 if there are none."""
        return self.total / max(1, self.number)


@dataclass(frozen=True)
class ColumnStatistics:
    """Statistics of one feature over some rows. Adding two objects merges their rows.

    Statistics of numbers cover only finite numbers. -0.0 counts as 0.0.

    Attributes:
      type: type in a tf.Example.
      missing: rows without the feature.
      lengths: number of values of rows with the feature. 0 is an empty list.
      zeros: values equal to 0, or empty bytes.
      invalid_utf8: values that are not valid UTF-8. 0 for numbers.
      nans, positive_infinities, negative_infinities: number of non-finite values.
      minimum, maximum: of numbers. None for bytes, and if there are no numbers.
      total: exact sum of the numbers.
      byte_lengths: lengths of the values of a bytes column.
    """

    name: str
    type: ColumnType
    rows: int
    missing: int
    lengths: Lengths = field(default_factory=Lengths)
    zeros: int = 0
    invalid_utf8: int = 0
    nans: int = 0
    positive_infinities: int = 0
    negative_infinities: int = 0
    minimum: float | None = None
    maximum: float | None = None
    total: ExactSum = field(default_factory=ExactSum)
    squares: ExactSum = field(default_factory=ExactSum)
    byte_lengths: Lengths = field(default_factory=Lengths)
    quantiles: QuantileSketch = field(default_factory=QuantileSketch)
    counts: ValueCounts = field(kw_only=True)

    @classmethod
    def of(cls, name: str, column: pa.Array, *, empty_lists: bool = False) -> ColumnStatistics:
        """Compute the statistics of a column.

        Args:
          column: [rows], of a type listed in `example_types` other than Arrow's null type.
          empty_lists: treat null as an empty list, as `compat="tfx"` writes it.

        Raises:
          ValueError: the column has Arrow's null type.
        """
        cells = Cells.of(column, empty_lists=empty_lists)
        if cells is None:
            raise ValueError(f"column {name!r} has no type")
        return cls.of_cells(name, cells)

    @classmethod
    def of_cells(cls, name: str, cells: Cells) -> ColumnStatistics:
        there, rows = cells.lengths >= 0, len(cells.lengths)
        present = cells.lengths if there.all() else cells.lengths[there]
        of_values = _of_bytes(cells) if cells.kind == "bytes" else _of_numbers(cells.values)
        counts = of_values.pop("counts", None) or ValueCounts.none(cells.kind)
        return cls(name, cells.kind, rows, rows - len(present), Lengths.of(present), counts=counts, **of_values)

    @classmethod
    def none(cls, name: str, kind: ColumnType, rows: int = 0) -> ColumnStatistics:
        """Return the statistics of rows without the feature."""
        return cls(name, kind, rows, rows, counts=ValueCounts.none(kind))

    def __add__(self, other: ColumnStatistics) -> ColumnStatistics:
        """Merge the statistics of two sets of rows. Raises ValueError if the columns have different names or types."""
        if (self.name, self.type) != (other.name, other.type):
            raise ValueError(f"column {self.name!r} is {self.type}, but {other.name!r} is {other.type}")
        summed = {name: getattr(self, name) + getattr(other, name) for name in _SUMMED}
        return ColumnStatistics(
            name=self.name,
            type=self.type,
            minimum=_extreme(min, self.minimum, other.minimum),
            maximum=_extreme(max, self.maximum, other.maximum),
            **summed,
        )

    @property
    def present(self) -> int:
        return self.rows - self.missing

    @property
    def values(self) -> int:
        """Number of values of all rows, including non-finite ones."""
        return self.lengths.total

    @property
    def infinities(self) -> int:
        return self.positive_infinities + self.negative_infinities

    @property
    def finite(self) -> int:
        """Number of finite numbers. 0 for bytes."""
        return 0 if self.type == "bytes" else self.values - self.nans - self.infinities

    @property
    def mean(self) -> float | None:
        """Mean of the numbers. None if there are none."""
        return float(self.total.fraction / self.finite) if self.finite else None

    @property
    def variance(self) -> float | None:
        """Mean of the squares minus the square of the mean, computed exactly. None if there are no numbers."""
        if not self.finite:
            return None
        mean = self.total.fraction / self.finite
        return float(Fraction(self.squares.fraction, self.finite) - mean * mean)

    @property
    def std(self) -> float | None:
        """Population standard deviation."""
        variance = self.variance
        return None if variance is None else math.sqrt(variance)

    def collapse(self) -> ColumnStatistics:
        """Return an equivalent object whose size does not grow with the number of merged parts."""
        lengths, byte_lengths = (
            dataclasses.replace(one, quantiles=one.quantiles.collapse()) for one in (self.lengths, self.byte_lengths)
        )
        quantiles = self.quantiles.collapse()
        return dataclasses.replace(self, lengths=lengths, byte_lengths=byte_lengths, quantiles=quantiles)

    def plain(self) -> dict[str, Any]:
        found = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        for name in ("total", "squares"):
            found[name] = {"units": str(found[name].units), "scale": found[name].scale}
        for name in ("lengths", "byte_lengths"):
            found[name] = {**vars(found[name]), "quantiles": found[name].quantiles.plain()}
        return {**found, "quantiles": self.quantiles.plain(), "counts": self.counts.plain()}


@dataclass(frozen=True)
class StoredSum:
    units: str
    scale: Count

    def sum(self) -> ExactSum:
        if self.scale not in (0, 149, 298) or len(self.units) > _DIGITS:
            raise ValueError(f"a sum has units of 2^-{self.scale} and {len(self.units)} digits")
        return ExactSum(int(self.units), self.scale)


@dataclass(frozen=True)
class StoredLengths:
    number: Count
    minimum: Count
    maximum: Count
    total: Count
    quantiles: tuple[StoredRun, ...]

    def lengths(self) -> Lengths:
        quantiles = QuantileSketch(tuple(run.run(np.int64) for run in self.quantiles))
        if quantiles.total != self.number or not self.minimum * self.number <= self.total <= self.maximum * self.number:
            raise ValueError(
                f"{self.number} lengths from {self.minimum} to {self.maximum} do not add up to {self.total}"
            )
        return Lengths(self.number, self.minimum, self.maximum, self.total, quantiles)


@dataclass(frozen=True)
class StoredColumn:
    name: str
    type: ColumnType
    rows: Count
    missing: Count
    lengths: StoredLengths
    zeros: Count
    invalid_utf8: Count
    nans: Count
    positive_infinities: Count
    negative_infinities: Count
    minimum: int | float | None
    maximum: int | float | None
    total: StoredSum
    squares: StoredSum
    byte_lengths: StoredLengths
    quantiles: tuple[StoredRun, ...]
    counts: StoredCounts

    def statistics(self) -> ColumnStatistics:
        """Decode and check the statistics. Raises ValueError if a value is invalid."""
        dtype = np.int64 if self.type == "int" else np.float32
        plain = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        plain |= {"total": self.total.sum(), "squares": self.squares.sum()}
        plain |= {"lengths": self.lengths.lengths(), "byte_lengths": self.byte_lengths.lengths()}
        plain |= {"quantiles": QuantileSketch(tuple(run.run(dtype) for run in self.quantiles))}
        found = ColumnStatistics(**{**plain, "counts": self.counts.counted(self.type)})
        _check(found)
        return found


def _check(found: ColumnStatistics) -> None:
    """Raise ValueError if the statistics are inconsistent."""
    counted = found.values if found.type == "bytes" else found.finite
    agree = (
        (found.lengths.number, found.present),
        (found.byte_lengths.number, found.values if found.type == "bytes" else 0),
        (found.quantiles.total, found.finite),
        (found.counts.total + found.counts.uncounted, counted),
        (found.invalid_utf8 <= counted, True),
        (found.minimum is None, not found.finite),
        (found.maximum is None, not found.finite),
    )
    for one, other in agree:
        if one != other:
            raise ValueError(f"column {found.name!r}: the counts {one} and {other} are inconsistent")
    if found.squares.units < 0 or (found.variance or 0.0) < 0:
        raise ValueError(f"column {found.name!r}: the sums are impossible")


def _of_numbers(values: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if not len(values):
        return found
    if values.dtype == np.float32:
        ascending = np.sort(values)  # NaN is sorted last
        # Both ends are finite only if all values are, which saves a pass over usual columns.
        if not (np.isfinite(ascending[0]) and np.isfinite(ascending[-1])):
            found = {
                "nans": int(np.count_nonzero(np.isnan(values))),
                "positive_infinities": int(np.count_nonzero(values == np.inf)),
                "negative_infinities": int(np.count_nonzero(values == -np.inf)),
            }
            return {**found, **_of_numbers(values[np.isfinite(values)])}
        distinct, counts = _runs(ascending)
        distinct = distinct + np.float32(0)  # -0.0 becomes 0.0
        total, squares = sums_of_floats(values)
    else:
        distinct, counts = _counted_ints(values, int(values.min()), int(values.max()))
        total, squares = sums_of_ints(values)
    return {
        "zeros": int(counts[distinct == 0].sum()),
        "minimum": distinct[0].item(),
        "maximum": distinct[-1].item(),
        "total": total,
        "squares": squares,
        "quantiles": QuantileSketch.of(distinct, counts),
        "counts": ValueCounts.of(distinct, counts),
    }


def _of_bytes(cells: Cells) -> dict[str, Any]:
    counted = cells.byte_lengths <= MAX_BYTES
    values: Any = cells.values
    found = pc.value_counts(values if counted.all() else values.filter(pa.array(counted)))
    distinct, counts = found.field("values"), found.field("counts").to_numpy()
    uncounted = int(np.count_nonzero(~counted))
    long = values.filter(pa.array(~counted)) if uncounted else values[:0]
    return {
        "zeros": int(np.count_nonzero(cells.byte_lengths == 0)),
        "invalid_utf8": int(counts[~are_utf8(distinct)].sum()) + int(np.count_nonzero(~are_utf8(long))),
        "byte_lengths": Lengths.of(cells.byte_lengths),
        "counts": ValueCounts.of(distinct, counts, uncounted),
    }


def _counted_ints(values: Ints, low: int, high: int) -> tuple[Ints, Ints]:
    """Return the distinct values, ascending, and their counts, by counting the range from smallest to largest."""
    if low == high:
        return np.array([low]), np.array([len(values)])
    if high - low > min(_COUNTABLE, _SPARSE * len(values)):
        return _runs(np.sort(values))
    counts = np.bincount(values - low)
    found = np.flatnonzero(counts)
    return found + low, counts[found]


def _runs(ascending: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Ints]:
    """Return the distinct values and their counts."""
    starts = np.flatnonzero(np.concatenate([[True], ascending[1:] != ascending[:-1]]))
    return ascending[starts], np.diff(np.append(starts, len(ascending)))


def _extreme(choose: Callable[..., float], one: float | None, other: float | None) -> float | None:
    return choose((value for value in (one, other) if value is not None), default=None)


_COUNTABLE = 1 << 16  # up to this range, counting integers is ten times faster than sorting
_SPARSE = 16  # counting pays only if the range is less than this many times the number of values
_DIGITS = 4_000  # digits of a stored sum. Python refuses to parse more
_SUMMED = [
    one.name for one in dataclasses.fields(ColumnStatistics) if one.name not in ("name", "type", "minimum", "maximum")
]
