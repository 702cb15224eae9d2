"""Kinds of columns in text formats, and their inference over the whole input.

CSV cells follow the rules of TFX's CsvExampleGen. An int is any text that Python's `int` accepts, within 64 bits. A
float is any text that `float` accepts. Any other column is text. An integer beyond 64 bits makes its column text, so
that no digit is lost.

JSON rows widen the known kinds one after the other. An int and a float make a float, and a null fits every kind. Any
other two kinds conflict, and an integer beyond 64 bits is an error.
"""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from infeed.components.dataset import example_types
from infeed.components.dataset.manifest import ColumnType

GIVEN: dict[ColumnType, pa.DataType] = {"int": pa.int64(), "float": pa.float64(), "bytes": pa.string()}
_INT64 = range(-(1 << 63), 1 << 63)
_NOT_IN_PYTHON = (b"x", b"X", b"(")  # Arrow parses `0x1F` and `nan(1)` as numbers. Python and TFX do not
_MOST_DIGITS = 4_000  # Python refuses to parse integers of slightly more digits
_WHOLE = re.compile(rb"\s*[+-]?\d+(_\d+)*\s*")
# From here on, float64 cannot represent all whole numbers; and whole numbers do not fit into 64 bits.
_INEXACT, _BEYOND = 2.0**53, 2.0**63
LARGEST = sys.float_info.max  # represents larger numbers, such as 1e400. Infinity is a separate value
_PROBE = 100  # cells to cast before trying all


class CellKind(enum.IntEnum):
    """The kinds of CSV columns, from specific to general."""

    EMPTY = 0
    INT = 1
    FLOAT = 2
    TEXT = 3

    @property
    def arrow(self) -> pa.DataType:
        return (pa.null(), pa.int64(), pa.float64(), pa.string())[self]


def infer_kind(cells: pa.StringArray) -> CellKind:
    """Return the narrowest kind that holds every cell. Nulls are ignored."""
    cells = cells.drop_null()
    if not len(cells):
        return CellKind.EMPTY
    if not _may_mislead(cells):
        if _try_cast(cells, pa.int64()) is not None:
            return CellKind.INT
        floats = _try_cast(cells, pa.float64())
        if floats is not None and not _have_plus_signs(cells) and _are_floats_meant(cells, floats):
            return CellKind.FLOAT
    kind = CellKind.EMPTY
    for cell in cells.unique():
        kind = max(kind, kind_of_cell(cell.as_py().encode()))
        if kind == CellKind.TEXT:
            break
    return kind


def kind_of_cell(cell: bytes) -> CellKind:
    # bytes, not str: int() and float() of str accept digits of other scripts. TFX does not.
    try:
        return CellKind.INT if int(cell) in _INT64 else CellKind.TEXT
    except ValueError:
        if len(cell) > _MOST_DIGITS and _WHOLE.fullmatch(cell):
            return CellKind.TEXT
        return CellKind.TEXT if _float_or_none(cell) is None else CellKind.FLOAT


