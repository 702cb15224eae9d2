"""What each Arrow type becomes in a tf.Example: one of three kinds of list, after one cast.

| Arrow | tf.Example | value |
|---|---|---|
| int8 to int64, uint8 to uint64 | int | as it is; above 2^63 - 1 is an error |
| bool | int | 0 or 1 |
| date32, date64, timestamp | int | microseconds since the epoch |
| float32, float64, decimal | float | float32 |
| string, binary, both large | bytes | as they are |
| dictionary | as its values | |
| list, large list, fixed-size list | as its items | any number of values |
| null | no kind | always missing |
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from infeed.components.dataset.manifest import Column, ColumnType
from infeed.components.errors import InfeedError

INT64_MAX = (1 << 63) - 1


def kind_of(column: pa.DataType) -> ColumnType | None:
    """The kind of list that holds a column of this type; None for Arrow's null type, which holds nothing.

    Raises:
      InfeedError: a type that a tf.Example has no room for.
    """
    item = item_type(column)
    if types.is_integer(item) or types.is_boolean(item) or types.is_date(item) or types.is_timestamp(item):
        return "int"
    if types.is_float32(item) or types.is_float64(item) or types.is_decimal(item):
        return "float"
    if _is_bytes(item):
        return "bytes"
    if types.is_null(item):
        return None
    raise InfeedError(
        f"a column of type {column} has no place in a tf.Example",
        do="cast it to a number, a date, text, bytes, or a list of those",
    )


def describe(schema: pa.Schema, nulls: tuple[int, ...]) -> tuple[Column, ...]:
    """The manifest's view of a schema; a column that was always null is left out of it, as it is out of the data."""
    columns = []
    for column, missing in zip(schema, nulls, strict=True):
        kind = kind_of(column.type)
        if kind is not None:
            columns.append(Column(column.name, kind, _shape(column.type), missing))
    return tuple(columns)


def item_type(column: pa.DataType) -> pa.DataType:
    """The type of one value: what a list or a dictionary holds, or the type itself."""
    if is_list(column):
        return item_type(column.value_type)
    return column.value_type if types.is_dictionary(column) else column


def is_list(column: pa.DataType) -> bool:
    return bool(types.is_list(column) or types.is_large_list(column) or types.is_fixed_size_list(column))


def to_values(items: pa.Array) -> pa.Array:
    """Items of any supported type -> int64, float32 or large_binary, nulls kept.

    Raises:
      UnfitError: a value that has no place in a tf.Example.
    """
    if types.is_dictionary(items.type):
        items = items.dictionary_decode()
    kind = kind_of(items.type)
    if kind == "int":
        return _to_int64(items)
    if kind == "float":
        return _to_float32(items)
    return items.cast(pa.large_binary())


class UnfitError(Exception):
    """An item that has no place in a tf.Example; whoever knows its column and row turns this into an InfeedError."""

    def __init__(self, what: str, *, item: int, do: str) -> None:
        super().__init__(what)
        self.what, self.item, self.do = what, item, do


def _to_int64(items: pa.Array) -> pa.Array:
    if types.is_uint64(items.type):
        _check_fits(items)
    if types.is_date(items.type) or types.is_timestamp(items.type):
        zone = getattr(items.type, "tz", None)
        items = items.cast(pa.timestamp("us", zone), safe=False)  # finer than a microsecond is cut off
    return items.cast(pa.int64())


def _to_float32(items: pa.Array) -> pa.Array:
    if types.is_float32(items.type):
        return items
    doubles = items.cast(pa.float64())
    with np.errstate(over="ignore", invalid="ignore"):  # beyond float32 is infinity, as in protobuf
        singles = value_buffer(doubles, np.float64).astype(np.float32)
    return pa.array(singles, mask=doubles.is_null().to_numpy(zero_copy_only=False))


def value_buffer(items: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The value buffer of a fixed-width array, whatever stands where it is null."""
    if not len(items):
        return np.empty(0, dtype)
    return np.frombuffer(items.buffers()[1], dtype)[items.offset : items.offset + len(items)]


def _check_fits(items: pa.Array) -> None:
    too_large = pc.indices_nonzero(pc.fill_null(pc.greater(items, pa.scalar(INT64_MAX, pa.uint64())), False))
    if len(too_large):
        item = too_large[0].as_py()
        raise UnfitError(
            f"{items[item].as_py()} does not fit into a signed 64-bit integer",
            item=item,
            do="read the column as text or as a float",
        )


def _is_bytes(item: pa.DataType) -> bool:
    return any(
        check(item)
        for check in (
            types.is_string,
            types.is_large_string,
            types.is_binary,
            types.is_large_binary,
            types.is_fixed_size_binary,
        )
    )


def _shape(column: pa.DataType) -> tuple[int, ...] | None:
    if types.is_fixed_size_list(column):
        return (int(column.list_size),)
    return None if is_list(column) else (1,)
