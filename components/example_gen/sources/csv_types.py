"""What a column of text cells can be read as, by the rules of TFX's CsvExampleGen: int, float or bytes.

An int is whatever Python's `int` reads within 64 bits, a float whatever `float` reads; any other column is text. An
integer beyond 64 bits makes its column text, so that no digit is lost.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.dataset.manifest import ColumnType

GIVEN: dict[ColumnType, pa.DataType] = {"int": pa.int64(), "float": pa.float64(), "bytes": pa.string()}
_INT64 = range(-(1 << 63), 1 << 63)
_NOT_IN_PYTHON = (b"x", b"X", b"(")  # Arrow reads `0x1F` and `nan(1)` as numbers, Python and TFX as text
_PROBE = 100  # cells that tell whether a cast is worth trying on all


class Kind(enum.IntEnum):
    """What a column can hold, each more general than the one before."""

    EMPTY = 0
    INT = 1
    FLOAT = 2
    TEXT = 3

    @property
    def arrow(self) -> pa.DataType:
        return {Kind.EMPTY: pa.null(), Kind.INT: pa.int64(), Kind.FLOAT: pa.float64(), Kind.TEXT: pa.string()}[self]


def infer_kind(cells: pa.StringArray) -> Kind:
    """The narrowest kind that holds every cell; nulls count for nothing."""
    cells = cells.drop_null()
    if not len(cells):
        return Kind.EMPTY
    if not _may_mislead(cells):
        if _try_cast(cells, pa.int64()) is not None:
            return Kind.INT
        floats = _try_cast(cells, pa.float64())
        if floats is not None and not _any_beyond_int64(floats):
            return Kind.FLOAT
    return _infer_slowly(cells)


def kind_of_cell(cell: bytes) -> Kind:
    # bytes, not str: int() and float() of str accept digits of other scripts, TFX does not.
    try:
        return Kind.INT if int(cell) in _INT64 else Kind.TEXT
    except ValueError:
        return Kind.TEXT if _float_or_none(cell) is None else Kind.FLOAT


def convert(cells: pa.StringArray, to: pa.DataType) -> tuple[pa.Array, list[int]]:
    """The values, and the places of cells that are no such value, which are null."""
    if pa.types.is_string(to):
        return cells, []
    if pa.types.is_null(to):
        return pa.nulls(len(cells)), []
    converted = None if _may_mislead(cells) else _try_cast(cells, to)
    return _convert_slowly(cells, to) if converted is None else (converted, [])


def _infer_slowly(cells: pa.StringArray) -> Kind:
    kind = Kind.EMPTY
    for cell in cells.unique():
        kind = max(kind, kind_of_cell(cell.as_py().encode()))
        if kind == Kind.TEXT:
            break
    return kind


def _convert_slowly(cells: pa.StringArray, to: pa.DataType) -> tuple[pa.Array, list[int]]:
    """`1_000`, ` 7`, `+2.5`: Python reads them, Arrow does not."""
    read: Callable[[bytes], int | float | None] = _int_or_none if pa.types.is_integer(to) else _float_or_none
    values: list[int | float | None] = []
    unfit = []
    for place, cell in enumerate(cells.to_pylist()):
        values.append(None if cell is None else read(cell.encode()))
        if cell is not None and values[-1] is None:
            unfit.append(place)
    return pa.array(values, to), unfit


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
        cells[:_PROBE].cast(to)  # Arrow goes on to the end after a cell that fails, at ten times the cost
        return cells.cast(to)
    except pa.ArrowInvalid:
        return None


def _may_mislead(cells: pa.StringArray) -> bool:
    text = bytes(cells.buffers()[2] or b"")
    return any(sign in text for sign in _NOT_IN_PYTHON)


def _any_beyond_int64(floats: pa.DoubleArray) -> bool:
    finite = pc.if_else(pc.is_finite(floats), pc.abs(floats), 0.0)
    return bool(pc.max(finite).as_py() >= 2.0**63)
