"""Columns of sampled rows that matter: permutation importance, and groups of rows with worse predictions.

The importance is the rise of the loss if the values of one column are shuffled among the rows: Breiman (2001), Random
Forests, Machine Learning 45, 5-32; for any model: Fisher, Rudin, Dominici (2019), JMLR 20(177). A group has a value, or
a quarter of the values, of one column.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.dataset.decode_columns import decode_columns
from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.example_types import item_counts
from infeed.components.evaluation.pairs import Array

REPEATS = 3
_MOST_ROWS, _LEAST_ROWS, _PREDICTIONS = 1_000, 200, 60_000
_MOST_BYTES = 64 << 20  # of records in a call of the model
MOST_COLUMNS = 100
_GROUPED_COLUMNS, _MOST_VALUES = 200, 8
_LEAST_IN_GROUP = 20  # minimum rows of a group
_CLEARLY = 3.0  # standard errors. With a hundred groups, chance exceeds this in one of four reports
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Importance:
    """Rise of the loss: mean and standard deviation over the repeats."""

    column: str
    mean: float
    deviation: float


def rows_for(columns: int) -> int:
    """Return how many rows to shuffle, which limits the number of predictions."""
    return min(_MOST_ROWS, max(_LEAST_ROWS, _PREDICTIONS // (REPEATS * max(1, columns))))


def importances(
    records: Sequence[bytes], columns: Sequence[str], losses: Callable[[Sequence[bytes]], Array]
) -> list[Importance]:
    """Return the importance of each column of serialized tf.Examples, largest first.

    `losses` returns the loss of each record, float64 [records]. It gets the records once or several times in a row,
    because a call of a model of thousands of columns takes seconds for a single row.
    """
    before = losses(records).mean()
    at_once = max(1, min(_MOST_ROWS // len(records), _MOST_BYTES // sum(map(len, records))))
    shuffles, rises = _shuffles(records, columns), list[float]()
    while some := list(itertools.islice(shuffles, at_once)):
        of_shuffles = losses([record for one in some for record in one]).reshape(len(some), -1)
        rises += (of_shuffles.mean(axis=1) - before).tolist()
    by_column = zip(columns, np.reshape(rises, (-1, REPEATS)), strict=True)
    found = [Importance(column, float(of.mean()), float(of.std(ddof=1))) for column, of in by_column]
    return sorted(found, key=lambda one: -one.mean)


def _shuffles(records: Sequence[bytes], columns: Sequence[str]) -> Iterator[list[bytes]]:
    """Yield the records with the values of one column shuffled, `REPEATS` times for each column.

    A record is two tf.Examples in a row, which a reader merges: one of the columns that stay, encoded once, and one of
    `columns`.
    """
    found = decode_columns(records)
    stay = {name: column for name, column in found.items() if name not in columns}
    first = encode_examples(pa.RecordBatch.from_pydict(stay)).to_pylist() if stay else [b""] * len(records)
    change, random = {name: found[name] for name in columns}, np.random.default_rng(0)
    for name in (name for name in columns for _ in range(REPEATS)):
        shuffled = change[name].take(pa.array(random.permutation(len(records))))
        second = encode_examples(pa.RecordBatch.from_pydict({**change, name: shuffled})).to_pylist()
        yield [one + other for one, other in zip(first, second, strict=True)]


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
        for column in list(columns)[:_GROUPED_COLUMNS]
        for values, mask in _groups_of(columns[column])
        if (group := _compared(column, values, mask, losses, errors))
    ]
    clear = sorted((one for one in found if one.deviations >= _CLEARLY), key=lambda one: -one.deviations)
    return WorstGroups(tuple(clear[:10]), len(found))


def _compared(column: str, values: str, mask: Mask, losses: Array, errors: Array) -> RowGroup | None:
    rows, others = int(mask.sum()), int((~mask).sum())
    # NaN predictions have infinite losses, which have no mean.
    if min(rows, others) < _LEAST_IN_GROUP or not np.isfinite(losses).all():
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
