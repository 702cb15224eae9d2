"""Swaps of values one after another, by LAPACK's `slaswp` in the library that NumPy's linear algebra calls."""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from infeed.components.seams.seam import Seam

Rows = npt.NDArray[np.uint32]
Ints = npt.NDArray[np.int64]
Swap = Callable[[Rows, Ints], None]
SWAPS = Seam(
    "numpy",
    "shuffled orders of rows in a third of the time",
    ("numpy.linalg:_umath_linalg",),
    ("1.26.4", "2.4.6"),
    "NumPy computes the same orders",
)
_NAMES = "scipy_slaswp_64_", "slaswp_64_", "scipy_slaswp_", "slaswp_"  # OpenBLAS in NumPy's wheels, other builds
_NOT_A_NUMBER = 0x7F800001  # bits that an operation on float32 would change


@functools.cache
def row_swaps() -> Swap | None:
    """Return a function that swaps values i and others[i] - 1, for each i in turn. None if NumPy's library has none.

    The function changes contiguous values, uint32 [n], in place. others, int64 [swaps], counts from 1, as LAPACK does.
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

    def swap(values: Rows, others: Ints) -> None:
        # LAPACK moves values of 4 bytes, and does not compute with them.
        rows = others.astype(integer, copy=False)
        size, last = (ctypes.byref(ctypes.c_int64(len(array))) for array in (values, rows))
        place, places = (ctypes.c_void_p(array.ctypes.data) for array in (values, rows))
        function(one, place, size, one, last, places, one)

    return swap


def _works(swap: Swap) -> bool:
    padded = np.array([0, 1, 2, _NOT_A_NUMBER, 4], np.uint32)
    swap(padded[1:], np.array([2, 3, 3]))
    return bool(np.array_equal(padded, [0, 2, _NOT_A_NUMBER, 1, 4]))
