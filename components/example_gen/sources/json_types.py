"""The Arrow type of JSON values, one row after the other: what is known so far, made wide enough for the next.

An int and a float are a float together; a null fits everything; any other two kinds do not go together.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyarrow import types

_INT64 = range(-(1 << 63), 1 << 63)
_WORDS = ((types.is_boolean, "true or false"), (types.is_string, "text"), (types.is_list, "a list"))


class MismatchError(Exception):
    """A value that does not go together with what is known of its column."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(reason)
        self.column, self.reason = column, reason


def type_of(value: Any, column: str = "") -> pa.DataType:
    """The narrowest type of a JSON value.

    Raises:
      MismatchError: an integer beyond 64 bits, a null inside a list, a list of different things.
    """
    if value is None:
        return pa.null()
    if isinstance(value, dict):
        return pa.struct([(name, type_of(inner, f"{column}.{name}".lstrip("."))) for name, inner in value.items()])
    if isinstance(value, list):
        return pa.list_(_type_of_items(value, column))
    if isinstance(value, int) and not isinstance(value, bool) and value not in _INT64:
        raise MismatchError(column, f"{value} does not fit into a signed 64-bit integer")
    return {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}[type(value)]


def widen(known: pa.DataType, new: pa.DataType, column: str = "") -> pa.DataType:
    """The narrowest type that holds values of both.

    Raises:
      MismatchError: there is none.
    """
    if known == new or types.is_null(new):
        return known
    if types.is_null(known):
        return new
    if _is_number(known) and _is_number(new):
        return pa.float64()
    if types.is_list(known) and types.is_list(new):
        return pa.list_(widen(known.value_type, new.value_type, column))
    if types.is_struct(known) and types.is_struct(new):
        return _widen_struct(known, new, column)
    raise MismatchError(column, f"{_in_words(new)} where rows before have {_in_words(known)}")


def as_json(inferred: pa.DataType) -> pa.DataType:
    """Arrow's own inference without what JSON does not have: it takes text that looks like a date for one."""
    if types.is_timestamp(inferred):
        return pa.string()
    if types.is_list(inferred):
        return pa.list_(as_json(inferred.value_type))
    if types.is_struct(inferred):
        return pa.struct([(field.name, as_json(field.type)) for field in inferred])
    return inferred


def fit(value: Any, to: pa.DataType) -> Any:
    """A value as Arrow converts it without complaint: integers of float columns as floats."""
    if value is None:
        return None
    if types.is_struct(to):
        return {field.name: fit(value.get(field.name), field.type) for field in to}
    if types.is_list(to):
        return [fit(item, to.value_type) for item in value]
    return float(value) if types.is_float64(to) else value


def _type_of_items(items: Iterable[Any], column: str) -> pa.DataType:
    found = [type_of(item, column) for item in items]
    if pa.null() in found:
        raise MismatchError(column, "a null inside a list")
    return functools.reduce(lambda known, new: widen(known, new, column), found, pa.null())


def _widen_struct(known: pa.StructType, new: pa.StructType, column: str) -> pa.StructType:
    fields = {field.name: field.type for field in known}
    for field in new:
        name = f"{column}.{field.name}".lstrip(".")
        fields[field.name] = widen(fields.get(field.name, pa.null()), field.type, name)
    return pa.struct(list(fields.items()))


def _is_number(found: pa.DataType) -> bool:
    return bool(types.is_int64(found) or types.is_float64(found))


def _in_words(found: pa.DataType) -> str:
    if _is_number(found):
        return "a number"
    return next((words for is_it, words in _WORDS if is_it(found)), "an object")
