"""Summaries of a column's numbers in bounded memory: exact sums, and a quantile sketch.

Both can be merged over parts of the rows in any order.

Sums are exact, so they do not depend on how the values are divided. A float32 is a multiple of 2^-149 and its
square of 2^-298, so a sum is an integer in these units, and merging adds two Python integers. NumPy does the work:
values are binned by exponent, and fewer than 2^29 of their 24-bit significands add up exactly in float64.

Quantiles are kept in sorted runs of at most 2,048 weighted values. A longer run is cut into 2,048 parts of equal
weight, each represented by its middle value. The rank error is at most half a part, and is tracked. Runs of equal
height are merged in pairs, like the bits of a counter, so each value is cut log2(n) times for n runs (Munro and
Paterson,
"Selection and sorting with limited storage", 1980). The sketch is deterministic: equal runs in equal order give equal
sketches. With at most 2,048 distinct values it is exact, and independent of the order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from infeed.components.base.annotations import Count
from infeed.components.dataset.statistics.cells import pack, unpack

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
_FLOAT_SCALE = 149  # the smallest positive float32 is 2^-149
_FRACTION_BITS = 23
_EXPONENTS = 255
_BITS = 63  # of the size of an int64
_HALF = 32  # bits of half an int64
_LOW = (1 << _HALF) - 1
_CHUNK = 1 << 24  # values at a time, so that no partial sum overflows and memory is bounded
Numbers = npt.NDArray[Any]  # int64 or float32
CAPACITY = 2048  # distinct values of a run


@dataclass(frozen=True)
class ExactSum:
    """The number `units / 2**scale`."""

    units: int = 0
    scale: int = 0

    def __add__(self, other: ExactSum) -> ExactSum:
        scale = max(self.scale, other.scale)
        return ExactSum((self.units << (scale - self.scale)) + (other.units << (scale - other.scale)), scale)

    @property
    def fraction(self) -> Fraction:
        return Fraction(self.units, 1 << self.scale)


def sums_of_ints(values: Ints) -> tuple[ExactSum, ExactSum]:
    """Return the sum of the values and the sum of their squares."""
    sums = [_sums(chunk, np.sum) for chunk in _chunks(values)]
    return ExactSum(sum(total for total, _ in sums)), ExactSum(sum(squares for _, squares in sums))


def sums_by_group(values: Numbers, starts: Ints) -> Iterator[tuple[ExactSum, ExactSum]]:
    """Yield the sum and the sum of the squares of each group: finite float32, or int64.

    Args:
      values: [n], n at most 2^24, the groups one after the other.
      starts: index of the first value of each group, ascending.
    """
    is_float = values.dtype == np.float32
    if (scaled := _as_ints(values) if is_float else (values, 0)) is None:
        yield from map(sums_of_floats, np.split(values, starts[1:]))
        return
    ints, scale = scaled
    total_scale = _FLOAT_SCALE if is_float else 0
    totals, squares = _sums(ints, partial(np.add.reduceat, indices=starts))
    for total, square in zip(totals << (total_scale - scale), squares << 2 * (total_scale - scale), strict=True):
        yield ExactSum(total, total_scale), ExactSum(square, 2 * total_scale)


def sums_of_floats(values: Floats) -> tuple[ExactSum, ExactSum]:
    """Return the sum of finite values and the sum of their squares."""
    total = squares = 0
    for chunk in _chunks(values):
        if (units := _as_ints(chunk)) is not None:
            ints, scale = units
            of_ints, of_squares = sums_of_ints(ints)
            total += of_ints.units << (_FLOAT_SCALE - scale)
            squares += of_squares.units << 2 * (_FLOAT_SCALE - scale)
            continue
        exponents, significands = _split_floats(np.ascontiguousarray(chunk))
        sizes = np.abs(significands)
        total += _binned(exponents, significands, 1)
        # A square has 48 bits. Sum its upper and lower half separately.
        square = sizes * sizes
        upper = square >> 24
        squares += (_binned(exponents, upper, 2) << 24) + _binned(exponents, square - (upper << 24), 2)
    return ExactSum(total, _FLOAT_SCALE), ExactSum(squares, 2 * _FLOAT_SCALE)


def _as_ints(values: Floats) -> tuple[Ints, int] | None:
    """Return values * 2^scale as integers, and the scale. None if their magnitudes differ too much."""
    sizes = np.abs(values)
    smallest = sizes.min(initial=np.inf, where=sizes > 0)
    if np.isinf(smallest):
        return np.zeros(len(values), np.int64), _FLOAT_SCALE
    scale = min(_FRACTION_BITS + 1 - math.frexp(smallest)[1], _FLOAT_SCALE)
    if math.frexp(sizes.max())[1] + scale >= _BITS:
        return None
    return (values.astype(np.float64) * 2.0**scale).astype(np.int64), scale


def _split_floats(values: Floats) -> tuple[Ints, Ints]:
    """Split floats into integers: value == significand * 2^(exponent - 149), with |significand| < 2^24."""
    bits = values.view(np.int32)
    exponents = (bits >> _FRACTION_BITS) & _EXPONENTS
    sizes = bits & ((1 << _FRACTION_BITS) - 1)
    sizes |= (exponents > 0).astype(np.int32) << _FRACTION_BITS  # the leading 1 of a normal number is implicit
    significands = np.where(bits < 0, -sizes, sizes).astype(np.int64)
    return np.maximum(exponents - 1, 0).astype(np.int64), significands


def _binned(exponents: Ints, parts: Ints, power: int) -> int:
    """Return the sum of `part * 2^(power * exponent)`."""
    sums = np.bincount(exponents, weights=parts)
    return sum(int(sums[exponent]) << (power * int(exponent)) for exponent in np.flatnonzero(sums))


def _sums(values: Ints, add: Callable[[npt.NDArray[Any]], Any]) -> tuple[Any, Any]:
    """Add up the sums of values and of squares that `add` returns: Python integers or arrays of them."""

    def exact(of: npt.NDArray[Any]) -> Any:
        half = of.dtype.type(_HALF)
        return (add(of >> half).astype(object) << _HALF) + add(of & of.dtype.type(_LOW)).astype(object)

    high, low = values >> _HALF, values & _LOW
    squares = exact(low.view(np.uint64) ** np.uint64(2))
    if high.any():
        squares += (exact(high * high) << 2 * _HALF) + (exact(high * low) << (_HALF + 1))
    return exact(values), squares


def _chunks(values: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    return [values[start : start + _CHUNK] for start in range(0, len(values), _CHUNK)]


@dataclass(frozen=True, eq=False)
class Run:
    """Weighted values, ascending and distinct.

    Attributes:
      values: int64 or float32 [n].
      weights: int64 [n], number of values that each represents.
      error: maximum error of a rank in this run.
      height: number of times that runs were joined and cut.
    """

    values: Numbers
    weights: Ints
    error: int = 0
    height: int = 0

    @property
    def total(self) -> int:
        return int(self.weights.sum())

    def cut(self) -> Run:
        """Return an equivalent run of at most CAPACITY values."""
        if len(self.values) <= CAPACITY:
            return self
        # Keep the smallest and the largest value exactly.
        inner = 1 + np.arange(CAPACITY - 1, dtype=np.int64) * (self.total - 2) // (CAPACITY - 2)
        bounds = np.concatenate([[0], inner, [self.total]])
        weights = np.diff(bounds)
        middles = bounds[:-1] + (weights + 1) // 2
        places = np.searchsorted(np.cumsum(self.weights), middles)
        error = self.error + int(weights.max()) // 2
        return Run(*_joined(self.values[places], weights), error, self.height + 1)

    def plain(self) -> dict[str, Any]:
        return {"values": pack(self.values), "weights": pack(self.weights), "error": self.error, "height": self.height}


@dataclass(frozen=True, eq=False)
class QuantileSketch:
    """A sketch of the quantiles of a column.

    Attributes:
      runs: runs of distinct heights, the highest first.
    """

    runs: tuple[Run, ...] = ()

    @classmethod
    def of(cls, values: Numbers, counts: Ints) -> QuantileSketch:
        """Create a sketch from ascending distinct values and their counts."""
        return cls((Run(values, counts).cut(),)) if len(values) else cls()

    def __add__(self, other: QuantileSketch) -> QuantileSketch:
        by_height = dict[int, Run]()
        for run in sorted((*self.runs, *other.runs), key=lambda run: run.height):
            while (before := by_height.pop(run.height, None)) is not None:
                run = _join([before, run])
                # a merge without a cut keeps its height, which is free now
            by_height[run.height] = run
        return QuantileSketch(tuple(by_height[height] for height in sorted(by_height, reverse=True)))

    @property
    def total(self) -> int:
        return sum(run.total for run in self.runs)

    @property
    def error(self) -> float:
        """Maximum error of a rank, as a share of all values. 0 if the sketch is exact."""
        return sum(run.error for run in self.runs) / max(1, self.total)

    def at(self, fractions: Iterable[float]) -> list[Any]:
        """Return the quantile at each fraction, like NumPy's quantiles with method `inverted_cdf`.

        Raises:
          ValueError: there are no values.
        """
        run = self._whole()
        if not len(run.values):
            raise ValueError("there are no values, so there are no quantiles")
        upto = np.cumsum(run.weights)
        ranks = np.ceil(np.array(list(fractions), np.float64) * upto[-1]).clip(1, upto[-1])
        found: list[Any] = run.values[np.searchsorted(upto, ranks.astype(np.int64))].tolist()
        return found

    def ranks(self, values: Iterable[float]) -> list[int]:
        """Return the number of values at or below each of these."""
        run = self._whole()
        upto = np.concatenate([[0], np.cumsum(run.weights)])
        found: list[int] = upto[np.searchsorted(run.values, list(values), side="right")].tolist()
        return found

    def collapse(self) -> QuantileSketch:
        """Merge into one run, as files store it. This adds half a part to the error."""
        return QuantileSketch((self._whole().cut(),)) if len(self.runs) > 1 else self

    def plain(self) -> list[dict[str, Any]]:
        return [run.plain() for run in self.runs]

    def _whole(self) -> Run:
        return _join(self.runs, cut=False) if self.runs else Run(np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True)
class StoredRun:
    values: str
    weights: str
    error: Count
    height: Count

    def run(self, dtype: npt.DTypeLike) -> Run:
        """Decode and check the run. Raises ValueError if the values are not ascending, or a weight is below 1."""
        found = Run(unpack(self.values, dtype), unpack(self.weights, np.int64), self.error, self.height)
        if len(found.values) != len(found.weights) or not 0 < len(found.values) <= CAPACITY:
            raise ValueError(f"a run has {len(found.values)} values and {len(found.weights)} weights")
        if not (found.values[1:] > found.values[:-1]).all() or not np.isfinite(found.values).all():
            raise ValueError("the values of a run are not ascending")
        if found.weights.min() < 1 or not self.error <= found.total:
            raise ValueError("a run has an impossible weight, error or height")
        return found


def _join(runs: Sequence[Run], cut: bool = True) -> Run:
    values, weights = np.concatenate([run.values for run in runs]), np.concatenate([run.weights for run in runs])
    order = np.argsort(values, kind="stable")
    error, height = sum(run.error for run in runs), max(run.height for run in runs)
    joined = Run(*_joined(values[order], weights[order]), error, height)
    return joined.cut() if cut else joined


def _joined(values: Numbers, weights: Ints) -> tuple[Numbers, Ints]:
    """Merge equal neighbors of ascending values."""
    starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    return values[starts], np.add.reduceat(weights, starts)
