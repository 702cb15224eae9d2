"""Compare the columns of two datasets to detect drift over time or skew between splits.

The measures are those of TensorFlow Data Validation: the Jensen-Shannon divergence of two histograms for numbers, and
the L-infinity distance, the largest difference of a value's share, for text. Two details differ. TFDV divides each side
into ten buckets of equal width, so that one outlier changes all bounds; here both sides share buckets of about equal
counts. TFDV compares the 1,000 most frequent texts, and this module all counted ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from infeed.components.checks import require
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.dataset.statistics.histograms import common_histograms, jensen_shannon, numbers_of
from infeed.components.dataset.statistics.value_counts import ValueCounts

Measure = Literal["Jensen-Shannon", "L-infinity"]


@dataclass(frozen=True)
class ComparisonOptions:
    """Thresholds of the comparison.

    Attributes:
      jensen_shannon: largest divergence of numbers, from 0 to 1.
      l_infinity: largest difference of a value's share, from 0 to 1.
    """

    jensen_shannon: float = 0.1
    l_infinity: float = 0.1

    def __post_init__(self) -> None:
        for name in ("jensen_shannon", "l_infinity"):
            require(0 <= getattr(self, name) <= 1, self, name, "use a number from 0 to 1")


@dataclass(frozen=True)
class ColumnChange:
    """The change of one column."""

    name: str
    before: ColumnStatistics | None  # None if the column does not exist
    after: ColumnStatistics | None
    measure: Measure | None = None  # None if the columns cannot be compared
    distance: float | None = None  # from 0, equal, to 1, disjoint; None if one side has no values
    threshold: float = 0.0  # largest allowed distance
    most: bytes | None = None  # for text, the value whose share differs most

    @property
    def problem(self) -> str:
        """What is wrong, in a few words, or ""."""
        if self.before is None:
            return "new"
        if self.after is None:
            return "lost"
        if self.before.type != self.after.type:
            return f"was {self.before.type}, is {self.after.type}"
        return "differs" if self.distance is not None and self.distance > self.threshold else ""


def compare(
    before: Mapping[str, ColumnStatistics],
    after: Mapping[str, ColumnStatistics],
    options: ComparisonOptions | None = None,
) -> list[ColumnChange]:
    """Return the change of every column of either side, sorted by name. Columns that no row has are ignored."""
    options = options or ComparisonOptions()
    olds, news = ({name: one for name, one in side.items() if one.present} for side in (before, after))
    changes = []
    for name in sorted({*olds, *news}):
        old, new = olds.get(name), news.get(name)
        if old is None or new is None or old.type != new.type:
            changes.append(ColumnChange(name, old, new))
        elif old.type == "bytes":
            distance, most = l_infinity(old.counts, new.counts)
            changes.append(ColumnChange(name, old, new, "L-infinity", distance, options.l_infinity, most))
        else:
            distance = jensen_shannon(*common_histograms(numbers_of(old), numbers_of(new)))
            changes.append(ColumnChange(name, old, new, "Jensen-Shannon", distance, options.jensen_shannon))
    return changes


def l_infinity(before: ValueCounts, after: ValueCounts) -> tuple[float | None, Any]:
    """Return the largest difference of a value's share, and that value. None if neither side has values."""
    old, new = dict(before.items()), dict(after.items())
    olds, news = max(1, before.total), max(1, after.total)
    differences = {value: abs(new.get(value, 0) / news - old.get(value, 0) / olds) for value in {**old, **new}}
    most = max(differences, key=lambda value: (differences[value], value), default=None)
    return differences.get(most), most
