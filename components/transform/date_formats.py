"""How dates are written: a format, as `strptime` has it, to a regular expression that a graph can run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from infeed.components.errors import InfeedError

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_LONGMONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_LONG_DAYS = "monday|tuesday|wednesday|thursday|friday|saturday|sunday"

# What a directive of `strptime` matches. Values out of range do not match.
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
    "z": r"z|[+-]\d\d(?::?[0-5]\d)?",
}


class Piece(NamedTuple):
    """One part of the regular expression of a format; `directive` is empty where it holds no value."""

    directive: str
    pattern: str


def _fixed(pattern: str) -> Piece:
    return Piece("", pattern)


def _value(directive: str) -> Piece:
    return Piece(directive, _DIRECTIVES[directive])


# ISO 8601's extended form: 2024-02-29, 2024-02-29T17:05, 2024-02-29 17:05:09.25+01:00.
_ISO = (
    *(Piece("Y", r"\d{4}"), _fixed("-"), Piece("m", r"0[1-9]|1[0-2]"), _fixed("-"), Piece("d", r"0[1-9]|[12]\d|3[01]")),
    *(_fixed("(?:[t ]"), Piece("H", r"[01]\d|2[0-3]"), _fixed(":"), Piece("M", r"[0-5]\d")),
    *(_fixed("(?::"), Piece("S", r"[0-5]\d"), _fixed(r"(?:[.,]"), _value("f"), _fixed(")?)?(?:")),
    *(_value("z"), _fixed(")?)?")),
)


def pieces_of(form: str) -> tuple[Piece, ...]:
    """What a text of this form is made of.

    Args:
      form: "iso", or directives of `strptime` such as "%d.%m.%Y %H:%M": Y y m b B d j H I p M S f z a A %.

    Raises:
      InfeedError: a directive that there is not, one that occurs twice, or no full date.
    """
    if form == "iso":
        return _ISO
    pieces = tuple(_piece(part, form) for part in re.findall(r"%.|[^%]+|%$", form, re.DOTALL))
    held = [piece.directive for piece in pieces if piece.directive]
    days = ({"d"} & set(held) and {"m", "b", "B"} & set(held)) or {"j"} & set(held)
    if len(held) != len(set(held)) or not ({"Y", "y"} & set(held) and days):
        raise InfeedError(
            f"the format {form!r} does not say the day once",
            where="the format of a date",
            do='write one such as "%Y-%m-%d", with a year, a month and a day, or a year and %j',
        )
    return pieces


def _piece(part: str, form: str) -> Piece:
    if part == "%%":
        return _fixed("%")
    if not part.startswith("%"):
        return _fixed(re.sub(r"(\\\s|\s)+", r"\\s+", re.escape(part.lower())))
    if part[1:] not in _DIRECTIVES:
        raise InfeedError(
            f"the format {form!r} has {part!r}",
            where="the format of a date",
            do=f"use these: {' '.join('%' + name for name in _DIRECTIVES)} %%",
        )
    return _value(part[1:])


def regex_of(pieces: Sequence[Piece], directive: str = "") -> str:
    """Matches a whole text in lower case, and captures one directive: RE2 rewrites with nine groups at most."""
    return "".join(
        _grouped(piece, piece.directive == directive) if piece.directive else piece.pattern for piece in pieces
    )


def _grouped(piece: Piece, captured: bool) -> str:
    return f"({piece.pattern})" if captured else f"(?:{piece.pattern})"
