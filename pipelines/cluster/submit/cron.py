"""Cron expressions of schedules."""

from __future__ import annotations

import re

from infeed.components.base.errors import InfeedError

# Form of a field, and bounds of minute, hour, day, month and day of week.
_FIELD = re.compile(r"[\w*/,-]+")
_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_TO_7 = re.compile(r"(?:(?P<first>\d)-)?7(?:/(?P<step>[1-9]))?")


def check_cron(expression: str) -> str:
    """Return a cron expression with single spaces.

    Raises InfeedError if the expression does not have five fields, minute, hour, day, month and day of week, or a
    number is out of range.
    """
    fields = expression.split()
    if len(fields) != 5 or not all(map(_fits, fields, _BOUNDS)):
        what = f"{expression!r} is not a cron expression of five fields, each in its range"
        do = "give minute, hour, day, month and day of week, for example '0 6 * * 1-5' for 6:00 on weekdays"
        raise InfeedError(what, where="--cron", do=do)
    return " ".join(fields)


def _fits(field: str, bounds: tuple[int, int]) -> bool:
    numbers = map(int, re.findall(r"(?<![/\w])\d+", field))  # a number after / is a step
    return bool(_FIELD.fullmatch(field)) and all(bounds[0] <= number <= bounds[1] for number in numbers)


def sundays_as_0(expression: str) -> str:
    """Return a cron expression of five fields whose days of the week are 0 to 6. Kubeflow's server accepts no 7."""
    *fields, days = expression.split()
    return " ".join((*fields, ",".join(map(_without_7, days.split(",")))))


def _without_7(days: str) -> str:
    """Return an item of the field, such as `5-7`, or if it contains day 7, its days: `5,6,0`."""
    found = _TO_7.fullmatch(days)
    if not found:
        return days
    numbers = range(int(found["first"] or 7), 8, int(found["step"] or 1))
    return ",".join(dict.fromkeys(str(day % 7) for day in numbers))
