"""Dates and timestamps to numbers.

Vocabulary("sold_on", output="weekday", clean=(DatePart("weekday", "%d.%m.%Y"),))
Cycle("started_at", output="hour", period=24, clean=(DatePart("hour", "epoch_ms", utc_offset=1),))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from infeed.components.checks import about, check_choices, require
from infeed.components.transform.feature import Clean, FlatColumn, is_finite

Part = Literal[
    "year", "quarter", "month", "week", "day", "day_of_year", "weekday", "hour", "minute", "second", "days", "seconds"
]
EPOCHS = ("epoch_s", "epoch_ms", "epoch_us", "epoch_ns")
_MICROS_OF_AN_HOUR = 3_600_000_000


@dataclass(frozen=True)
class DatePart(Clean):
    """A date or time to one part of it, a whole number; one that is malformed, or does not exist, is missing.

    Of the proleptic Gregorian calendar, years 1 to 9999: "year", "quarter" (1 to 4), "month" (1 to 12), "week" (1 to
    53, of ISO 8601), "day" (1 to 31), "day_of_year" (1 to 366), "weekday" (0 is Monday), "hour", "minute", "second"; or
    "days" and "seconds" since 1970.

    Attributes:
      part: which one.
      format: "iso" is ISO 8601 such as 2024-02-29 or 2024-02-29T17:05:09.25+01:00; directives of `strptime` are for
        other text, such as "%d.%m.%Y %H:%M"; "epoch_s", "epoch_ms", "epoch_us" and "epoch_ns" are numbers since 1970.
        Text without an offset (%z) is UTC, without a time midnight; names are English.
      utc_offset: hours ahead of UTC of the clock that the part is read from.
    """

    part: Part
    format: str = "iso"
    utc_offset: float = 0.0
    kind: Literal["date_part"] = field(default="date_part", kw_only=True, repr=False)

    def __post_init__(self) -> None:
        from infeed.components.transform.date_formats import pieces_of

        check_choices(self)
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
        import tensorflow as tf

        from infeed.components.transform.operators.dates import from_epoch, in_calendar, parse, part_of

        read = from_epoch if self.format in EPOCHS else parse
        micros, valid = read(column.values, self.format)
        micros += round(self.utc_offset * _MICROS_OF_AN_HOUR)
        present = column.present & valid & in_calendar(micros)
        return column._replace(values=tf.where(present, part_of(micros, self.part), 0), present=present)
