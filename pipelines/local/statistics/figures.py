"""Figures of a column and of a comparison, as plain data for pages and JSON, and as tables for a terminal."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from infeed.components.base.units import one_line, percent
from infeed.components.dataset.manifest import ColumnType
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.dataset.statistics.histograms import numbers_of
from infeed.components.statistics.comparison import ColumnChange

_TOP = 10  # most frequent values shown
_WHOLE, _MOST = 1e4, 1e15  # between these, numbers are shown as whole numbers
_YEARS = (1_500, 2_500)
_SELDOM = 0.005  # values below this share are not shown
_LONGEST = 40  # characters of a value


@dataclass(frozen=True)
class Top:
    """Frequent value, and its share of all values."""

    value: str
    count: int
    share: float


@dataclass(frozen=True)
class Figures:
    """Figures of one column of one split. A figure is None if it does not apply to the type."""

    name: str
    type: ColumnType
    rows: int
    missing: float  # missing: share of the rows; zeros: share of the values
    values: int
    least_per_row: int  # least_per_row, most_per_row: values per row, without missing rows
    most_per_row: int
    zeros: float
    nans: int
    infinities: int
    distinct: int  # number of different values; an estimate unless `is_exact`
    is_exact: bool
    # minimum, median, mean, std, maximum: figures of numbers, or of the lengths of bytes (without median and std).
    minimum: float | None
    median: float | None
    mean: float | None
    std: float | None
    maximum: float | None
    top: tuple[Top, ...]  # most frequent values in descending order, without rare values
    are_years: bool = False  # all values are integers that may be years

    def shown(self, value: float | None) -> str:
        """Format a value of the column, or its mean."""
        return shown(value, is_year=self.are_years)

    @classmethod
    def of(cls, column: ColumnStatistics) -> Figures:
        moments: dict[str, float | None] = {"median": None, "std": None}
        if column.type == "bytes":
            lengths = column.byte_lengths
            known = (lengths.minimum, lengths.mean, lengths.maximum) if lengths.number else (None, None, None)
            moments |= zip(("minimum", "mean", "maximum"), known, strict=True)
        else:
            moments |= {name: getattr(column, name) for name in ("minimum", "mean", "std", "maximum")}
            numbers = numbers_of(column)
            # JSON holds no infinity, so an infinite median is left out.
            median = float(numbers.at([0.5])[0]) if numbers.total else math.nan
            moments["median"] = median if math.isfinite(median) else None
        frequent = itertools.islice(column.counts.items(), _TOP)
        years = are_years(column)
        top = (Top(label(value, is_year=years), count, count / column.values) for value, count in frequent)
        return cls(
            name=column.name,
            type=column.type,
            rows=column.rows,
            missing=column.missing / max(1, column.rows),
            values=column.values,
            least_per_row=column.lengths.minimum,
            most_per_row=column.lengths.maximum,
            zeros=column.zeros / max(1, column.values),
            nans=column.nans,
            infinities=column.infinities,
            distinct=column.counts.distinct + column.counts.uncounted,
            is_exact=column.counts.exact,
            top=tuple(one for one in top if one.share >= _SELDOM),
            are_years=years,
            **moments,
        )


def are_years(column: ColumnStatistics) -> bool:
    """Report whether all values are integers that may be years. Tables show years without a thousands separator."""
    low, high = column.minimum, column.maximum
    return column.type == "int" and low is not None and high is not None and _YEARS[0] <= low <= high <= _YEARS[1]


def label(value: object, *, is_year: bool = False) -> str:
    """Format a value for a table: text, the length of other bytes, or a number as in `shown`."""
    if not isinstance(value, bytes):
        return shown(value, is_year=is_year)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"{len(value):,} bytes"
    if not text.strip():
        return repr(text)
    return one_line(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}...")


def shown(value: Any, *, is_year: bool = False) -> str:
    """Format a number with five significant digits, a large number without a fraction, and None as empty text."""
    if value is None:
        return ""
    if is_year:
        return f"{value:.6g}"
    if abs(value) < _MOST and (abs(value) >= _WHOLE or float(value).is_integer()):
        return f"{value:,.0f}"
    return f"{value:.5g}"


def about(change: ColumnChange) -> dict[str, Any]:
    """Return a comparison of one column as plain data."""
    return {
        "name": change.name,
        "problem": change.problem,
        "measure": change.measure,
        "distance": change.distance,
        "threshold": change.threshold if change.measure else None,
        "most": None if change.most is None else label(change.most),
        "differences": [dataclasses.asdict(one) | {"exceeds": one.exceeds} for one in change.differences],
        "missing": [
            None if side is None else side.missing / max(1, side.rows) for side in (change.before, change.after)
        ],
    }


_FIGURES = ("missing", "zeros", "distinct", "min", "median", "mean", "std", "max")
_MOST_FREQUENT = "most frequent"
# Columns that a narrow terminal omits, in this order.
_EXPENDABLE = ("std", "zeros", _MOST_FREQUENT, "median", "mean", "distinct", "type")
_SHORTENED = 16  # characters that a long name or value keeps at least
_GAP = 2  # between two columns


def columns_table(title: str, figures: Sequence[Figures], width: int | None = None) -> Table:
    """Return a table with a row per column. For text, min, mean and max are lengths in bytes.

    Args:
      width: characters of the terminal. A narrow table omits figures before it shortens names. None for no limit.
    """
    rows = [{title: one_line(one.name), "type": one.type, **_cells(one)} for one in figures]
    names = [title, "type", *_FIGURES, "a row", _MOST_FREQUENT]
    if all((one.least_per_row, one.most_per_row) in ((1, 1), (0, 0)) for one in figures):
        names.remove("a row")
    widths = _widths(names, rows, width)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, fitting in widths.items():
        side: JustifyMethod = "left" if name in (title, "type", _MOST_FREQUENT) else "right"
        table.add_column(name, justify=side, no_wrap=True, overflow="ellipsis", width=fitting)
    for row in rows:
        table.add_row(*(Text(row[name]) for name in widths))
    return table


def _widths(names: Sequence[str], rows: Sequence[Mapping[str, str]], width: int | None) -> dict[str, int]:
    """Return the width of each column that fits. Only the first column and the most frequent values may shrink."""
    full = {name: max([cell_len(name), *(cell_len(row[name]) for row in rows)]) for name in names}
    if width is None:
        return full
    flexible = (names[0], _MOST_FREQUENT)
    kept = full | {name: min(full[name], _SHORTENED) for name in flexible}
    room = width + _GAP
    for name in _EXPENDABLE:
        if sum(kept.values()) + _GAP * len(kept) > room:
            kept.pop(name, None)
    for name in flexible:
        if name in kept:
            left = room - sum(kept.values()) - _GAP * len(kept)
            kept[name] = min(full[name], kept[name] + max(0, left))
    return kept


def _cells(one: Figures) -> dict[str, str]:
    """Return the figures as text, by name of the table's column."""
    unit = " B" if one.type == "bytes" else ""
    moments = {"min": one.minimum, "median": one.median, "mean": one.mean, "max": one.maximum}
    low, high = one.least_per_row, one.most_per_row
    top = [f"{one.top[0].value} ({percent(one.top[0].share)})"] if one.top else []
    odd = [f"{count:,} {name}" for count, name in ((one.nans, "NaN"), (one.infinities, "infinite")) if count]
    return {
        "missing": percent(one.missing),
        "zeros": percent(one.zeros),
        "distinct": f"{'' if one.is_exact else '~'}{one.distinct:,}",
        **{name: "" if value is None else f"{one.shown(value)}{unit}" for name, value in moments.items()},
        "std": shown(one.std),
        "a row": str(low) if low == high else f"{low} to {high}",
        _MOST_FREQUENT: ", ".join([*top, *odd]),
    }


