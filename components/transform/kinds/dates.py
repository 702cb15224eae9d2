"""Parts of dates and timestamps as numbers.

Vocabulary("sold_on", output="weekday", clean=(DatePart("weekday", "%d.%m.%Y"),))
Cycle("started_at", output="hour", period=24, clean=(DatePart("hour", "epoch_ms", utc_offset=1),))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from infeed.components.base.checks import check_fields, require
from infeed.components.dataset.time_formats import EPOCHS, ISO, check_format, regexes_of
from infeed.components.transform.feature import Clean, FlatColumn, is_finite, tf

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
        from infeed.components.transform.operators.dates import from_epoch, in_calendar, parse, part_of

        if self.format in EPOCHS:
            micros, valid = from_epoch(column.values, self.format)
        else:
            micros, valid = parse(column.values, *regexes_of(self.format))
        micros += round(self.utc_offset * 3_600_000_000)
        present = column.present & valid & in_calendar(micros)
        return column._replace(values=tf.where(present, part_of(micros, self.part), 0), present=present)
