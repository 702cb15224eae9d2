"""Kinds of columns of cells, and numbers in cells.

Kinds follow the rules of TFX's CsvExampleGen. An int is any text that Python's `int` accepts, within 64 bits. A float
is any text that `float` accepts. Any other column is text. An integer beyond 64 bits makes its column text, so that no
digit is lost.

Columns of numbers that people format, such as `$3,356.21`, `12,5 kg`, and `45%`, have a format given by an example.
Units are dropped: 45% becomes 45.

    NumberFormat.of("$1,234.5").plain(cells)     # "($3,356.21)" becomes "-3356.21"
"""

from __future__ import annotations

import enum
import functools
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import example_types
from infeed.components.dataset.manifest import ColumnType

GIVEN: dict[ColumnType, pa.DataType] = {"int": pa.int64(), "float": pa.float64(), "bytes": pa.string()}
INT64 = range(-(1 << 63), 1 << 63)
_NOT_IN_PYTHON = (b"x", b"X", b"(")  # Arrow parses `0x1F` and `nan(1)` as numbers. Python and TFX do not
_MOST_DIGITS = 4_000  # Python refuses to parse integers of slightly more digits
_WHOLE = re.compile(rb"\s*[+-]?\d+(_\d+)*\s*")
# From here on, float64 cannot represent all whole numbers; and whole numbers do not fit into 64 bits.
_INEXACT, _BEYOND = 2.0**53, 2.0**63
LARGEST = sys.float_info.max  # represents larger numbers, such as 1e400. Infinity is a separate value
_PROBE = 100  # cells to cast before trying all
Numbers = Mapping[str, str | None]  # column -> example of its format. None leaves the column unchanged
THOUSANDS = (",", ".", " ", "'")
DECIMALS = (".", ",")
_DO = "give an example with a decimal, such as '$1,234.5', '1.234,5' or '12.5 kg'"
_EXAMPLE = re.compile(r"(?P<before>\D*?)\s*(?P<number>\d(?:[\d., ']*\d)?)\s*(?P<after>\D*)")
_NUMBER = re.compile(r"(?:\d{1,3}(?:(?P<thousands>[., '])\d{3})+|\d+)(?:(?P<decimal>[.,])\d+)?")
# Variants of the same separator.
_SIGNS = {" ": r"[ \x{a0}\x{2009}\x{202f}]", "'": "['\u2019]"}
_SIGN = "[+\u2212-]?"
_SPACE = r"[\s\x{a0}\x{2009}\x{202f}]*"


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
        if floats is not None:
            # Arrow 18 and later reads an integer such as +49 only as a float.
            have_plus = b"+" in bytes(cells.buffers()[2] or b"") and pc.any(pc.starts_with(cells, "+")).as_py()
            if not have_plus and _are_floats_meant(cells, floats):
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
        return CellKind.INT if int(cell) in INT64 else CellKind.TEXT
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
        return value if (value := int(cell)) in INT64 else None
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


def _are_floats_meant(cells: pa.StringArray, floats: pa.DoubleArray) -> bool:
    sizes = np.abs(floats.to_numpy())
    beyond = sizes >= 2.0**63
    if not beyond.any():  # the fast path for nearly all data
        return True
    if np.isfinite(sizes[beyond]).any():
        return False
    infinite = cells.filter(pc.is_inf(floats)).unique()  # `inf`, 1e400, or an integer of 400 digits
    return all(kind_of_cell(cell.as_py().encode()) == CellKind.FLOAT for cell in infinite)


