"""Cells of a column in the form that statistics need: a length for each row, and the concatenated values.

In JSON, values are packed as little-endian bytes in base64, which is exact and smaller than decimal numbers.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.dataset import example_types
from infeed.components.dataset.manifest import ColumnType
from infeed.components.dataset.records import data_of, from_lengths, item_places, values_of

Ints = npt.NDArray[np.int64]
MAX_BYTES = 1_024  # longer values are not counted
MISSING = -1  # length of a row whose feature is missing
NOT_UTF8 = b"\xff"  # a byte that never occurs in UTF-8
Values: TypeAlias = npt.NDArray[Any] | pa.LargeBinaryArray  # int64, float32 or bytes
DTYPES: dict[str, npt.DTypeLike] = {"int": np.int64, "float": np.float32}


@dataclass(frozen=True, eq=False)
class Cells:
    """Rows of one column.

    Attributes:
      lengths: int64 [rows], number of values of each row, or MISSING.
      values: int64, float32 or bytes [sum of the lengths]. Bytes too long to be counted are empty, or NOT_UTF8 if they
        are not text.
      byte_lengths: int64, length of each value of a bytes column, including long ones. Empty for other columns.
    """

    kind: ColumnType
    lengths: Ints
    values: Values
    byte_lengths: Ints

    @classmethod
    def of(cls, column: pa.Array, *, empty_lists: bool = False) -> Cells | None:
        """Return the cells of a column, or None for Arrow's null type, which is not a feature.

        Args:
          column: [rows], of a type listed in `example_types`.
          empty_lists: treat null as an empty list, as `compat="tfx"` writes it.
        """
        kind = example_types.kind_of(column.type)
        if kind is None:
            return None
        is_list = example_types.is_list(column.type)
        lengths = example_types.item_counts(column) if is_list else np.ones(len(column), np.int64)
        decoded = example_types.without_dictionary(column)
        if decoded.null_count:
            present = decoded.is_valid().to_numpy(zero_copy_only=False)
            lengths = np.where(present, lengths, 0 if empty_lists else MISSING)
        items = example_types.to_values(example_types.items_of(column))
        items = items.drop_null() if items.null_count else items
        if kind == "bytes":
            return cls(kind, lengths, *_without_long(items))
        return cls(kind, lengths, example_types.value_buffer(items, DTYPES[kind]), _NO_INTS)

    @property
    def nbytes(self) -> int:
        return int(self.lengths.nbytes + self.values.nbytes + self.byte_lengths.nbytes)

    def take(self, rows: Ints) -> Cells:
        if len(rows) == len(self.lengths) and (np.diff(rows) == 1).all():
            return self
        if len(self.values) == len(self.lengths) and (self.lengths == 1).all():
            lengths, places = np.ones(len(rows), np.int64), rows
        else:
            lengths, counts = self.lengths[rows], np.maximum(self.lengths, 0)
            places = item_places((np.cumsum(counts) - counts)[rows], counts[rows])
        if isinstance(self.values, np.ndarray):
            return Cells(self.kind, lengths, self.values.take(places), _NO_INTS)  # twice as fast as an index [places]
        return Cells(self.kind, lengths, self.values.take(pa.array(places)), self.byte_lengths.take(places))


def concat(parts: Sequence[Cells]) -> Cells:
    """Concatenate rows of one column."""
    first = parts[0]
    if len(parts) == 1:
        return first
    values = [part.values for part in parts]
    return Cells(
        first.kind,
        np.concatenate([part.lengths for part in parts]),
        pa.concat_arrays(values) if first.kind == "bytes" else np.concatenate(values),
        np.concatenate([part.byte_lengths for part in parts]),
    )


def _without_long(items: pa.LargeBinaryArray) -> tuple[pa.LargeBinaryArray, Ints]:
    lengths = pc.binary_length(items).to_numpy(zero_copy_only=False).astype(np.int64)
    long = lengths > MAX_BYTES
    if long.any():
        data, stops = data_of(items), np.cumsum(lengths)
        bounds = zip((stops - lengths)[long].tolist(), stops[long].tolist(), strict=True)
        values = (data[start:stop] for start, stop in bounds)
        are_text = [_is_utf8(value[:_HEAD], whole=False) and _is_utf8(value) for value in values]
        stand_ins = pa.array([b"" if is_text else NOT_UTF8 for is_text in are_text], pa.large_binary())
        items = stand_ins if long.all() else pc.replace_with_mask(items, pa.array(long), stand_ins)
    return items, lengths


def are_utf8(values: pa.LargeBinaryArray) -> npt.NDArray[np.bool_]:
    """Return for each value whether it is valid UTF-8. Fast if all are."""
    try:
        values.cast(pa.large_string())
    except pa.ArrowInvalid:
        return np.fromiter(map(_is_utf8, values_of(values)), bool, len(values))
    return np.ones(len(values), bool)


def _is_utf8(value: bytes | memoryview, whole: bool = True) -> bool:
    try:
        codecs.utf_8_decode(value, "strict", whole)
    except UnicodeDecodeError:
        return False
    return True


_HEAD = 64  # bytes to try first, because the error of a decoder copies the whole input
_NO_INTS = np.empty(0, np.int64)


def pack(array: npt.NDArray[Any]) -> str:
    """Encode numbers as text."""
    return base64.b64encode(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()).decode()


def unpack(text: str, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Decode numbers from text. Raises ValueError if the text is not base64, or its length does not fit the type."""
    wanted = np.dtype(dtype)
    try:
        data = binascii.a2b_base64(text)  # a2b_base64 skips invalid characters, so only the length reveals them
    except binascii.Error as error:
        raise ValueError(f"cannot decode packed numbers: {error}") from None
    if len(text) != 4 * math.ceil(len(data) / 3):
        raise ValueError(f"cannot decode packed numbers: {len(text)} characters give {len(data)} bytes")
    if len(data) % wanted.itemsize:
        raise ValueError(f"packed numbers of {wanted.itemsize} bytes each take {len(data)} bytes")
    return np.frombuffer(data, wanted.newbyteorder("<")).astype(wanted)


def pack_values(values: Values) -> list[str]:
    """Encode the values of a column as one text. Bytes take two texts: lengths and concatenated values."""
    if isinstance(values, np.ndarray):
        return [pack(values)]
    lengths = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    return [pack(lengths), base64.b64encode(data_of(values)).decode()]


def unpack_values(texts: tuple[str, ...], kind: ColumnType) -> Values:
    """Decode the values of a column.

    Raises:
      ValueError: the texts are not the result of `pack_values` for a column of this type.
    """
    if len(texts) != (2 if kind == "bytes" else 1):
        raise ValueError(f"a column of type {kind} has {len(texts)} packed texts")
    if kind != "bytes":
        return unpack(texts[0], DTYPES[kind])
    lengths, data = unpack(texts[0], np.int64), unpack(texts[1], np.uint8)
    # Check each length, so that forged lengths cannot overflow the sum.
    if ((lengths < 0) | (lengths > len(data))).any() or int(lengths.sum()) != len(data):
        raise ValueError("packed values do not match their lengths")
    return from_lengths(data.tobytes(), lengths)


def empty_values(kind: ColumnType) -> Values:
    return pa.array([], pa.large_binary()) if kind == "bytes" else np.empty(0, DTYPES[kind])
