"""Counts of cells that look like codes and were read as numbers: `01234`, `+49`, `12_34`, and `12E3` beside `1207`.

TFX reads them as numbers, which lose zeros and signs. Ingest reports such columns, and the option that
keeps their text.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_SHOWN = 5  # columns in a note
_ALIKE = 0.9  # share of cells with one width that makes cells with an exponent codes
_SHORTEST = 3  # characters of such a cell, as 1e5
_TRIED = 100  # cells at the beginning of a column
_ZERO, _PLUS, _MINUS, _SPACE = b"0+- "


@dataclass(frozen=True)
class Codes:
    """Counts of the cells of a column of numbers that look like codes.

    Attributes:
      cells: cells with leading zeros, a plus or underscores, or an exponent among integers of the same width.
      zeros: cells with leading zeros.
      example: the first of `cells`.
    """

    cells: int = 0
    zeros: int = 0
    example: str = ""

    def __add__(self, other: Codes) -> Codes:
        return Codes(self.cells + other.cells, self.zeros + other.zeros, self.example or other.example)


def find_codes(cells: pa.StringArray) -> Codes:
    """Count the cells of a column of numbers that look like codes."""
    zeros, others = _look_at(cells)
    found = np.flatnonzero(zeros | others | _exponents(cells))
    return Codes(len(found), int(np.count_nonzero(zeros)), cells[int(found[0])].as_py() if len(found) else "")


def add_codes(found: Iterable[Mapping[str, Codes]]) -> dict[str, Codes]:
    """Add the counts of each column."""
    total = dict[str, Codes]()
    for one in found:
        for name, codes in one.items():
            total[name] = total.get(name, Codes()) + codes
    return total


def note_on(codes: Mapping[str, Codes]) -> str:
    """Return a note on the columns, with the option that keeps their text, or ""."""
    shown = _listed(codes, lambda name, one: f"{name!r} ({one.cells:,} such as {one.example!r})")
    do = f"{types_flag(dict.fromkeys(list(codes)[:_SHOWN], 'bytes'))} keeps the text"
    what = "cells that may be codes were read as numbers, without leading zeros, +, _ and E"
    return f"{what}: {shown}; {do}" if codes else ""


def note_on_words(codes: Mapping[str, Codes]) -> str:
    """Return a note on columns that are read as words because of leading zeros, or ""."""
    shown = _listed(codes, lambda name, one: f"{name} ({one.zeros:,} cells such as {one.example!r})")
    do = f"{types_flag(dict.fromkeys(list(codes)[:_SHOWN], 'int'))} reads numbers"
    return f"{shown}: read as words, since zeros in front make codes; {do}" if codes else ""


def _listed(codes: Mapping[str, Codes], show: Callable[[str, Codes], str]) -> str:
    shown = ", ".join(show(name, one) for name, one in list(codes.items())[:_SHOWN])
    return f"{shown} and {len(codes) - _SHOWN} more columns" if len(codes) > _SHOWN else shown


def types_flag(types: Mapping[str, str]) -> str:
    """Return the flag that gives columns these types."""
    return f"--set {shlex.quote(f'types={json.dumps(types, ensure_ascii=False)}')}"


def _exponents(cells: pa.StringArray) -> npt.NDArray[np.bool_]:
    """Return bool [cells]: whether a cell such as `12E3` is one of the codes of its column.

    It is if nearly all cells are digits, or digits with an exponent, of one width, and the fewer ones have an exponent.
    Numbers that people or programs write with exponents have points or signs, or differ in width.
    """
    text = memoryview(cells.buffers()[2] or b"").tobytes()
    if b"e" not in text and b"E" not in text:
        return np.zeros(len(cells), bool)
    found = np.zeros(len(cells), bool)
    for part in (cells.slice(0, _TRIED), cells):  # the first cells reject most columns of other numbers
        trimmed = pc.utf8_trim_whitespace(part)
        widths = pc.fill_null(pc.utf8_length(trimmed), 0).to_numpy(zero_copy_only=False)
        width = int(np.bincount(widths[widths > 0], minlength=1).argmax())
        plain, scaled = (
            pc.fill_null(pc.match_substring_regex(trimmed, pattern), False).to_numpy(zero_copy_only=False)
            & (widths == width)
            for pattern in ("^[0-9]+$", "^[0-9]+[eE][0-9]+$")
        )
        few = np.count_nonzero(plain | scaled) < _ALIKE * np.count_nonzero(widths)
        if few or width < _SHORTEST or np.count_nonzero(scaled) > np.count_nonzero(plain):
            return np.zeros(len(cells), bool)
        found = scaled
    return found


def _look_at(cells: pa.StringArray) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return bool [cells]: whether a cell has leading zeros, and whether it has a plus or underscores."""
    offsets = np.frombuffer(cells.buffers()[1] or bytes(4), np.int32)[cells.offset : cells.offset + len(cells) + 1]
    text = np.frombuffer(cells.buffers()[2] or b"\0", np.uint8)
    starts, sizes, last = offsets[:-1], np.diff(offsets), len(text) - 1
    first = text[np.minimum(starts, last)]
    if (first == _SPACE).any():
        return _look_at(pc.utf8_trim_whitespace(cells))
    is_signed = (first == _MINUS) | (first == _PLUS)
    starts = starts + is_signed
    leading = (text[np.minimum(starts, last)] == _ZERO) & (sizes - is_signed > 1)
    places = np.flatnonzero(leading)
    leading[places] = text[starts[places] + 1] - np.uint8(_ZERO) < 10  # 0.5 has no leading zero
    others = (first == _PLUS) & (sizes > 0)
    if b"_" in memoryview(cells.buffers()[2] or b"").tobytes():
        others |= pc.fill_null(pc.match_substring(cells, "_"), False).to_numpy(zero_copy_only=False)
    is_there = cells.is_valid().to_numpy(zero_copy_only=False)
    return leading & is_there, others & is_there