def convert(cells: pa.StringArray, to: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Convert cells. Also returns the indices of cells that cannot be converted, which become null."""
    if pa.types.is_string(to):
        return cells, []
    if pa.types.is_null(to):
        return pa.nulls(len(cells)), []
    converted = None if _may_mislead(cells) else _try_cast(cells, to)
    if converted is not None:
        return _with_traces(converted, cells), []
    # Python accepts some cells that Arrow does not: `1_000`, ` 7`, `+2.5`.
    read: Callable[[bytes], int | float | None] = _int_or_none if pa.types.is_integer(to) else _float_or_none
    texts = cells.to_pylist()
    values = [None if text is None else read(text.encode()) for text in texts]
    unfit = [place for place, text in enumerate(texts) if text is not None and values[place] is None]
    return _with_traces(pa.array(values, to), cells), unfit


def _with_traces(values: pa.Array, cells: pa.StringArray) -> pa.Array:
    """Return floats that `example_types.count_rounded` counts if they lost digits or magnitude, such as 1e400."""
    if not pa.types.is_floating(values.type):
        return values
    floats = values.to_numpy(zero_copy_only=False)
    large = np.flatnonzero(np.abs(floats) >= _INEXACT)
    if not len(large):
        return values
    traced, texts = floats.copy(), cells.take(pa.array(large))
    whole = pc.match_substring_regex(texts, r"^[+-]?[0-9]+$").to_numpy(zero_copy_only=False)
    whole &= np.abs(floats[large]) < _BEYOND
    if whole.any():
        unsigned = pc.replace_substring_regex(texts.filter(pa.array(whole)), r"^\+", "")  # Arrow reads no +49
        traced[large[whole]] = example_types.to_float64(unsigned.cast(pa.int64()))
    named = pc.match_substring_regex(texts, "(?i)inf").to_numpy(zero_copy_only=False)
    too_large = large[np.isinf(floats[large]) & ~named]
    traced[too_large] = np.copysign(LARGEST, floats[too_large])
    return pa.array(traced, mask=values.is_null().to_numpy(zero_copy_only=False))


def convert_found(cells: pa.StringArray, wanted: CellKind, known: CellKind) -> tuple[pa.Array, CellKind]:
    """Convert cells to `wanted`. Also return the narrowest kind for these cells and `known`.

    The values are meaningless if the kind exceeds `wanted`. Faster than inferring the kind first.
    """
    if known < wanted and wanted > CellKind.INT:
        known = max(known, infer_kind(cells))
    values, unfit = convert(cells, wanted.arrow)
    is_proven = not unfit
    if wanted == CellKind.EMPTY:
        is_proven = cells.null_count == len(cells)
    elif wanted == CellKind.FLOAT:  # floats may come from integers beyond 64 bits
        largest = pc.max(pc.abs(values)).as_py()
        is_proven = not unfit and (largest is None or largest < 2.0**63)
    if not is_proven:
        known = max(known, infer_kind(cells))
    elif wanted == CellKind.INT and values.null_count < len(values):
        known = max(known, CellKind.INT)
    return values, known


def _int_or_none(cell: bytes) -> int | None:
    try:
        return value if (value := int(cell)) in _INT64 else None
    except ValueError:
        return None


def _float_or_none(cell: bytes) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _try_cast(cells: pa.StringArray, to: pa.DataType) -> pa.Array | None:
    try:
        if len(cells) > _PROBE:
            cells[:_PROBE].cast(to)  # after a failure Arrow continues to the end, at ten times the cost
        return cells.cast(to)
    except pa.ArrowInvalid:
        return None


def _may_mislead(cells: pa.StringArray) -> bool:
    text = bytes(cells.buffers()[2] or b"")
    return any(sign in text for sign in _NOT_IN_PYTHON)


def _have_plus_signs(cells: pa.StringArray) -> bool:
    """Return whether a cell is a number such as +49, which Arrow 18 and later reads only as a float."""
    return b"+" in bytes(cells.buffers()[2] or b"") and pc.any(pc.starts_with(cells, "+")).as_py()


def _are_floats_meant(cells: pa.StringArray, floats: pa.DoubleArray) -> bool:
    sizes = np.abs(floats.to_numpy())
    beyond = sizes >= 2.0**63
    if not beyond.any():  # the fast path for nearly all data
        return True
    if np.isfinite(sizes[beyond]).any():
        return False
    infinite = cells.filter(pc.is_inf(floats)).unique()  # `inf`, 1e400, or an integer of 400 digits
    return all(kind_of_cell(cell.as_py().encode()) == CellKind.FLOAT for cell in infinite)


Object = dict[str, "JsonKind"]
# A kind is plain JSON: a key of _ARROW, a list of the one kind of its items, an object, or None for only nulls so far.
JsonKind = str | list["JsonKind"] | Object | None

_ARROW = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "text": pa.string()}
_PYTHON = {bool: "bool", int: "int", float: "float", str: "text"}
_NUMBERS = ("int", "float")
_WORDS = {"bool": "true or false", "int": "a number", "float": "a number", "text": "text"}
_SHOWN_DIGITS = 40


class MismatchError(Exception):
    """A value conflicts with the known kind of its column."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(reason)
        self.column, self.reason = column, reason


def kind_of(value: Any, column: str = "") -> JsonKind:
    """Return the kind of a JSON value. Raises MismatchError for a list of nulls or mixed kinds, or beyond 64 bits."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {name: kind_of(inner, f"{column}.{name}".lstrip(".")) for name, inner in value.items()}
    if isinstance(value, list):
        known: JsonKind = None
        for item in value:
            if (new := kind_of(item, column)) is None:
                raise MismatchError(column, "a list contains null")
            known = widen(known, new, column)
        return [known]
    kind = _PYTHON[type(value)]
    if kind == "int" and value not in _INT64:
        digits = str(value)
        if len(digits) > _SHOWN_DIGITS:
            digits = f"{digits[:_SHOWN_DIGITS]}... of {len(digits.lstrip('-'))} digits"
        raise MismatchError(column, f"{digits} does not fit into a signed 64-bit integer")
    return kind


def kind_of_arrow(inferred: pa.DataType) -> JsonKind:
    """Return the kind of a type that Arrow inferred. Arrow infers dates from text, which JSON does not have."""
    if types.is_struct(inferred):
        return {field.name: kind_of_arrow(field.type) for field in inferred}
    if types.is_list(inferred):
        return [kind_of_arrow(inferred.value_type)]
    if types.is_null(inferred):
        return None
    return next((kind for kind, arrow in _ARROW.items() if arrow == inferred), "text")


def to_arrow(kind: JsonKind) -> pa.DataType:
    """Return the Arrow type of a column, or the struct type of an object."""
    if isinstance(kind, dict):
        return pa.struct([(name, to_arrow(inner)) for name, inner in kind.items()])
    if isinstance(kind, list):
        return pa.list_(to_arrow(kind[0]))
    return pa.null() if kind is None else _ARROW[kind]


def widen(known: JsonKind, new: JsonKind, column: str = "") -> JsonKind:
    """Return the narrowest kind for both kinds of values, or `known` itself. Raises MismatchError if they conflict."""
    if new is None or known == new:
        return known
    if known is None:
        return new
    if known in _NUMBERS and new in _NUMBERS:
        return known if known == "float" else "float"
    if isinstance(known, list) and isinstance(new, list):
        items = widen(known[0], new[0], column)
        return known if items is known[0] else [items]
    if isinstance(known, dict) and isinstance(new, dict):
        return widen_object(known, new, column)
    raise MismatchError(column, f"{_in_words(new)}, but earlier rows have {_in_words(known)}")


def widen_object(known: Object, new: Object, column: str = "") -> Object:
    """Widen an object, in time proportional to `new`. The object known from many rows may be much wider."""
    wider: Object = {}
    for name, kind in new.items():
        before = known.get(name)
        found = widen(before, kind, f"{column}.{name}".lstrip("."))
        if found is not before or name not in known:
            wider[name] = found
    return {**known, **wider} if wider else known


def restrict(wider: JsonKind, known: JsonKind) -> Any:
    """Return the kinds of `wider` for the columns of `known`. The first rows determine the order of columns."""
    if isinstance(wider, dict):
        fields = known if isinstance(known, dict) else Object()
        return {name: restrict(wider[name], inner) for name, inner in fields.items()} if fields else known
    if isinstance(wider, list):
        return [restrict(wider[0], known[0])] if isinstance(known, list) else known
    return wider


def fit(value: Any, to: JsonKind) -> Any:
    """Convert integers of float columns to floats, so that Arrow accepts the value; see `example_types.to_float64`."""
    if value is None:
        return None
    if isinstance(to, dict):
        return {name: fit(inner, to[name]) for name, inner in value.items()}
    if isinstance(to, list):
        return [fit(item, to[0]) for item in value]
    if to != "float":
        return value
    return example_types.to_float64(pa.array([value]))[0].as_py() if isinstance(value, int) else value


def _in_words(kind: JsonKind) -> str:
    if isinstance(kind, list):
        return "a list"
    return _WORDS[kind] if isinstance(kind, str) else "an object"
