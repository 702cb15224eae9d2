"""Mapping of Arrow types to the three list kinds of tf.Example.

| Arrow | tf.Example | value |
|---|---|---|
| int8 to int64, uint8 to uint64 | int | unchanged; an error above 2^63 - 1 |
| bool | int | 0 or 1 |
| date32, date64, timestamp | int | microseconds since the epoch |
| float16, float32, float64, decimal | float | float32 |
| string, binary, both large | bytes | unchanged |
| dictionary | kind of its values | |
| list, large list, fixed-size list | kind of its items | any number of values |
| null | none | always missing |

Nested structs are flattened to columns first; see `schemas`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.arrow_numbers import to_numbers
from infeed.components.dataset.manifest import Column, ColumnType

INT64_MAX = (1 << 63) - 1
_FLOAT32 = np.finfo(np.float32)
_FLOAT64_BITS = 53  # of an integer that float64 represents
_WHOLE_IN_FLOAT32 = 1 << 24  # float32 represents every integer up to here
# Largest dates and times that fit into int64 microseconds.
_LIMITS = {"days": INT64_MAX // 86_400_000_000, "s": INT64_MAX // 1_000_000, "ms": INT64_MAX // 1_000}
_BYTES = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary, types.is_fixed_size_binary)


def kind_of(column: pa.DataType) -> ColumnType | None:
    """Return the list kind for a column type, or None for Arrow's null type.

    Raises InfeedError if a tf.Example cannot hold the type.
    """
    item = item_type(column)
    if is_list(item):
        do = "flatten the column to one list a row, write it as text such as JSON, or leave it out"
        raise InfeedError(f"a tf.Example cannot hold lists of lists: the type is {column}", do=do)
    if types.is_integer(item) or types.is_boolean(item) or types.is_date(item) or types.is_timestamp(item):
        return "int"
    if types.is_floating(item) or types.is_decimal(item):
        return "float"
    if any(check(item) for check in _BYTES):
        return "bytes"
    if types.is_null(item):
        return None
    do = "cast the column to a number, a date, text, bytes, or a list of them, or leave it out"
    raise InfeedError(f"a tf.Example cannot hold type {column}", do=do)


def describe(schema: pa.Schema, nulls: tuple[int, ...]) -> tuple[Column, ...]:
    """Describe the columns of a schema for the manifest, without columns that are always null."""
    columns = []
    for column, missing in zip(schema, nulls, strict=True):
        shape = None if is_list(column.type) else (1,)
        if types.is_fixed_size_list(column.type):
            shape = (int(column.type.list_size),)
        if (kind := kind_of(column.type)) is not None:
            columns.append(Column(column.name, kind, shape, missing))
    return tuple(columns)


def item_type(column: pa.DataType) -> pa.DataType:
    """Return the type of one value: the item type of a list or dictionary, or the type itself."""
    if is_list(column):
        column = column.value_type
    return column.value_type if types.is_dictionary(column) else column


def without_dictionary(column: pa.Array) -> pa.Array:
    """Decode a dictionary, whose values may include null."""
    return column.dictionary_decode() if types.is_dictionary(column.type) else column


def is_list(column: pa.DataType) -> bool:
    return bool(types.is_list(column) or types.is_large_list(column) or types.is_fixed_size_list(column))


def items_of(column: pa.Array) -> pa.Array:
    """Return the concatenated items of a list column, or the column itself."""
    if not is_list(column.type):
        return column
    some = column.null_count < len(column)  # Arrow 10 cannot flatten a fixed-size list column of only nulls
    return column.flatten() if some else pa.array([], column.type.value_type)


def item_counts(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return the number of items in each row of a list column, 0 for null."""
    fixed = types.is_fixed_size_list(column.type)
    counts = column.type.list_size if fixed else to_numbers(pc.list_value_length(column))
    return np.multiply(counts, to_numbers(column.is_valid().cast(pa.uint8())), dtype=np.int64)


def with_items(column: pa.Array, change: Callable[[pa.Array], pa.Array], to: pa.DataType) -> pa.Array:
    """Convert a list column to the list type `to`, and replace its items by `change(items)`.

    A fixed size in `to` must be the size of the column.
    """
    if types.is_fixed_size_list(to):
        size = to.list_size
        items = column.values.slice(column.offset * size, len(column) * size)  # those of null lists as well
        lists = pa.FixedSizeListArray.from_arrays(change(items), size)
    else:
        of_lists, offset = (pa.LargeListArray, pa.int64()) if types.is_large_list(to) else (pa.ListArray, pa.int32())
        offsets = pa.array(np.append(0, np.cumsum(item_counts(column))), offset)
        lists = of_lists.from_arrays(offsets, change(items_of(column)))
    return pc.if_else(column.is_valid(), lists, pa.scalar(None, lists.type)) if column.null_count else lists


def to_float64(integers: pa.Array) -> pa.Array:
    """Convert integers to float64, and round inexact ones to odd.

    Rounding to odd keeps a trace of lost digits. The later conversion to float32 is then inexact, so that
    `count_rounded` counts the integer, and it gives the float32 nearest to the integer.
    """
    wide = integers.cast(pa.int64())
    numbers = value_buffer(wide, np.int64)
    shift = np.maximum(np.frexp(numbers.astype(np.float64))[1] - _FLOAT64_BITS, 0)
    odd = (numbers >> shift) | ((numbers >> shift << shift) != numbers)
    doubles = np.ldexp(odd.astype(np.float64), shift)
    return pa.array(doubles, mask=wide.is_null().to_numpy(zero_copy_only=False))