def changes_table(changes: Sequence[ColumnChange]) -> Table:
    """Return a table with a row per column: the distance between the sides, and the problem."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("column", no_wrap=True, overflow="ellipsis")
    table.add_column("")
    for name in ("distance", "allowed", "missing before", "after"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("measure", overflow="fold")
    for change in changes:
        missing = ["" if share is None else percent(share) for share in about(change)["missing"]]
        problem = Text(change.problem or "same", style="bold red" if change.problem else "dim")
        # A row for each difference that exceeds its limit, or else for the values.
        beyond = [one for one in change.differences if one.exceeds]
        rows = [
            (one.distance, f"{one.threshold:g}", f"{one.measure.replace('_', ' ')}: {one.change}") for one in beyond
        ]
        if change.values_differ or not beyond:
            most = "" if change.most is None else f", most of {label(change.most)}"
            limit = f"{change.threshold:g}" if change.measure else ""
            rows.insert(0, (change.distance, limit, f"{change.measure or ''}{most}"))
        for distance, allowed, measure in rows:
            shown_distance = "" if distance is None else f"{distance:.4f}"
            table.add_row(Text(one_line(change.name)), problem, shown_distance, allowed, *missing, Text(measure))
    return table


def verdict(changes: Sequence[ColumnChange]) -> str:
    """Summarize a comparison, for example `2 of 14 columns differ: fare, tips`."""
    wrong = [change.name for change in changes if change.problem]
    if not wrong:
        return f"none of {len(changes)} columns differs by more than its limit"
    named = f": {one_line(', '.join(wrong))}" if len(wrong) <= 8 else ""
    return f"{len(wrong)} of {len(changes)} columns differ{named}"
