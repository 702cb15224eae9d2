"""Sums without rounding: the same to the last bit, whatever the order of the values and however they are divided.

A float32 is a whole multiple of 2^-149 and its square one of 2^-298, so a sum of either is a whole number of those
units, as a sum of integers is of ones. Python's integers hold them all, and adding two sums is adding two integers.
NumPy does the work: values are binned by their exponent, and the 24-bit significands of a bin add up exactly in
float64 as long as there are fewer than 2^29 of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
_FLOAT_SCALE = 149  # the least float32 above 0 is 2^-149
_FRACTION_BITS = 23
_EXPONENTS = 255
_HALF = 32  # bits of half an int64
_LOW = (1 << _HALF) - 1
_CHUNK = 1 << 24  # values at a time, of which no partial sum overflows; also bounds the memory


@dataclass(frozen=True)
class ExactSum:
    """The number `units / 2**scale`."""

    units: int = 0
    scale: int = 0

    def __add__(self, other: ExactSum) -> ExactSum:
        scale = max(self.scale, other.scale)
        return ExactSum((self.units << (scale - self.scale)) + (other.units << (scale - other.scale)), scale)

    def __float__(self) -> float:
        """The nearest float64, as `math.fsum` gives it; infinite beyond its range."""
        try:
            return float(self.fraction)
        except OverflowError:
            return float("inf") if self.units > 0 else float("-inf")

    @property
    def fraction(self) -> Fraction:
        return Fraction(self.units, 1 << self.scale)


def sums_of_ints(values: Ints) -> tuple[ExactSum, ExactSum]:
    """The sum of the values, and the sum of their squares."""
    total = squares = 0
    for chunk in _chunks(values):
        total += _sum(chunk)
        squares += _squares(chunk)
    return ExactSum(total), ExactSum(squares)


def sums_of_floats(values: Floats) -> tuple[ExactSum, ExactSum]:
    """The sum of the values, all finite, and the sum of their squares."""
    total = squares = 0
    for chunk in _chunks(values):
        exponents, significands = _split_floats(np.ascontiguousarray(chunk))
        sizes = np.abs(significands)
        total += _binned(exponents, significands, 1)
        # A square has 48 bits: its upper and its lower half are summed apart.
        square = sizes * sizes
        upper = square >> 24
        squares += (_binned(exponents, upper, 2) << 24) + _binned(exponents, square - (upper << 24), 2)
    return ExactSum(total, _FLOAT_SCALE), ExactSum(squares, 2 * _FLOAT_SCALE)


def _split_floats(values: Floats) -> tuple[Ints, Ints]:
    """value == significand * 2^(exponent - 149), the significand with its sign and below 2^24 in size."""
    bits = values.view(np.int32)
    exponents = (bits >> _FRACTION_BITS) & _EXPONENTS
    sizes = bits & ((1 << _FRACTION_BITS) - 1)
    sizes |= (exponents > 0).astype(np.int32) << _FRACTION_BITS  # a normal number's leading 1 is not stored
    significands = np.where(bits < 0, -sizes, sizes).astype(np.int64)
    return np.maximum(exponents - 1, 0).astype(np.int64), significands


def _binned(exponents: Ints, parts: Ints, power: int) -> int:
    """The sum of `part * 2^(power * exponent)`."""
    sums = np.bincount(exponents, weights=parts)
    return sum(int(sums[exponent]) << (power * int(exponent)) for exponent in np.flatnonzero(sums))


def _sum(values: Ints) -> int:
    return (int((values >> _HALF).sum()) << _HALF) + int((values & _LOW).sum())


def _squares(values: Ints) -> int:
    high, low = values >> _HALF, values & _LOW
    if not high.any():
        return _sum_unsigned(low.view(np.uint64) ** np.uint64(2))
    lows = _sum_unsigned(low.view(np.uint64) ** np.uint64(2))
    return (_sum(high * high) << 2 * _HALF) + (_sum(high * low) << (_HALF + 1)) + lows


def _sum_unsigned(values: npt.NDArray[np.uint64]) -> int:
    return (int((values >> np.uint64(_HALF)).sum()) << _HALF) + int((values & np.uint64(_LOW)).sum())


def _chunks(values: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    return [values[start : start + _CHUNK] for start in range(0, len(values), _CHUNK)]
