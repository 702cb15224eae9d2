"""Groups of sampled rows with worse predictions than the rest: values or quarters of one column."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.dataset.example_types import item_counts
from infeed.components.evaluation.pairs import Array

_MOST_COLUMNS, _MOST_VALUES = 200, 8
_LEAST_ROWS = 20  # minimum rows of a group
_CLEARLY = 3.0  # standard errors. With a hundred groups, chance exceeds this in one of four reports
_SHOWN = 10
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RowGroup:
    """Sampled rows that share a value or a quarter of a column."""

    column: str
    values: str
    rows: int
    loss: float  # mean loss of these rows
    other_loss: float  # mean loss of all other rows
    error: float  # share of wrong rows, or the mean absolute error
    deviations: float  # difference of the mean losses, in standard errors


@dataclass(frozen=True)
class WorstGroups:
    """Worst groups, the worst first, and the number of compared groups."""

    worst: tuple[RowGroup, ...]
    compared: int


def worst_groups(columns: Mapping[str, pa.Array], losses: Array, errors: Array) -> WorstGroups:
    """Compare each group with all other rows. Losses and errors are per row, float64 [rows]."""
    found = [
        group
        for column in list(columns)[:_MOST_COLUMNS]
        for values, mask in _groups_of(columns[column])
        if (group := _compared(column, values, mask, losses, errors))
    ]
    clear = sorted((one for one in found if one.deviations >= _CLEARLY), key=lambda one: -one.deviations)
    return WorstGroups(tuple(clear[:_SHOWN]), len(found))


def _compared(column: str, values: str, mask: Mask, losses: Array, errors: Array) -> RowGroup | None:
    rows, others = int(mask.sum()), int((~mask).sum())
    # NaN predictions have infinite losses, which have no mean.
    if min(rows, others) < _LEAST_ROWS or not np.isfinite(losses).all():
        return None
    inside, outside = losses[mask], losses[~mask]
    spread = math.sqrt(inside.var(ddof=1) / rows + outside.var(ddof=1) / others)
    gap = float(inside.mean() - outside.mean())
    deviations = gap / spread if spread else 0.0
    return RowGroup(
        column, values, rows, float(inside.mean()), float(outside.mean()), float(errors[mask].mean()), deviations
    )


def _groups_of(column: pa.Array) -> Iterator[tuple[str, Mask]]:
    """Yield the groups of a column with at most one value per row. Lists have no groups."""
    counts = item_counts(column)
    if counts.max(initial=0) != 1:
        return
    present = counts == 1
    if not present.all():
        yield "missing", ~present
    values = column.flatten().to_numpy(zero_copy_only=False)
    found, codes, sizes = np.unique(values, return_inverse=True, return_counts=True)
    if len(found) <= _MOST_VALUES or values.dtype == object:
        for place in np.argsort(-sizes, kind="stable")[:_MOST_VALUES]:
            yield shortened(shown(found[place])), _spread(present, codes.reshape(-1) == place)
    else:
        yield from _quarters(values, present)


def _quarters(values: Array, present: Mask) -> Iterator[tuple[str, Mask]]:
    finite = values[np.isfinite(values)]
    how: Literal["lower", "linear"] = "lower" if values.dtype.kind == "i" else "linear"  # integers stay integers
    edges: Array = np.unique(np.quantile(finite, [0.25, 0.5, 0.75], method=how)) if len(finite) else finite
    places = np.searchsorted(edges, values, side="left")
    for place in range(len(edges) + 1):
        low, high = edges[place - 1 : place], edges[place : place + 1]
        text = " to ".join(shown(edge) for edge in (*low, *high))
        word = "up to " if not len(low) else "above " if not len(high) else ""
        yield f"{word}{text}", _spread(present, places == place)


def _spread(present: Mask, of_values: Mask) -> Mask:
    found = np.zeros(len(present), bool)
    found[present] = of_values
    return found


def shown(value: Any) -> str:
    """Return a cell value as text. Integers, which may be identifiers, keep all digits."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(value) if isinstance(value, str | int | np.integer) else f"{value:.7g}"


def shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"
