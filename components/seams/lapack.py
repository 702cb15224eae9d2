"""Swaps of values one after another, by LAPACK's `dlaswp` in the library that NumPy's linear algebra calls."""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from infeed.components.seams.seam import Seam

Ints = npt.NDArray[np.int64]
Swap = Callable[[Ints, Ints], None]
SWAPS = Seam(
    "numpy",
    "shuffled orders of rows in a third of the time",
    ("numpy.linalg:_umath_linalg",),
    ("1.26.4", "2.4.6"),
    "NumPy computes the same orders",
)
_NAMES = "scipy_dlaswp_64_", "dlaswp_64_", "scipy_dlaswp_", "dlaswp_"  # OpenBLAS in NumPy's wheels, other builds
_PROBE = 1.0, 2.0, 3.0


@functools.cache
def row_swaps() -> Swap | None:
    """Return a function that swaps values i and others[i], for each i in turn. None if NumPy's library has none.

    The function changes contiguous values, int64 [n], in place. others is int64 [swaps].
    """
    if SWAPS.available():
        return None
    library = ctypes.CDLL(str(importlib.import_module("numpy.linalg._umath_linalg").__file__))
    found = (getattr(library, name, None) for name in _NAMES)
    # 64-bit numbers come first: a function of 32-bit numbers then swaps with row 0, which is the padding of `_works`.
    swaps = (_caller(function, integer) for function in found if function for integer in (np.int64, np.int32))
    return next(filter(_works, swaps), None)


def _caller(function: Any, integer: type[np.integer[Any]]) -> Swap:
    one = ctypes.byref(ctypes.c_int64(1))

    def swap(values: Ints, others: Ints) -> None:
        # LAPACK counts rows from 1. It moves values of 8 bytes, and does not compute with them.
        rows = (others + 1).astype(integer, copy=False)
        size, last = (ctypes.byref(ctypes.c_int64(len(array))) for array in (values, rows))
        place, places = (ctypes.c_void_p(array.ctypes.data) for array in (values, rows))
        function(one, place, size, one, last, places, one)

    return swap


def _works(swap: Swap) -> bool:
    padded = np.array([0, 1, 2, 3, 4])
    swap(padded[1:], np.array([1, 2, 2]))
    return bool(np.array_equal(padded, [0, 2, 3, 1, 4]))
