"""Parts of dates and timestamps as numbers, and `strptime` formats as regular expressions.

Vocabulary("sold_on", output="weekday", clean=(DatePart("weekday", "%d.%m.%Y"),))
Cycle("started_at", output="hour", period=24, clean=(DatePart("hour", "epoch_ms", utc_offset=1),))
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from infeed.components.checks import about, check_fields, require
from infeed.components.errors import InfeedError
from infeed.components.transform.feature import Clean, FlatColumn, is_finite, tf

Part = Literal[
    "year", "quarter", "month", "week", "day", "day_of_year", "weekday", "hour", "minute", "second", "days", "seconds"
]
EPOCHS = ("epoch_s", "epoch_ms", "epoch_us", "epoch_ns")
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
    "b": "|".join(month[:3] for month in _LONGMONTHS.split("|")),
    "B": _LONGMONTHS,
    "a": "|".join(day[:3] for day in _LONG_DAYS.split("|")),
    "A": _LONG_DAYS,
    "z": r"z|[+-]\d\d(?::?[0-5]\d)?",
}


@dataclass(frozen=True)
class DatePart(Clean):
    """Convert a date or time to an integer part. Malformed and nonexistent dates become missing.

    The calendar is the proleptic Gregorian one, years 1 to 9999.

    Attributes:
      part: "year", "quarter" (1 to 4), "month" (1 to 12), "week" (1 to 53, of ISO 8601), "day" (1 to 31), "day_of_year"
        (1 to 366), "weekday" (0 is Monday), "hour", "minute" or "second"; or "days" or "seconds" since 1970.
      format: "iso" is ISO 8601, such as 2024-02-29 or 2024-02-29T17:05:09.25+01:00. Other text is described by
        directives of `strptime`, such as "%d.%m.%Y %H:%M"; names are English. "epoch_s", "epoch_ms", "epoch_us" and
        "epoch_ns" are numbers since 1970. Text without an offset (%z) is in UTC, and text without a time is midnight.
      utc_offset: offset from UTC, in hours, of the clock that the part refers to.
    """

    part: Part
    format: str = "iso"
    utc_offset: float = 0.0
    kind: Literal["date_part"] = field(default="date_part", kw_only=True, repr=False)

    def __post_init__(self) -> None:
        check_fields(self)
        is_offset = is_finite(self.utc_offset) and abs(self.utc_offset) <= 24
        require(is_offset, self, "utc_offset", "give it in hours, -24 to 24")
        require(isinstance(self.format, str), self, "format", 'give it as "iso", a format of strptime or "epoch_s"')
        if self.format not in EPOCHS:
            with about(self, "format"):
                pieces_of(self.format)

    @property
    def takes(self) -> tuple[str, ...]:
        return ("int", "float") if self.format in EPOCHS else ("bytes",)

    def gives(self, type_: str) -> str:
        return "int"

    def apply(self, column: FlatColumn, found: Sequence[Any]) -> FlatColumn:
        from infeed.components.transform.operators.dates import from_epoch, in_calendar, parse, part_of

        if self.format in EPOCHS:
            micros, valid = from_epoch(column.values, self.format)
        else:
            micros, valid = parse(column.values, *regexes_of(self.format))
        micros += round(self.utc_offset * 3_600_000_000)
        present = column.present & valid & in_calendar(micros)
        return column._replace(values=tf.where(present, part_of(micros, self.part), 0), present=present)


class Piece(NamedTuple):
    """A part of the regular expression of a format. `directive` is empty for literal text."""

    pattern: str
    directive: str = ""


def _value(directive: str) -> Piece:
    return Piece(_DIRECTIVES[directive], directive)


# ISO 8601's extended form: 2024-02-29, 2024-02-29T17:05, 2024-02-29 17:05:09.25+01:00.
_ISO = (
    *(Piece(r"\d{4}", "Y"), Piece("-"), Piece(r"0[1-9]|1[0-2]", "m"), Piece("-"), Piece(r"0[1-9]|[12]\d|3[01]", "d")),
    *(Piece("(?:[t ]"), Piece(r"[01]\d|2[0-3]", "H"), Piece(":"), Piece(r"[0-5]\d", "M")),
    *(Piece("(?::"), Piece(r"[0-5]\d", "S"), Piece(r"(?:[.,]"), _value("f"), Piece(")?)?(?:")),
    *(_value("z"), Piece(")?)?")),
)


def pieces_of(form: str) -> tuple[Piece, ...]:
    """Split "iso", or a format of `strptime` with the directives Y y m b B d j H I p M S f z a A %, into pieces.

    A directive that is unknown or repeated, or a format without a complete date, is an InfeedError.
    """
    if form == "iso":
        return _ISO
    pieces = tuple(_piece(part, form) for part in re.findall(r"%.|[^%]+|%$", form, re.DOTALL))
    held = [piece.directive for piece in pieces if piece.directive]
    days = ({"d"} & set(held) and {"m", "b", "B"} & set(held)) or {"j"} & set(held)
    if len(held) != len(set(held)) or not ({"Y", "y"} & set(held) and days):
        do = 'write one such as "%Y-%m-%d", with a year, a month and a day, or a year and %j'
        raise InfeedError(f"the format {form!r} must contain the day once", where="the format of a date", do=do)
    return pieces


def _piece(part: str, form: str) -> Piece:
    if part == "%%":
        return Piece("%")
    if not part.startswith("%"):
        return Piece(re.sub(r"(\\\s|\s)+", r"\\s+", re.escape(part.lower())))
    if part[1:] not in _DIRECTIVES:
        do = f"use these: {' '.join('%' + name for name in _DIRECTIVES)} %%"
        raise InfeedError(f"the format {form!r} has {part!r}", where="the format of a date", do=do)
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