@dataclass(frozen=True)
class NumberFormat:
    """Number format of a column. Cells may omit the units."""

    thousands: str = ""  # separator between groups of three digits. A space matches all kinds of spaces. Empty for none
    decimal: str = "."  # decimal separator
    before: str = ""  # unit before the number, such as $
    after: str = ""  # unit after the number, such as % or kg

    def __str__(self) -> str:
        before, after = (" " if unit.isalpha() else "" for unit in (self.before, self.after))
        return f"{self.before}{before}1{self.thousands}234{self.decimal}5{after}{self.after}"

    @classmethod
    @functools.cache
    def of(cls, example: str) -> NumberFormat:
        """Parse a format. Raises InfeedError if the example has no number, or its separators are ambiguous."""
        found = _EXAMPLE.fullmatch(example.strip())
        number = _NUMBER.fullmatch(found["number"]) if found else None
        if not found or not number or (number["thousands"] and number["thousands"] == number["decimal"]):
            raise InfeedError(f"{example!r} is not an example of a number", where="numbers", do=_DO)
        thousands, decimal = number["thousands"] or "", number["decimal"]
        if thousands and not decimal:
            raise InfeedError(f"{example!r} has no decimals, so {thousands!r} is ambiguous", where="numbers", do=_DO)
        return cls(thousands, decimal or ".", found["before"].strip(), found["after"].strip())

    def plain(self, cells: pa.StringArray, *, exact: bool = False) -> pa.StringArray:
        """Rewrite cells of this format as Python number literals. Other cells stay, or become "" if `exact`."""
        if not exact:
            text = bytes(cells.buffers()[2] or b"")
            signs = [self.thousands, self.before, self.after, self.decimal if self.decimal != "." else ""]
            odd = {" ": "\u00a0\u2009\u202f", "'": "\u2019"}.get(self.thousands, "")
            if not any(sign.encode() in text for sign in (*signs, *odd) if sign):
                return cells
        parts = pc.extract_regex(cells, self._pattern)
        if not len(parts):
            return cells
        opened, sign, late_sign, whole, rest = (pc.struct_field(parts, [place]) for place in range(5))
        minus = pa.array(["-", "\u2212"])
        negative = pc.or_(pc.equal(opened, "("), pc.or_(pc.is_in(sign, minus), pc.is_in(late_sign, minus)))
        digits = pc.replace_substring_regex(whole, "[^0-9]", "")
        written = pc.binary_join_element_wise(digits, pc.replace_substring(rest, self.decimal, "."), "")
        signed = pc.binary_join_element_wise(pc.if_else(negative, "-", ""), written, "")
        is_number = pc.fill_null(pc.not_equal(written, ""), False)
        return pc.if_else(is_number, signed, pc.if_else(pc.is_valid(cells), "", None) if exact else cells)

    @functools.cached_property
    def _pattern(self) -> str:
        """Regular expression for "(", the signs before and after the unit, the integer digits, and the rest."""
        before, after, point = (re.escape(one) for one in (self.before, self.after, self.decimal))
        group = _SIGNS.get(self.thousands, re.escape(self.thousands))
        digits = rf"[0-9]{{1,3}}(?:{group}[0-9]{{3}})+|[0-9]+" if self.thousands else "[0-9]+"
        number = rf"(?P<whole>{digits}|)(?P<rest>(?:{point}[0-9]*)?(?:[eE][+-]?[0-9]+)?)"
        unit = rf"(?P<sign>{_SIGN}){_SPACE}(?:{before})?{_SPACE}(?P<late_sign>{_SIGN})"
        return rf"^{_SPACE}(?P<open>\(?){_SPACE}{unit}{_SPACE}{number}{_SPACE}(?:{after})?{_SPACE}\)?{_SPACE}$"


def formats_of(numbers: Numbers) -> dict[str, NumberFormat]:
    """Return the format of each column that has one."""
    return {name: NumberFormat.of(example) for name, example in numbers.items() if example is not None}


def with_numbers(schema: pa.Schema, numbers: Numbers) -> pa.Schema:
    """Return the schema with the text columns in `numbers` as float64. Raises InfeedError if a column is unknown."""
    for name in formats_of(numbers):
        if name not in schema.names:
            shown = ", ".join(schema.names[:20])
            raise InfeedError(f"there is no column {name!r}", where="numbers", do=f"use one of {shown}")
    return pa.schema([(one.name, pa.float64() if _is_text_with_format(one, numbers) else one.type) for one in schema])


def read_numbers(batch: pa.RecordBatch, numbers: Numbers) -> tuple[pa.RecordBatch, dict[int, tuple[str, str]]]:
    """Convert text columns to numbers. Also returns the cells that are not numbers: row -> (column, reason)."""
    arrays, unfit = list(batch.columns), dict[int, tuple[str, str]]()
    for place, field in enumerate(batch.schema):
        if _is_text_with_format(field, numbers):
            text = batch.column(place).cast(pa.string())
            example = numbers[field.name] or ""
            arrays[place], places = convert(NumberFormat.of(example).plain(text, exact=True), pa.float64())
            for row in places:
                unfit.setdefault(row, (field.name, not_a_number(text[row].as_py(), example)))
    return pa.RecordBatch.from_arrays(arrays, schema=with_numbers(batch.schema, numbers)), unfit


def not_a_number(cell: str, example: str) -> str:
    """Return the reason of a bad row."""
    return f"{cell!r} is not a number such as {example!r}"


def _is_text_with_format(field: pa.Field, numbers: Numbers) -> bool:
    kind = field.type.value_type if types.is_dictionary(field.type) else field.type
    is_text = types.is_string(kind) or types.is_large_string(kind)
    return is_text and numbers.get(field.name) is not None
