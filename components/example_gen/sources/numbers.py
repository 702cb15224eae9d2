"""Parsing of human-readable numbers such as `$3,356.21`, `12,5 kg`, and `45%`.

    NumberFormat.of("$1,234.5").plain(cells)     # "($3,356.21)" becomes "-3356.21"

A format is given by an example. Units are dropped: 45% becomes 45.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from infeed.components.base.errors import InfeedError
from infeed.components.example_gen.sources.kinds import convert

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
