"""Bytes that depend on nothing but a length, such as the head in front of a value: made once for each that occurs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
_COUNTABLE = 1 << 16  # a range of lengths up to here is counted, at a tenth of what sorting them costs


def by_length(lengths: Ints, make: Callable[[int], bytes]) -> pa.LargeBinaryArray:
    """`make(length)` for each row: [n], without nulls."""
    distinct, which = _distinct(lengths)
    made = pa.array([make(int(length)) for length in distinct], pa.large_binary())
    return made.take(pa.array(which))


def _distinct(lengths: Ints) -> tuple[Ints, Ints]:
    """The lengths that occur, and which of them each row has."""
    low = int(lengths.min(initial=0))
    size = int(lengths.max(initial=0)) - low + 1
    if size > _COUNTABLE:
        distinct, which = np.unique(lengths, return_inverse=True)
        return distinct, which.reshape(-1)
    places = lengths - low
    found = np.flatnonzero(np.bincount(places, minlength=size))
    numbers = np.zeros(size, np.int64)
    numbers[found] = np.arange(len(found))
    return found + low, numbers[places]
