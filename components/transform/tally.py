"""Count the different values of a column in bounded memory: sorted runs on disk, which a streaming merge joins.

NumPy and Arrow alone: no TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.transform.sorted_runs import LIMIT, Order, SortedRuns, grouped, value_at

Array = npt.NDArray[Any]


class Tally:
    """Count how often each value occurs, or sum the weights of each value.

    A tally counts either bytes or int64 numbers, and either occurrences or weights. It pickles into a few megabytes at
    most, so that workers count parts of a dataset and one process merges their tallies. The result does not depend on
    the parts. Sums of floats round; the same tree of merges rounds to the same bits, with pickling and without.

    Args:
      folder: where runs are written, local or remote. Workers may share the folder: each run has a name of its own. The
        first run makes the folder.
      limit: bytes of values and counts to hold before a run is written; LIMIT by default.
    """

    def __init__(self, folder: str, limit: int | None = None) -> None:
        self._runs = SortedRuns(folder, limit or LIMIT, Order(value_at, False, _sum))

    def add(self, values: Array, weights: Array | None = None) -> None:
        """Count a batch of values [n]: bytes as objects, or int64. Each counts 1, or its weight: float or integer."""
        column = pa.array(values, pa.large_binary() if values.dtype == object else pa.int64())
        if weights is None:
            found = column.value_counts()
            self._runs.take(_batch(found.field(0), found.field(1).to_numpy()))
        else:
            self._runs.take(_batch(column, weights.astype(np.float64 if weights.dtype.kind == "f" else np.int64)))

    def merge(self, other: Tally) -> None:
        """Take over what `other` counted, which then counts nothing more."""
        self._runs.merge(other._runs)

    def items(self) -> Iterator[pa.RecordBatch]:
        """Yield batches of two columns, `value` and `count`, in the order of the values."""
        return self._runs.stream()

    def ranked(self, size: int | None = None, least: float = 1) -> Iterator[pa.RecordBatch]:
        """Yield batches as `items` does, by count and then by value, both from the largest.

        There are at most `size` values, at least 1 or all, with a count of at least `least`.
        """
        order = Order(
            lambda batch, row: (batch.column(1)[row].as_py(), value_at(batch, row)), True, partial(_rank, size=size)
        )
        runs = SortedRuns(self._runs.folder, self._runs.limit, order)
        try:
            for batch in self.items():
                kept = batch.filter(pc.greater_equal(batch.column(1), least))
                if kept.num_rows:
                    runs.take(kept)
            for batch in runs.stream():
                yield batch.slice(0, size)
                if size is not None and (size := size - batch.num_rows) <= 0:
                    return
        finally:
            runs.close()


def pairs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, Any]]:
    """Yield each value with its count."""
    for batch in batches:
        yield from zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)


def _sum(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Sort by value and add the counts of each value, from left to right."""
    values, counts = _concat(batches)
    order, starts = grouped(values)
    values, counts = values.take(order), counts[order.to_numpy()]
    if len(starts) == len(values):
        return _batch(values, counts)
    # `bincount` adds floats one after the other, which `reduceat` does not; but it makes floats of integers.
    if counts.dtype == np.int64:
        sums = np.add.reduceat(counts, starts)
    else:
        sums = np.bincount(np.repeat(np.arange(len(starts)), np.diff(starts, append=len(values))), counts)
    return _batch(values.take(pa.array(starts)), sums)


def _rank(batches: list[pa.RecordBatch], size: int | None) -> pa.RecordBatch:
    """Sort by count and value, both from the largest, and keep the first rows."""
    values, counts = _concat(batches)
    if size is not None and size < len(counts):
        # Sort only the rows that can be among the first.
        chosen = np.flatnonzero(counts >= np.partition(counts, -size)[-size])
        values, counts = values.take(pa.array(chosen)), counts[chosen]
    batch = _batch(values, counts)
    return batch.take(pc.sort_indices(batch, sort_keys=[("count", "descending"), ("value", "descending")])[:size])


def _concat(batches: list[pa.RecordBatch]) -> tuple[pa.Array, Array]:
    values = pa.concat_arrays([batch.column(0) for batch in batches])
    return values, np.concatenate([batch.column(1).to_numpy() for batch in batches])


def _batch(values: pa.Array, counts: Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([values, pa.array(counts)], ["value", "count"])