def rows_of(column: pa.Array, items: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return the rows that hold the items at these indices of `items_of(column)`."""
    if not is_list(column.type):
        return np.asarray(items, np.int64)
    return np.searchsorted(np.cumsum(item_counts(column)), items, side="right").astype(np.int64)


def count_rounded(column: pa.Array, *, decimals: bool = False) -> int:
    """Count the values of a column that float32 changes.

    Decimal fractions (`decimals`) are rarely exact in any float type, so their rounding does not count. Changed
    integers, such as keys beyond 2^24, and values out of range count.
    """
    items = without_dictionary(items_of(column))
    if not (types.is_float64(items.type) or types.is_decimal(items.type)):
        return 0
    doubles = value_buffer(items.cast(pa.float64()), np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        changed = (doubles.astype(np.float32) != doubles) & ~np.isnan(doubles)
    if decimals:
        sizes = np.abs(doubles)
        beyond = sizes < _FLOAT32.tiny
        large = sizes > _WHOLE_IN_FLOAT32
        if large.any():  # rarely
            # Larger integers are text columns, and 1e30 is a measurement.
            whole = (sizes < INT64_MAX) & (doubles == np.rint(doubles))
            beyond |= large & (whole | (sizes > _FLOAT32.max))
        changed &= beyond
    return int(np.count_nonzero(changed & items.is_valid().to_numpy(zero_copy_only=False)))


def to_values(items: pa.Array) -> pa.Array:
    """Convert items of any supported type to int64, float32 or large_binary, with nulls.

    Raises InvalidValueError if a tf.Example cannot hold a value.
    """
    items = without_dictionary(items)
    kind = kind_of(items.type)
    if kind == "int":
        unfit = find_invalid(items, in_list=False)
        if len(unfit):
            raise explain_invalid(items, int(unfit[0]))
        if types.is_date(items.type) or types.is_timestamp(items.type):
            zone = getattr(items.type, "tz", None)
            items = items.cast(pa.timestamp("us", zone), safe=False)  # fractions of a microsecond are truncated
        return items.cast(pa.int64())
    if kind != "float":
        return items.cast(pa.large_binary())
    if types.is_float32(items.type):
        return items
    if types.is_float16(items.type):  # Arrow cannot cast float16
        singles = value_buffer(items, np.float16).astype(np.float32)
    else:
        items = items.cast(pa.float64())
        with np.errstate(over="ignore", invalid="ignore"):  # values beyond float32 become infinity, as in protobuf
            singles = value_buffer(items, np.float64).astype(np.float32)
    return pa.array(singles, mask=items.is_null().to_numpy(zero_copy_only=False))


class InvalidValueError(Exception):
    """A tf.Example cannot hold an item. Callers add the column and row in an InfeedError."""

    def __init__(self, what: str, *, item: int, do: str) -> None:
        super().__init__(what)
        self.what, self.item, self.do = what, item, do


def find_invalid(items: pa.Array, *, in_list: bool) -> npt.NDArray[np.int64]:
    """Return the indices of items that a tf.Example cannot hold. Fast if there are none."""
    if types.is_uint64(items.type):
        unfit = _places(pc.greater(items, pa.scalar(INT64_MAX, pa.uint64())))
    elif limit := _LIMITS.get(_unit(items.type)):
        counted = ticks(items)
        unfit = _places(pc.or_(pc.greater(counted, limit), pc.less(counted, -limit)))
    else:
        unfit = np.empty(0, np.int64)
    if in_list and items.null_count:
        unfit = np.union1d(unfit, _places(items.is_null()))
    return unfit


def explain_invalid(items: pa.Array, item: int) -> InvalidValueError:
    """Return the reason and the remedy for an item that `find_invalid` found."""
    if not items[item].is_valid:
        return InvalidValueError("a list contains null", item=item, do="remove the null, or replace it by a value")
    if types.is_uint64(items.type):
        what = f"{items[item].as_py()} does not fit into a signed 64-bit integer"
        return InvalidValueError(what, item=item, do="read the column as text or as a float")
    what = f"{ticks(items)[item].as_py()} {_unit(items.type)} since the epoch does not fit into microseconds"
    return InvalidValueError(what, item=item, do="replace it by a valid date or by null")


def _unit(column: pa.DataType) -> str:
    """Return the unit of a date or time type, or ""."""
    if types.is_date(column):
        return "days" if types.is_date32(column) else "ms"
    return str(column.unit) if types.is_timestamp(column) else ""


def ticks(items: pa.Array) -> pa.Array:
    """Return dates and times as stored: int64 days or units since the epoch."""
    return items.cast(pa.int32() if types.is_date32(items.type) else pa.int64()).cast(pa.int64())


def _places(found: pa.BooleanArray) -> npt.NDArray[np.int64]:
    places = pc.indices_nonzero(pc.fill_null(found, False)).to_numpy()
    return np.asarray(places, np.int64)


def value_buffer(items: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the value buffer of a fixed-width array. Values of nulls are arbitrary."""
    if not len(items):
        return np.empty(0, dtype)
    return np.frombuffer(items.buffers()[1], dtype)[items.offset : items.offset + len(items)]
