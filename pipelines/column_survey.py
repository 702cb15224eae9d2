"""One column of a table: what is in it, counted block by block."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.dataset import columns

# Values of a column that are counted one by one; a column with more is known to have many, and that is enough.
MAX_DISTINCT = 10_000
# A text of which more than half of the values are different names rows; it does not describe them.
_IDENTIFIER_SHARE = 0.5


@dataclass(frozen=True)
class ColumnSurvey:
    """One column of a table. `type` is what it becomes in a tf.Example: "int", "float" or "bytes".

    Attributes:
      rows: rows in the table.
      missing: empty cells.
      distinct: different values; None where there are more than 10,000.
      mean, std: of the numbers; 0 for text.
      commonest: rows that hold the commonest value; 0 where there are too many values to count.
      is_list: whether a row may hold several values, which are then all counted.
    """

    name: str
    type: str
    rows: int
    missing: int
    distinct: int | None
    mean: float
    std: float
    commonest: int
    is_list: bool = False

    @property
    def useless(self) -> str:
        """Why nothing can be learned from the column; empty where something can."""
        if self.missing == self.rows:
            return "it is empty"
        if self.is_list:
            return "its rows hold lists"
        if self.distinct == 1 and not self.missing:
            return "every row has the same value"
        if self.type == "bytes" and self._is_identifier():
            return "nearly every row has a value of its own"
        return ""

    def _is_identifier(self) -> bool:
        present = self.rows - self.missing
        return self.distinct is None or self.distinct > max(100, present * _IDENTIFIER_SHARE)


class ColumnSums:
    """Sums over the blocks of one column."""

    def __init__(self, field: pa.Field) -> None:
        self._name = field.name
        self._type = columns.kind_of(field.type) or "bytes"
        self._is_list = columns.is_list(field.type)
        self._rows = self._missing = self._values = 0
        self._sum = self._squares = 0.0
        self._counts: Counter[object] | None = Counter()

    def add(self, rows: pa.Array) -> None:
        """Adds a block, [rows]."""
        self._rows += len(rows)
        self._missing += rows.null_count
        if rows.null_count == len(rows):
            return
        values = columns.to_values(columns.items_of(rows)).drop_null()
        self._values += len(values)
        if self._type != "bytes":
            numbers = values.cast(pa.float64(), safe=False)
            self._sum += pc.sum(numbers).as_py() or 0.0
            self._squares += pc.sum(pc.multiply(numbers, numbers)).as_py() or 0.0
        self._count(values)

    def _count(self, values: pa.Array) -> None:
        if self._counts is None:
            return
        counted = pc.value_counts(values)
        if len(counted) > MAX_DISTINCT:
            self._counts = None
            return
        for entry in counted.to_pylist():
            self._counts[entry["values"]] += entry["counts"]
        if len(self._counts) > MAX_DISTINCT:
            self._counts = None

    def survey(self) -> ColumnSurvey:
        """What there was in all blocks."""
        values = max(1, self._values)
        mean = self._sum / values
        return ColumnSurvey(
            name=self._name,
            type=self._type,
            rows=self._rows,
            missing=self._missing,
            distinct=None if self._counts is None else len(self._counts),
            mean=mean,
            std=math.sqrt(max(0.0, self._squares / values - mean * mean)),
            commonest=max(self._counts.values(), default=0) if self._counts else 0,
            is_list=self._is_list,
        )
