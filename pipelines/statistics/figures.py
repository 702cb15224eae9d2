"""Figures of a column and of a comparison, as plain data for pages and JSON, and as tables for a terminal."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from infeed.components.dataset.manifest import ColumnType
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.dataset.statistics.histograms import numbers_of
from infeed.components.statistics.comparison import ColumnChange
from infeed.components.units import percent

_TOP = 10  # most frequent values shown
_WHOLE, _MOST = 1e4, 1e15  # between these, numbers are shown as whole numbers
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
    """Figures of one column of one split; None if they do not apply to the type."""

    name: str
    type: ColumnType
    rows: int
    missing: float  # missing, zeros: shares of the rows, and of the values
    values: int
    least_per_row: int  # least_per_row, most_per_row: values per row, without missing rows
    most_per_row: int
    zeros: float
    nans: int
    infinities: int
    distinct: int  # number of different values; an estimate unless `is_exact`
    is_exact: bool
    # minimum, median, mean, std, maximum: of numbers, or of the lengths of bytes (without median and std).
    minimum: float | None
    median: float | None
    mean: float | None
    std: float | None
    maximum: float | None
    top: tuple[Top, ...]  # most frequent values in descending order, without rare values

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
            median = float(numbers.at([0.5])[0]) if numbers.total else math.nan
            moments["median"] = median if math.isfinite(median) else None
        frequent = itertools.islice(column.counts.items(), _TOP)
        top = (Top(label(value), count, count / column.values) for value, count in frequent)
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
            **moments,
        )


def label(value: object) -> str:
    """Format a value for a table: text, the length of other bytes, or a number as in `shown`."""
    if not isinstance(value, bytes):
        return shown(value)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"{len(value):,} bytes"
    if not text.strip():
        return repr(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def shown(value: Any) -> str:
    """Format a number with five significant digits, or a large number without a fraction; None becomes empty."""
    if value is None:
        return ""
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
        "missing": [
            None if side is None else side.missing / max(1, side.rows) for side in (change.before, change.after)
        ],
    }


_FIGURES = ("missing", "zeros", "distinct", "min", "median", "mean", "std", "max")


def columns_table(title: str, figures: Sequence[Figures]) -> Table:
    """Return a table with a row per column. For text, min, mean and max are lengths in bytes."""
    lists = any((one.least_per_row, one.most_per_row) not in ((1, 1), (0, 0)) for one in figures)
    table = _table(title, "type", *_FIGURES, *(["a row"] if lists else []))
    table.add_column("most frequent", overflow="ellipsis", no_wrap=True)
    for one in figures:
        low, high = one.least_per_row, one.most_per_row
        per_row = [str(low) if low == high else f"{low} to {high}"] if lists else []
        unit = " B" if one.type == "bytes" else ""
        moments = (one.minimum, one.median, one.mean, one.maximum)
        least, median, mean, most = ("" if value is None else f"{shown(value)}{unit}" for value in moments)
        counts = (percent(one.missing), percent(one.zeros), f"{'' if one.is_exact else '~'}{one.distinct:,}")
        cells = [one.name, one.type, *counts, least, median, mean, shown(one.std), most, *per_row]
        top = [f"{one.top[0].value} ({percent(one.top[0].share)})"] if one.top else []
        odd = [f"{count:,} {name}" for count, name in ((one.nans, "NaN"), (one.infinities, "infinite")) if count]
        table.add_row(*map(Text, [*cells, ", ".join([*top, *odd])]))
    return table


def _table(first: str, second: str, *numbers: str) -> Table:
    table = Table(first, second, box=None, header_style="bold", pad_edge=False)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def changes_table(changes: Sequence[ColumnChange]) -> Table:
    """Return a table with a row per column: the distance of both sides, and the problem."""
    table = _table("column", "", "distance", "allowed", "missing before", "after")
    table.add_column("measure")
    for change in changes:
        known = about(change)
        distance = "" if change.distance is None else f"{change.distance:.4f}"
        allowed = f"{change.threshold:g}" if change.measure else ""
        missing = ["" if share is None else percent(share) for share in known["missing"]]
        most = "" if known["most"] is None else f", most of {known['most']}"
        problem = Text(change.problem or "same", style="bold red" if change.problem else "dim")
        table.add_row(Text(change.name), problem, distance, allowed, *missing, Text(f"{change.measure or ''}{most}"))
    return table


def verdict(changes: Sequence[ColumnChange]) -> str:
    """Summarize a comparison, for example `2 of 14 columns differ: fare, tips`."""
    wrong = [change.name for change in changes if change.problem]
    if not wrong:
        return f"none of {len(changes)} columns differs by more than is allowed"
    named = f": {', '.join(wrong)}" if len(wrong) <= 8 else ""
    return f"{len(wrong)} of {len(changes)} columns differ{named}"
