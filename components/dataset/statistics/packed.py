"""Arrays as text in JSON: little-endian bytes in base64, exact and a fraction of what numbers in words would take."""

from __future__ import annotations

import base64
import binascii
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.dataset.manifest import ColumnType
from infeed.components.dataset.records import data_of

Values: TypeAlias = npt.NDArray[Any] | pa.LargeBinaryArray  # int64, float32 or bytes
DTYPES: dict[str, npt.DTypeLike] = {"int": np.int64, "float": np.float32}


def pack(array: npt.NDArray[Any]) -> str:
    """Numbers -> text."""
    return base64.b64encode(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()).decode()


def unpack(text: str, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The numbers again.

    Raises:
      ValueError: not base64, or not whole numbers of that size.
    """
    wanted = np.dtype(dtype)
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"packed numbers cannot be read: {error}") from None
    if len(data) % wanted.itemsize:
        raise ValueError(f"packed numbers of {wanted.itemsize} bytes each take {len(data)} bytes")
    return np.frombuffer(data, wanted.newbyteorder("<")).astype(wanted)


def pack_values(values: Values) -> list[str]:
    """Values of a column -> one text, or for bytes two: lengths, and all of them end to end."""
    if isinstance(values, np.ndarray):
        return [pack(values)]
    lengths = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    return [pack(lengths), base64.b64encode(data_of(values)).decode()]


def unpack_values(texts: tuple[str, ...], kind: ColumnType) -> Values:
    """The values again.

    Raises:
      ValueError: not what `pack_values` gives for a column of this type.
    """
    if len(texts) != (2 if kind == "bytes" else 1):
        raise ValueError(f"{len(texts)} packed texts of {kind}")
    if kind != "bytes":
        return unpack(texts[0], DTYPES[kind])
    lengths, data = unpack(texts[0], np.int64), unpack(texts[1], np.uint8)
    # One by one, so that no forged length overflows the sum.
    if ((lengths < 0) | (lengths > len(data))).any() or int(lengths.sum()) != len(data):
        raise ValueError("packed values are not as long as their lengths say")
    return bytes_array(data.tobytes(), np.concatenate([[0], np.cumsum(lengths)]))


def bytes_array(data: bytes, offsets: npt.NDArray[np.int64]) -> pa.LargeBinaryArray:
    """Values from `data`, cut at `offsets`: [n + 1]."""
    buffers = [None, pa.py_buffer(offsets.astype(np.int64, copy=False)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def empty_values(kind: ColumnType) -> Values:
    return pa.array([], pa.large_binary()) if kind == "bytes" else np.empty(0, DTYPES[kind])
