"""Numbers between NumPy and Arrow, without a copy.

`pyarrow.array` and `Array.to_numpy` import pandas if it is installed, which takes a third of a second.
`DataType.to_pandas_dtype` raises an error if it is not installed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_NAMES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
_DTYPES = {pa.from_numpy_dtype(name): np.dtype(name) for name in _NAMES}


def from_numbers(values: npt.NDArray[Any]) -> pa.Array:
    """Return integers or floats, [n], as an Arrow array."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def to_numbers(array: pa.Array) -> npt.NDArray[Any]:
    """Return the integers or floats of an Arrow array without nulls, [n]."""
    dtype = _DTYPES[array.type]
    if not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)
