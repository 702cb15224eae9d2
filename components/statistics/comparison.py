"""Comparison of the columns of two datasets, to detect drift over time or skew between splits.

The measures are those of TensorFlow Data Validation: the Jensen-Shannon divergence of two histograms for numbers, and
the L-infinity distance, the largest difference of a value's share, for text. Two details differ. TFDV divides each
side into ten buckets of equal width, so one outlier changes all bounds. Here, both sides share buckets of about equal
counts. TFDV compares the 1,000 most frequent texts; this module compares all counted ones.

The share of missing rows, the lengths of lists, and new and lost words have separate limits. Two samples of rare words
always differ. The expected share of new words is the share of words that occur once (I. J. Good, 1953). Only the
excess counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from infeed.components.base.checks import require
from infeed.components.base.units import percent
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.dataset.statistics.histograms import common_histograms, jensen_shannon, lengths_of, numbers_of
from infeed.components.dataset.statistics.value_counts import ValueCounts

Measure = Literal["Jensen-Shannon", "L-infinity"]


@dataclass(frozen=True)
class ComparisonOptions:
    """Thresholds of the comparison.

    Attributes:
      jensen_shannon: largest divergence of numbers, from 0 to 1.
      l_infinity: largest difference of a value's share, from 0 to 1.
      missing: largest difference of the share of rows without a value, from 0 to 1.
      lengths: largest divergence of the number of values of a row, from 0 to 1.
      new_words: largest share of values that only the later side has, above the share expected by chance.
      lost_words: largest share of values that only the earlier side has, above the share expected by chance.
    """

    jensen_shannon: float = 0.1
    l_infinity: float = 0.1
    missing: float = 0.1
    lengths: float = 0.1
    new_words: float = 0.1
    lost_words: float = 0.1

    def __post_init__(self) -> None:
        for option in fields(self):
            require(0 <= getattr(self, option.name) <= 1, self, option.name, "use a number from 0 to 1")


@dataclass(frozen=True)
class Difference:
    """A difference between the sides.

    Attributes:
      measure: name of the option that limits the distance.
      distance: from 0 (equal) to 1 (disjoint). None if one side has no values.
      change: what has changed, such as "10 % -> 90 % of the rows".
    """

    measure: Literal["missing", "lengths", "new_words", "lost_words"]
    distance: float | None
    threshold: float
    change: str

    @property
    def exceeds(self) -> bool:
        return self.distance is not None and self.distance > self.threshold


@dataclass(frozen=True)
class ColumnChange:
    """Change of one column."""

    name: str
    before: ColumnStatistics | None  # None if the column does not exist
    after: ColumnStatistics | None
    measure: Measure | None = None  # None if the columns cannot be compared
    distance: float | None = None  # from 0 (equal) to 1 (disjoint). None if one side has no values
    threshold: float = 0.0  # largest allowed distance
    most: bytes | None = None  # for text, the value with the largest difference
    differences: tuple[Difference, ...] = ()  # differences in other measures than the values

    @property
    def problem(self) -> str:
        """Description of the problem in a few words, or ""."""
        if self.before is None:
            return "new"
        if self.after is None:
            return "lost"
        if self.before.type != self.after.type:
            return f"was {self.before.type}, is {self.after.type}"
        return "differs" if self.values_differ or any(one.exceeds for one in self.differences) else ""

    @property
    def values_differ(self) -> bool:
        return self.distance is not None and self.distance > self.threshold


def compare(
    before: Mapping[str, ColumnStatistics],
    after: Mapping[str, ColumnStatistics],
    options: ComparisonOptions | None = None,
) -> list[ColumnChange]:
    """Return the change of every column of either side, sorted by name. Columns without any row are ignored."""
    options = options or ComparisonOptions()
    olds, news = ({name: one for name, one in side.items() if one.present} for side in (before, after))
    return [_change(name, olds.get(name), news.get(name), options) for name in sorted({*olds, *news})]


def _change(
    name: str, old: ColumnStatistics | None, new: ColumnStatistics | None, options: ComparisonOptions
) -> ColumnChange:
    if old is None or new is None or old.type != new.type:
        return ColumnChange(name, old, new)
    before, after = (side.missing / max(1, side.rows) for side in (old, new))
    change = f"{percent(before)} -> {percent(after)} of the rows"
    others = [Difference("missing", abs(after - before), options.missing, change)]
    distance = jensen_shannon(*common_histograms(lengths_of(old.lengths), lengths_of(new.lengths)))
    change = f"{old.lengths.mean:.3g} -> {new.lengths.mean:.3g} values a row"
    others.append(Difference("lengths", distance, options.lengths, change))
    if old.type != "bytes":
        distance = jensen_shannon(*common_histograms(numbers_of(old), numbers_of(new)))
        limit = options.jensen_shannon
        return ColumnChange(name, old, new, "Jensen-Shannon", distance, limit, differences=tuple(others))
    distance, most = l_infinity(old.counts, new.counts)
    # Columns with more words than are counted have no new and lost words.
    if old.counts.exact and new.counts.exact and old.counts.total and new.counts.total:
        others += [
            _appeared("new_words", old.counts, new.counts, options.new_words, "of the values"),
            _appeared("lost_words", new.counts, old.counts, options.lost_words, "of the earlier values"),
        ]
    return ColumnChange(name, old, new, "L-infinity", distance, options.l_infinity, most, tuple(others))


def _appeared(
    measure: Literal["new_words", "lost_words"], base: ValueCounts, other: ValueCounts, limit: float, words: str
) -> Difference:
    """Return the share of values of `other` that are not in `base`, minus the share of words that `base` has once."""
    known, counts = {value for value, _ in base.items()}, dict(other.items())
    strange = {value: count for value, count in counts.items() if value not in known}
    share, expected = sum(strange.values()) / other.total, int((base.counts == 1).sum()) / base.total
    return Difference(measure, max(0.0, share - expected), limit, f"{percent(share)} {words}")


def l_infinity(before: ValueCounts, after: ValueCounts) -> tuple[float | None, Any]:
    """Return the largest difference of a value's share, and that value. None if neither side has values."""
    old, new = dict(before.items()), dict(after.items())
    olds, news = max(1, before.total), max(1, after.total)
    differences = {value: abs(new.get(value, 0) / news - old.get(value, 0) / olds) for value in {**old, **new}}
    most = max(differences, key=lambda value: (differences[value], value), default=None)
    return differences.get(most), most
