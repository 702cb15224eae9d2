"""Schedules of compiled jobs: runs that the platform starts by a cron expression."""

from __future__ import annotations

import re
from dataclasses import dataclass

from infeed.components.errors import InfeedError

_FIELD = re.compile(r"[\w*/,-]+")


@dataclass(frozen=True)
class RunSchedule:
    """A schedule on the platform; `link` is its page in the platform's user interface."""

    id: str
    name: str
    link: str


def check_cron(expression: str) -> str:
    """Return a cron expression with single spaces.

    Raises:
      InfeedError: the expression does not have five fields: minute, hour, day, month, day of week.
    """
    fields = expression.split()
    if len(fields) != 5 or not all(map(_FIELD.fullmatch, fields)):
        raise InfeedError(
            f"{expression!r} is not a cron expression of five fields",
            where="--cron",
            do="give minute, hour, day, month and day of week, for example '0 6 * * 1-5' for 6:00 on weekdays",
        )
    return " ".join(fields)
