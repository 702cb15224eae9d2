"""Rows that cannot be read: fail at the first one, or set them aside in a file with the reason, up to a limit."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass

from infeed.components.dataset.options import OnBadRow
from infeed.components.errors import InfeedError

REJECTS = "rejected.jsonl"  # beside the splits


@dataclass(frozen=True)
class BadRow:
    """A row that no typed row can be made of.

    Args:
      file: path of the file, or whatever else the source calls the place.
      line: number of the line or row in it, from 1; None where there is none.
      column: the column at fault; None where it is the whole row.
      reason: what is wrong, as an error message says it.
      text: the row as it stands there, or as much of it as helps.
    """

    file: str
    line: int | None
    column: str | None
    reason: str
    text: str

    @property
    def where(self) -> str:
        places = [self.file, self.line and f"line {self.line}", self.column and f"column {self.column!r}"]
        return ", ".join(place for place in places if isinstance(place, str))


class BadRows:
    """What a source reports its bad rows to; one for each task."""

    def __init__(self, on_bad_row: OnBadRow = "fail", limit: int = 0) -> None:
        self._on_bad_row, self._limit = on_bad_row, limit
        self._reported = 0
        self._kept: list[BadRow] = []

    def report(self, row: BadRow) -> None:
        """Keeps a row for the reject file; the caller goes on with the next.

        Raises:
          InfeedError: where bad rows are not allowed, or there are more than the limit.
        """
        if self._on_bad_row == "fail":
            raise InfeedError(
                row.reason,
                where=row.where,
                do="mend the row, or set bad rows aside: on_bad_row='reject', --on-bad-row reject",
            )
        self._reported += 1
        check_limit(self._reported, self._limit, row.where)
        self._kept.append(row)

    def take(self) -> tuple[BadRow, ...]:
        """The rows kept since the last call."""
        taken, self._kept = tuple(self._kept), []
        return taken


def check_limit(rows: int, limit: int, where: str) -> None:
    """Raises InfeedError where `rows` bad ones are more than `limit`."""
    if rows > limit:
        raise InfeedError(
            f"more than {limit} bad rows",
            where=f"the last at {where}",
            do="mend the input, check the options of its format, or raise bad_row_limit",
        )


def to_jsonl(rows: Iterable[BadRow]) -> bytes:
    """One JSON object a line."""
    return "".join(json.dumps(dataclasses.asdict(row), ensure_ascii=False) + "\n" for row in rows).encode()
