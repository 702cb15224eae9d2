"""Rows of Python values as record batches.

| Python type | Arrow type |
|---|---|
| bool, int, float, str, bytes | bool, int64, float64, string, binary |
| date, datetime | date32, timestamp |
| Decimal | float64 |
| UUID, dict (JSON) | string |
| list (an array), NumPy array | list |
| None | null |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import example_types
from infeed.components.example_gen.inputs import BadRow, BadRows

Row = tuple[Any, ...]
_CONVERTERS: dict[type, Callable[[Any], Any]] = {
    Decimal: float,
    UUID: str,
    dict: lambda value: json.dumps(value, default=str, ensure_ascii=False),
    list: lambda value: [_to_arrow_value(item) for item in value],
    np.ndarray: lambda value: value.ravel() if value.ndim else value[()],  # of several axes, in C order
    memoryview: bytes,
    bytearray: bytes,
}
UNFIT = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, TypeError, ValueError)
_SHOWN = 300  # characters of a bad row


def infer_field(name: str, values: Sequence[Any], where: str, do: str) -> pa.Field:
    """Infer the type of a column, null if all values are None. Raises InfeedError if a tf.Example cannot hold them."""
    try:
        column = pa.array([_to_arrow_value(value) for value in values])
    except UNFIT as error:
        what = f"values have mixed or unsupported types: {error}"
        raise InfeedError(what, where=f"{where}, column {name!r}", do=do) from error
    return checked(pa.field(name, column.type), where, do)


def checked(field: pa.Field, where: str, do: str) -> pa.Field:
    """Return the field unchanged. Raises InfeedError if a tf.Example cannot hold its type."""
    try:
        example_types.kind_of(field.type)
    except InfeedError as error:
        raise InfeedError(error.what, where=f"{where}, column {field.name!r}", do=do) from error
    return field


def to_batch(rows: Sequence[Row], schema: pa.Schema, where: str, bad_rows: BadRows, first_row: int) -> pa.RecordBatch:
    """Convert rows to a batch, and report and drop rows with values that do not fit."""
    try:
        return _convert(rows, schema)
    except UNFIT:
        kept = list[Row]()
    for number, row in enumerate(rows, first_row):
        unfit = [(field, value) for field, value in zip(schema, row, strict=True) if not _fits(value, field.type)]
        if not unfit:
            kept.append(row)
        else:
            field, value = unfit[0]
            reason = f"{value!r:.40} does not fit type {field.type}"
            bad_rows.report(BadRow(where, number, field.name, reason, str(row)[:_SHOWN]))
    return _convert(kept, schema)


def _fits(value: Any, to: pa.DataType) -> bool:
    try:
        _to_array([value], to)
    except UNFIT:
        return False
    return True


def _convert(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    cells = zip(*rows, strict=True) if rows else ([] for _ in schema)
    return pa.RecordBatch.from_arrays(
        [_to_array(values, field.type) for field, values in zip(schema, cells, strict=True)], schema=schema
    )


def _to_array(values: Sequence[Any], to: pa.DataType) -> pa.Array:
    # Cast in a second step: creating an integer array silently truncates 1.5, casting raises an error.
    plain = [_to_arrow_value(value) for value in values]
    try:
        column = pa.array(plain)
    except UNFIT:  # the values have several types, and each may fit alone
        return pa.concat_arrays([cast(pa.array([value]), to) for value in plain])
    return cast(column, to)


def cast(column: pa.Array, to: pa.DataType) -> pa.Array:
    """Cast a column without losing a value, such as the zeros of 007. Raises TypeError for text, or pa.ArrowInvalid."""
    if column.type == to:
        return column
    if pa.types.is_string(example_types.item_type(column.type)) and example_types.kind_of(to) not in ("bytes", None):
        raise TypeError(f"cannot cast text to {to}")
    return column.cast(to)


def _to_arrow_value(value: Any) -> Any:
    convert = _CONVERTERS.get(type(value))
    return value if convert is None else convert(value)
