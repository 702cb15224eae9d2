"""Parts of dates and timestamps as numbers.

Vocabulary("sold_on", output="weekday", clean=(DatePart("weekday", "%d.%m.%Y"),))
Cycle("started_at", output="hour", period=24, clean=(DatePart("hour", "epoch_ms", utc_offset=1),))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from infeed.components.base.checks import check_fields, require
from infeed.components.dataset.time_formats import DAY, EPOCHS, FIRST, ISO, LAST, MONTHS, check_format, regexes_of
from infeed.components.transform.feature import Clean, FlatColumn, Tensor, is_finite, tf

Part = Literal[
    "year", "quarter", "month", "week", "day", "day_of_year", "weekday", "hour", "minute", "second", "days", "seconds"
]


@dataclass(frozen=True)
class DatePart(Clean):
    """Convert a date or time to an integer part. Malformed and nonexistent dates become missing.

    The calendar is the proleptic Gregorian one, years 1 to 9999.

    Attributes:
      part: "year", "quarter" (1 to 4), "month" (1 to 12), "week" (1 to 53, of ISO 8601), "day" (1 to 31), "day_of_year"
        (1 to 366), "weekday" (0 is Monday), "hour", "minute" or "second"; or "days" or "seconds" since 1970.
      format: "iso" is ISO 8601, such as 2024-02, 2024-02-29 or 2024-02-29T17:05:09.25+01:00. For other text, use
          directives of `strptime`, such as "%d.%m.%Y %H:%M". Names are English. "epoch_s", "epoch_ms", "epoch_us" and
        "epoch_ns" are numbers since 1970. Text without an offset (%z) is in UTC. Text without a time is midnight.
      utc_offset: UTC offset, in hours, of the time zone of the result.
    """

    part: Part
    format: str = ISO
    utc_offset: float = 0.0
    kind: Literal["date_part"] = field(default="date_part", kw_only=True, repr=False)

    def __post_init__(self) -> None:
        check_fields(self)
        is_offset = is_finite(self.utc_offset) and abs(self.utc_offset) <= 24
        require(is_offset, self, "utc_offset", "use hours, -24 to 24")
        check_format(self)

    @property
    def takes(self) -> tuple[str, ...]:
        return ("int", "float") if self.format in EPOCHS else ("bytes",)

    def gives(self, type_: str) -> str:
        return "int"

    def apply(self, column: FlatColumn, found: Sequence[Any]) -> FlatColumn:
        if self.format in EPOCHS:
            micros, valid = from_epoch(column.values, self.format)
        else:
            micros, valid = parse(column.values, *regexes_of(self.format))
        micros += round(self.utc_offset * 3_600_000_000)
        present = column.present & valid & in_calendar(micros)
        return column._replace(values=tf.where(present, part_of(micros, self.part), 0), present=present)


SECOND = 1_000_000


class Times(NamedTuple):
    """Parsed times. If `valid` is False, `micros` is 0."""

    micros: Tensor  # int64, microseconds since 1970-01-01T00:00 UTC
    valid: Tensor  # bool


class Civil(NamedTuple):
    """Calendar date, int64 each."""

    year: Tensor
    month: Tensor  # 1 to 12
    day: Tensor  # 1 to 31


def from_epoch(numbers: Tensor, unit: str) -> Times:
    """Convert numbers since 1970 in "epoch_s", "epoch_ms", "epoch_us" or "epoch_ns" to times.

    Numbers are int64, or float32, which is exact to 64 seconds for a current "epoch_s". NaN, infinity and times outside
    the calendar are invalid.
    """
    multiply, divide = EPOCHS[unit]
    # Nanoseconds in int64 cover only 1677 to 2262.
    least, beyond = max(FIRST * divide // multiply, tf.int64.min), min(LAST * divide // multiply, tf.int64.max)
    valid = (numbers >= tf.constant(least, numbers.dtype)) & (numbers < tf.constant(beyond, numbers.dtype))  # no NaN
    numbers = tf.where(valid, numbers, tf.zeros_like(numbers))
    if numbers.dtype.is_floating:
        micros = tf.cast(tf.floor(tf.cast(numbers, tf.float64) * multiply / divide), tf.int64)
    else:
        micros = tf.math.floordiv(numbers * multiply, divide)
    return Times(micros, valid)


def in_calendar(micros: Tensor) -> Tensor:
    """Return whether times are within the years 1 to 9999."""
    return (micros >= FIRST) & (micros < LAST)


def days_from_civil(year: Tensor, month: Tensor, day: Tensor) -> Tensor:
    """Return days since 1970-01-01, int64. Days beyond the end of a month continue in the next month.

    After H. Hinnant, "chrono-Compatible Low-Level Date Algorithms": years begin in March, so that the leap day comes
    last. 400 years, an era, have 146,097 days.
    """
    year = tf.where(month <= 2, year - 1, year)
    era = tf.math.floordiv(year, 400)
    of_era = year - era * 400
    of_year = tf.math.floordiv(153 * tf.where(month > 2, month - 3, month + 9) + 2, 5) + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def civil_from_days(days: Tensor) -> Civil:
    """Return the date for days since 1970-01-01; see `days_from_civil`."""
    days = days + 719_468
    era = tf.math.floordiv(days, 146_097)
    of_era = days - era * 146_097
    year = tf.math.floordiv(of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096, 365)
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153  # 0 is March
    day = of_year - (153 * shifted + 2) // 5 + 1
    month = tf.where(shifted < 10, shifted + 3, shifted - 9)
    return Civil(year + era * 400 + tf.cast(month <= 2, tf.int64), month, day)


def part_of(micros: Tensor, part: str) -> Tensor:
    """Return one part of each time, int64; see `DatePart`."""
    return _PARTS[part](micros)


def _days(micros: Tensor) -> Tensor:
    return tf.math.floordiv(micros, DAY)


def _seconds(micros: Tensor) -> Tensor:
    return tf.math.floordiv(micros, SECOND)


def _civil(micros: Tensor) -> Civil:
    return civil_from_days(_days(micros))


def _weekday(days: Tensor) -> Tensor:
    return tf.math.floormod(days + 3, 7)  # 1970-01-01 was a Thursday


def _day_of_year(days: Tensor) -> Tensor:
    year = civil_from_days(days).year
    return days - days_from_civil(year, tf.ones_like(year), tf.ones_like(year)) + 1


def _week(days: Tensor) -> Tensor:
    # A week belongs to the year of its Thursday. Its number counts the Thursdays of that year up to this one.
    return (_day_of_year(days - _weekday(days) + 3) - 1) // 7 + 1


_PARTS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "year": lambda micros: _civil(micros).year,
    "quarter": lambda micros: (_civil(micros).month + 2) // 3,
    "month": lambda micros: _civil(micros).month,
    "week": lambda micros: _week(_days(micros)),
    "day": lambda micros: _civil(micros).day,
    "day_of_year": lambda micros: _day_of_year(_days(micros)),
    "weekday": lambda micros: _weekday(_days(micros)),
    "hour": lambda micros: tf.math.floormod(_seconds(micros) // 3_600, 24),
    "minute": lambda micros: tf.math.floormod(_seconds(micros) // 60, 60),
    "second": lambda micros: tf.math.floormod(_seconds(micros), 60),
    "days": _days,
    "seconds": _seconds,
}


def parse(texts: Tensor, whole: str, parts: Mapping[str, str]) -> Times:
    """Parse dates as text with English names. Case and surrounding white space are ignored.

    Text without a time is midnight; text without `%z` is UTC. `%y` is 1969 to 2068, as in POSIX. Fractions are
    truncated to six digits.

    Args:
      texts: string.
      whole: regular expression of the whole text, in lower case.
      parts: directive of `strptime` -> the same expression with a group around the value of the directive.
    """
    texts = tf.strings.strip(tf.strings.lower(texts))
    matched = tf.strings.regex_full_match(texts, whole)
    held = {
        directive: tf.where(matched, tf.strings.regex_replace(texts, f"^{regex}$", r"\1"), "")
        for directive, regex in parts.items()
    }
    days, exists = _days_of(held)
    micros = days * DAY + _time_of_day(held)
    valid = matched & exists & in_calendar(micros)
    return Times(tf.where(valid, micros, 0), valid)


def _number(held: Mapping[str, Tensor], directive: str, default: int = 0) -> Tensor:
    """Return the numbers of a group, int64. `default` if the group is empty, or the format has no such directive."""
    if directive not in held:
        return tf.constant(default, tf.int64)
    text = held[directive]
    return tf.strings.to_number(tf.where(text == "", str(default), text), tf.int64)


def _days_of(held: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return days since 1970, and whether the date exists."""
    year = _number(held, "Y" if "Y" in held else "y")
    if "Y" not in held:
        year += tf.where(year >= 69, tf.constant(1900, tf.int64), tf.constant(2000, tf.int64))
    if "j" in held:
        first = days_from_civil(year, tf.ones_like(year), tf.ones_like(year))
        days = first + _number(held, "j") - 1
        return days, (civil_from_days(days).year == year) & (year >= 1)
    if name := {"b", "B"} & set(held):
        short = tf.strings.substr(held[name.pop()], 0, 3)
        month = tf.argmax(tf.cast(short[..., tf.newaxis] == tf.constant(MONTHS), tf.int8), -1) + 1
    else:
        month = _number(held, "m", 1)
    month, day = tf.broadcast_to(month, tf.shape(year)), tf.broadcast_to(_number(held, "d", 1), tf.shape(year))
    days = days_from_civil(year, month, day)
    back = civil_from_days(days)  # the 30th of February becomes a day of March
    return days, (back.month == month) & (back.day == day) & (year >= 1)


def _time_of_day(held: Mapping[str, Tensor]) -> Tensor:
    """Return microseconds since midnight UTC."""
    hours = _number(held, "H")
    if "I" in held:
        hours = _number(held, "I") % 12 + (12 * tf.cast(held["p"] == "pm", tf.int64) if "p" in held else 0)
    fraction: Tensor | int = 0
    if "f" in held:
        fraction = tf.strings.to_number(tf.strings.substr(held["f"] + "000000", 0, 6), tf.int64)
    offset: Tensor | int = 0  # offset from UTC, in minutes
    if "z" in held:
        digits = tf.strings.regex_replace(held["z"], "[^0-9]", "") + "0000"  # hhmm. "z" and no offset are 0000
        offset = tf.strings.to_number(tf.strings.substr(digits, 0, 2), tf.int64) * 60
        offset += tf.strings.to_number(tf.strings.substr(digits, 2, 2), tf.int64)
        offset = tf.where(tf.strings.substr(held["z"], 0, 1) == "-", -offset, offset)
    seconds = (hours * 60 + _number(held, "M") - offset) * 60 + _number(held, "S")
    return seconds * SECOND + fraction
