"""Statistics as one self-contained HTML page, without scripts or network access.

The template writes each histogram as a few SVG rectangles, because a plotting library would need minutes for a thousand
columns.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from infeed.components.base import units
from infeed.components.base.drawing import render
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.dataset.statistics.histograms import Distribution, Floats, numbers_of
from infeed.components.statistics.comparison import ColumnChange, Difference
from infeed.pipelines.local.statistics.figures import Figures, are_years, label, shown, verdict

_BARS = 24  # bars of a histogram of numbers
_TEXTS = 8  # bars of a chart of texts
_TAIL = 0.01  # share of values at either end that the axis may omit
_TOWERS_FROM = 4.0  # the axis omits the tails if all values span more than this multiple of the inner range
_LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class Bar:
    """Bar of a chart: its label, and its share of the values of each side, from 0 to 1."""

    label: str
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Chart:
    """Histogram of numbers, or bars of single values."""

    upright: bool  # True for vertical bars on an axis of numbers, False for a horizontal bar per value
    bars: tuple[Bar, ...]
    ends: tuple[str, str] = ("", "")  # labels of the ends of the axis; empty for texts

    @property
    def highest(self) -> float:
        return max((share for bar in self.bars for share in bar.shares), default=0.0)


def chart_of(sides: Sequence[ColumnStatistics]) -> Chart | None:
    """Return the chart of one column, or of a column in two datasets. None if there is nothing to draw."""
    if any(side.type != sides[0].type for side in sides):
        return None
    if sides[0].type == "bytes":
        return _of_texts(sides)
    numbers = [numbers_of(side) for side in sides]
    finite = [one for one in numbers if len(one.finite)]
    if not finite:
        return None
    if len(values := np.unique(np.concatenate([one.finite for one in finite]))) == 1:
        return Chart(False, (Bar(shown(values[0]), tuple(float(len(one.finite) > 0) for one in numbers)),))
    edges, ends = _edges(finite, whole=sides[0].type == "int", are_years=all(map(are_years, sides)))
    counts = [np.diff(one.rank(edges)) for one in numbers]
    shares = [(of / max(1, int(of.sum()))).tolist() for of in counts]
    return Chart(True, tuple(map(Bar, _spans(edges, sides[0].type == "int"), zip(*shares, strict=True))), ends)


def _of_texts(sides: Sequence[ColumnStatistics]) -> Chart | None:
    """Return a chart of the values that are most frequent on any side."""
    counts: list[dict[Any, int]] = [dict(side.counts.items()) for side in sides]
    totals = [max(1, side.values) for side in sides]
    highest = {
        value: max(of.get(value, 0) / total for of, total in zip(counts, totals, strict=True))
        for of in counts
        for value in of
    }
    values = sorted(highest, key=lambda value: (-highest[value], value))[:_TEXTS]
    if not values or highest[values[0]] * max(totals) <= 1:  # no value occurs twice
        return None
    bars = [
        Bar(label(value), tuple(of.get(value, 0) / total for of, total in zip(counts, totals, strict=True)))
        for value in values
    ]
    rest = tuple(max(0.0, 1 - sum(bar.shares[side] for bar in bars)) for side in range(len(sides)))
    more = [Bar("all others", rest)] if max(rest) > 1e-9 else []
    return Chart(False, (*bars, *more))


def _edges(numbers: Sequence[Distribution], whole: bool, are_years: bool) -> tuple[Floats, tuple[str, str]]:
    """Return the edges of the bars, with unbounded outer bars, and the labels of the ends of the axis."""
    low, high = min(float(one.finite[0]) for one in numbers), max(float(one.finite[-1]) for one in numbers)
    inner_low = min(_finite_at(one, _TAIL) for one in numbers)
    inner_high = max(_finite_at(one, 1 - _TAIL) for one in numbers)
    if whole and high - low < _BARS:
        return np.arange(low - 0.5, high + 1), (shown(low, is_year=are_years), shown(high, is_year=are_years))
    first, last = low, high
    if high - low > _TOWERS_FROM * (inner_high - inner_low) > 0:
        first, last = inner_low, inner_high
    edges = np.linspace(first, last, _BARS + 1)
    # The outer bars also count the values of the tails that the axis omits.
    edges[0], edges[-1] = -_LARGEST, _LARGEST
    ends = (shown(end, is_year=are_years) for end in (first, last))
    return edges, (f"{'' if first == low else '≤ '}{next(ends)}", f"{'' if last == high else '≥ '}{next(ends)}")


def _finite_at(numbers: Distribution, fraction: float) -> float:
    """Return a quantile, clipped to the finite numbers."""
    value = float(numbers.at([fraction])[0])
    return value if math.isfinite(value) else float(numbers.finite[0 if value < 0 else -1])


def _spans(edges: Floats, whole: bool) -> Iterable[str]:
    """Yield the tooltip of each bar."""
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if whole and high - low == 1:
            yield shown(high - 0.5)
        elif abs(low) == _LARGEST or abs(high) == _LARGEST:
            yield f"up to {shown(high)}" if abs(low) == _LARGEST else f"above {shown(low)}"
        else:
            yield f"{shown(low)} to {shown(high)}"


Columns = Mapping[str, ColumnStatistics]


@dataclass(frozen=True)
class Card:
    """One column on the page."""

    name: str
    type: str
    figures: Mapping[str, Figures]  # figures by title of the side. A side without the column has none
    chart: Chart | None  # None if there is nothing to draw
    change: ColumnChange | None = None  # None without a comparison

    @property
    def problem(self) -> str:
        return self.change.problem if self.change else ""

    @property
    def differences(self) -> tuple[Difference, ...]:
        return self.change.differences if self.change else ()

    @property
    def type_changed(self) -> bool:
        return len({one.type for one in self.figures.values()}) > 1

    @property
    def facts(self) -> list[tuple[str, list[str]]]:
        """(name, texts of each side), without names that no side has."""
        sides = [_facts(one) for one in self.figures.values()]
        rows = ((name, [side.get(name, "") for side in sides]) for name in dict.fromkeys(itertools.chain(*sides)))
        return [(name, words) for name, words in rows if any(words)]


def _facts(one: Figures) -> dict[str, str]:
    """Return the facts shown below a chart; empty if they do not apply to the type."""
    text = one.type == "bytes"
    moments = {
        "shortest" if text else "min": one.minimum,
        "median": one.median,
        "mean length" if text else "mean": one.mean,
        "std": one.std,
        "longest" if text else "max": one.maximum,
    }
    lists = (one.least_per_row, one.most_per_row) != (1, 1) and one.most_per_row > 0
    return {
        "missing": units.percent(one.missing),
        "empty" if text else "zeros": units.percent(one.zeros),
        "distinct": f"{'' if one.is_exact else '~'}{one.distinct:,}",
        "values a row": f"{one.least_per_row} to {one.most_per_row}" if lists else "",
        **{name: f"{one.shown(value)}{' B' * text}" if value is not None else "" for name, value in moments.items()},
        "NaN": f"{one.nans:,}" if one.nans else "",
        "infinite": f"{one.infinities:,}" if one.infinities else "",
    }


def split_page(title: str, split: str, columns: Columns) -> str:
    """Render the page of one split, with a card per column in order of the names."""
    cards = [Card(name, one.type, {split: Figures.of(one)}, chart_of([one])) for name, one in columns.items()]
    return _render(title, {split: columns}, cards, "")


def comparison_page(title: str, sides: Mapping[str, Columns], changes: Sequence[ColumnChange]) -> str:
    """Render the comparison of two sides. The columns that differ most come first."""

    def order(change: ColumnChange) -> tuple[bool, float, str]:
        both = [(change.distance, change.threshold), *((one.distance, one.threshold) for one in change.differences)]
        excess = max((distance - limit for distance, limit in both if distance is not None), default=0.0)
        return not change.problem, -(excess if change.measure else 1.0), change.name

    cards = []
    for change in sorted(changes, key=order):
        both = {title: side for title, side in zip(sides, (change.before, change.after), strict=True) if side}
        figures = {title: Figures.of(side) for title, side in both.items()}
        found = list(both.values())
        cards.append(Card(change.name, found[-1].type, figures, chart_of(found), change))
    return _render(title, sides, cards, verdict(changes))


def _render(title: str, columns: Mapping[str, Columns], cards: Sequence[Card], outcome: str) -> str:
    sides = [(name, next((column.rows for column in of.values()), 0)) for name, of in columns.items()]
    package = "infeed.pipelines.local.statistics"
    return render(package, "page.html.j2", title=title, sides=sides, cards=cards, outcome=outcome)
