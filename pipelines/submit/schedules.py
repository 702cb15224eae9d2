"""Schedules of compiled jobs: runs that the platform starts by a cron expression."""

from __future__ import annotations

import re
from dataclasses import dataclass

from infeed.components.errors import InfeedError

_FIELD = re.compile(r"[\w*/,-]+")
_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


@dataclass(frozen=True)
class RunSchedule:
    """A schedule on the platform; `link` is its page in the platform's user interface."""

    id: str
    name: str
    link: str


def check_cron(expression: str) -> str:
    """Return a cron expression with single spaces.

    Raises:
      InfeedError: the expression does not have five fields, minute, hour, day, month and day of week, or a number is
        out of range.
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
