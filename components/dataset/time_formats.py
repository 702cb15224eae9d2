"""Formats of times as text: ISO 8601, or directives of `strptime` as regular expressions.

Ingest reads such text with Arrow, and `DatePart` with TensorFlow. Both use RE2, so the expressions here serve both.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from infeed.components.base.checks import about, require
from infeed.components.base.errors import InfeedError

ISO = "iso"
# Microseconds in one unit of an epoch: multiply, then divide.
EPOCHS: Mapping[str, tuple[int, int]] = {
    "epoch_s": (1_000_000, 1),
    "epoch_ms": (1_000, 1),
    "epoch_us": (1, 1),
    "epoch_ns": (1, 1_000),
}
DAY = 86_400_000_000  # microseconds
FIRST, LAST = -719_162 * DAY, 2_932_897 * DAY  # 0001-01-01, and the day after 9999-12-31
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_LONGMONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_LONG_DAYS = "monday|tuesday|wednesday|thursday|friday|saturday|sunday"

_DAYS = ("%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%m-%d-%Y")
_SHORT_DAYS = ("%d.%m.%y", "%d/%m/%y", "%m/%d/%y")
_DAYS_WITH_NAMES = ("%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y")
_TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
_USUAL = (ISO, *(day + time for day in (*_DAYS, *_SHORT_DAYS, *_DAYS_WITH_NAMES) for time in _TIMES))

# Texts that a directive of `strptime` matches. Values out of range do not match.
_DIRECTIVES: Mapping[str, str] = {
    "Y": r"\d{4}",
    "y": r"\d{2}",
    "m": r"1[0-2]|0[1-9]|[1-9]",
    "d": r"3[01]|[12]\d|0[1-9]|[1-9]",
    "j": r"36[0-6]|3[0-5]\d|[12]\d\d|0[1-9]\d|00[1-9]|[1-9]\d|0[1-9]|[1-9]",
    "H": r"2[0-3]|[01]\d|\d",
    "I": r"1[0-2]|0[1-9]|[1-9]",
    "p": r"[ap]m",
    "M": r"[0-5]\d|\d",
    "S": r"[0-5]\d|\d",
    "f": r"\d{1,9}",
    "b": "|".join(MONTHS),
    "B": _LONGMONTHS,
    "a": "|".join(day[:3] for day in _LONG_DAYS.split("|")),
    "A": _LONG_DAYS,
    "z": r"z|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?",
}


class Piece(NamedTuple):
    """A part of the regular expression of a format. `directive` is empty for literal text."""

    pattern: str
    directive: str = ""


def _value(directive: str) -> Piece:
    return Piece(_DIRECTIVES[directive], directive)


def _optional(*pieces: Piece) -> tuple[Piece, ...]:
    return (Piece("(?:"), *pieces, Piece(")?"))


# ISO 8601's extended form, also shortened: 2024, 2024-02, 2024-02-29, 2024-02-29T17:05, 2024-02-29 17:05:09.25+01:00.
_SECOND = _optional(Piece(":"), Piece(r"[0-5]\d", "S"), *_optional(Piece("[.,]"), _value("f")))
_MINUTE = _optional(Piece(":"), Piece(r"[0-5]\d", "M"), *_SECOND)
_HOUR = _optional(Piece("[t ]"), Piece(r"[01]\d|2[0-3]", "H"), *_MINUTE, *_optional(_value("z")))
_DAY = _optional(Piece("-"), Piece(r"0[1-9]|[12]\d|3[01]", "d"), *_HOUR)
_ISO = (_value("Y"), *_optional(Piece("-"), Piece(r"0[1-9]|1[0-2]", "m"), *_DAY))


def pieces_of(form: str) -> tuple[Piece, ...]:
    """Split "iso", or a format of `strptime` with the directives Y y m b B d j H I p M S f z a A %, into pieces.

    Raise InfeedError for an unknown or repeated directive, a format without a year, or a day without a month.
    """
    if form == ISO:
        return _ISO
    pieces = tuple(_piece(part, form) for part in re.findall(r"%.|[^%]+|%$", form, re.DOTALL))
    held = [piece.directive for piece in pieces if piece.directive]
    has_month = not {"m", "b", "B"}.isdisjoint(held)
    if len(held) != len(set(held)) or {"Y", "y"}.isdisjoint(held) or ("d" in held and not has_month):
        do = 'write one such as "%Y-%m-%d", with the year and, if it has a day, the month'
        raise InfeedError(f"the format {form!r} must contain the date once", where="the format of a date", do=do)
    return pieces


def _piece(part: str, form: str) -> Piece:
    if part == "%%":
        return Piece("%")
    if not part.startswith("%"):
        return Piece(re.sub(r"(\\\s|\s)+", r"\\s+", re.escape(part.lower())))
    if part[1:] not in _DIRECTIVES:
        do = f"use these: {' '.join('%' + name for name in _DIRECTIVES)} %%"
        raise InfeedError(f"the format {form!r} contains {part!r}", where="the format of a date", do=do)
    return _value(part[1:])


def regex_of(pieces: Sequence[Piece], directive: str = "") -> str:
    """Return a regular expression of lower-case text that captures one directive. RE2 supports nine groups."""
    return "".join(
        f"({'' if piece.directive == directive else '?:'}{piece.pattern})" if piece.directive else piece.pattern
        for piece in pieces
    )


def regexes_of(form: str) -> tuple[str, dict[str, str]]:
    """Return the regular expression of a format (see `pieces_of`), and one for each directive with a group."""
    pieces = pieces_of(form)
    return regex_of(pieces), {one.directive: regex_of(pieces, one.directive) for one in pieces if one.directive}


def check_format(options: Any, name: str = "format") -> None:
    """Raise OptionError unless the option is None, "iso", a format of `strptime`, or one of `EPOCHS`."""
    if (form := getattr(options, name)) is None or form in EPOCHS:
        return
    require(isinstance(form, str), options, name, 'give it as "iso", a format of strptime or "epoch_s"')
    with about(options, name):
        pieces_of(form)


@functools.cache
def named_regex(form: str) -> str:
    """Return a regular expression of whole texts in any case, with a group named after each directive."""
    named = (f"(?P<{one.directive}>{one.pattern})" if one.directive else one.pattern for one in pieces_of(form))
    return rf"(?i)^\s*(?:{''.join(named)})\s*$"


def formats_of(texts: Iterable[str]) -> list[str]:
    """Return the usual formats that match all texts. Several match if day and month are ambiguous."""
    given = list(texts)
    return [form for form in _USUAL if all(re.search(named_regex(form), text) for text in given)]
