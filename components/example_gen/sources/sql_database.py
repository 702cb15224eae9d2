"""What is asked of a database, whichever way it is reached, and how it says no."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import sqlalchemy as sa

from infeed.components.example_gen.bad_rows import BadRows

Row: TypeAlias = tuple[Any, ...]
Statement: TypeAlias = sa.Select[Any] | sa.TextClause
_ROWS_AT_A_TIME = 10_000  # at most


@dataclass(frozen=True)
class Shape:
    """What the first rows of a result say of all of them.

    Args:
      columns: their names and types, null where no value has come yet.
      rows_at_a_time: how many make a block.
    """

    columns: pa.Schema
    rows_at_a_time: int


class Database(Protocol):
    """A connection; what goes wrong is raised as `RefusedError`."""

    def look_at(self, statement: Statement, where: str, block_bytes: int) -> Shape:
        """Reads a few rows.

        Raises:
          InfeedError: a column, in `where`, whose type has no place in a tf.Example.
        """

    def fetch_row(self, statement: Statement) -> Row:
        """The one row of a result, as Python's own types."""

    def read(
        self, statement: Statement, shape: Shape, where: str, bad_rows: BadRows
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(number of rows read, those of them that fit the shape's columns), block after block."""


class RefusedError(Exception):
    """A database's error, or its driver's. It may quote secrets: only `connect` takes them out."""

    def __init__(self, said: BaseException, do: str = "check the query, and that the database is there") -> None:
        super().__init__(said)
        self.said, self.do = said, do


def rows_in(block_bytes: int, rows: int, size: int) -> int:
    """How many rows fill a block, where so many have this size in bytes."""
    return min(max(1, block_bytes * rows // max(size, 1)), _ROWS_AT_A_TIME)
