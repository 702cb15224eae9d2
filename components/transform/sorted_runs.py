"""Sort more rows than memory holds: sorted runs on disk, which a streaming merge joins.

A row is a value, bytes or int64, and what belongs to it: a count, int64 or float64, or bytes.
"""

from __future__ import annotations

import bisect
import itertools
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.dataset import files

LIMIT = 64 << 20  # bytes of rows that are held before a run is written
_FAN_IN = 32  # runs that are open at a time
_FIRST = 64  # what few values take is combined when it reaches this fraction of the limit
_PICKLED = 16  # a pickle carries at most this fraction of the limit; more rows travel as the path of a file
_OVERHEAD = 1 << 10  # bytes of the objects around one batch, which dominate if batches are tiny


@dataclass(frozen=True)
class Order:
    """An order of rows; pickles if its functions do."""

    key: Callable[[pa.RecordBatch, int], Any]  # (batch, row) -> what the rows are ordered by
    descends: bool  # whether the largest key comes first
    combine: Callable[[list[pa.RecordBatch]], pa.RecordBatch]  # -> one batch in this order, with each value once


class SortedRuns:
    """Sort batches of rows in bounded memory.

    The latest batches are held in memory, and combined into one each time that they have grown to four times its size,
    or to the limit. If the one batch is more than half of the limit, it goes to disk as a run.

    How sums of floats associate must not depend on whether tallies were pickled between merges. Combining what is held
    adds from left to right, so doing it early, as pickling does, changes no bit; only `_load`, which pickling leaves as
    it is, decides when a run is complete.
    """

    def __init__(self, folder: str, limit: int, order: Order) -> None:
        self.folder = folder
        self.limit = limit
        self._order = order
        self._written: list[str] = []  # all files, to be removed at the end: a pickled copy may still need them
        self._clear()

    def _clear(self) -> None:
        self._held: list[pa.RecordBatch | str] = []  # a path is what a pickle carries instead of a large batch
        self._load = 0  # bytes held, as if pickling had not combined them
        self._due = self.limit // _FIRST  # the load at which they are combined
        self._is_combined = True
        self._complete: list[str] = []

    def take(self, batch: pa.RecordBatch) -> None:
        """Take a batch, whose rows may be in any order."""
        if not batch.num_rows:
            return
        self._held.append(batch)
        self._is_combined = False
        self._load += _size(batch)
        if self._load > self._due:
            combined = self._combine()
            self._load = sum(map(_size, combined))
            self._due = min(self.limit, max(self._due, 4 * self._load))
            if self._load > self.limit // 2:
                self._complete.append(self._write(combined))
                self._held, self._load = [], 0

    def merge(self, other: SortedRuns) -> None:
        """Take over the batches and runs of `other`."""
        combined = other._combine()
        self._written += other._written
        self._complete += other._complete
        other._written = []
        other._clear()
        for batch in combined:
            self.take(batch)

    def stream(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, after as many merges of runs into longer runs as keep few files open."""
        while (excess := len(self._complete) + 1 - _FAN_IN) > 0:
            first = self._complete[: min(_FAN_IN, excess + 1)]
            merged = self._write(_merge(list(map(_read, first)), self._order))
            self._complete = [*self._complete[len(first) :], merged]
        return _merge([*map(_read, self._complete), iter(self._combine())], self._order)

    def close(self) -> None:
        for path in self._written:
            files.remove(path)
        self._written = []
        self._clear()

    def __getstate__(self) -> dict[str, Any]:
        combined = self._combine()
        if sum(map(_size, combined)) > self.limit // _PICKLED:
            self._held = [self._write(combined)]
        return vars(self)

    def _combine(self) -> list[pa.RecordBatch]:
        """Make one batch of those held, or none if there are none."""
        if not self._is_combined or any(isinstance(part, str) for part in self._held):
            parts = [_read(part) if isinstance(part, str) else [part] for part in self._held]
            self._held = [self._order.combine(list(itertools.chain.from_iterable(parts)))]
            self._is_combined = True
        return [part for part in self._held if not isinstance(part, str)]

    def _write(self, batches: Iterable[pa.RecordBatch]) -> str:
        """Write a run in blocks so small that a merge holds one of each run."""
        path = files.join(self.folder, f"{uuid.uuid4().hex}.arrow")
        batches = iter(batches)
        first = next(batches)
        with files.open_output(path) as file, pa.ipc.new_stream(file, first.schema) as writer:
            for batch in itertools.chain([first], batches):
                number = -(-2 * _FAN_IN * _size(batch) // self.limit)
                rows = -(-batch.num_rows // number)
                for start in range(0, batch.num_rows, rows):
                    writer.write_batch(batch.slice(start, rows))
        self._written.append(path)
        return path


def _read(path: str) -> Iterator[pa.RecordBatch]:
    with files.open_input(path) as file:
        yield from pa.ipc.open_stream(file)


def _merge(runs: list[Iterator[pa.RecordBatch]], order: Order) -> Iterator[pa.RecordBatch]:
    """Merge runs by whole blocks: each turn combines all rows up to the first end of a block."""
    heads = [next(run, None) for run in runs]
    while blocks := [head for head in heads if head is not None]:
        if len(blocks) == 1:
            yield blocks[0]
            heads = [None if head is None else next(run, None) for head, run in zip(heads, runs, strict=True)]
            continue
        cut = (max if order.descends else min)(order.key(block, block.num_rows - 1) for block in blocks)
        taken = []
        for number, head in enumerate(heads):
            if head is not None and (rows := _rows_until(cut, head, order)):
                taken.append(head.slice(0, rows))
                heads[number] = head.slice(rows) if rows < head.num_rows else next(runs[number], None)
        yield order.combine(taken)


def _rows_until(cut: Any, block: pa.RecordBatch, order: Order) -> int:
    """Return how many rows of a block do not come after the key `cut`."""

    def is_after(row: int) -> bool:
        key = order.key(block, row)
        return bool(key < cut if order.descends else key > cut)

    return bisect.bisect_left(range(block.num_rows), True, key=is_after)


def _size(batch: pa.RecordBatch) -> int:
    """Return the bytes of a batch: the same number in each process, unlike `nbytes`, which counts optional buffers."""
    texts = (column for column in batch.columns if pa.types.is_large_binary(column.type))
    text = sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in texts)
    return int(16 * batch.num_rows + text + _OVERHEAD)


def grouped(values: pa.Array, *, descends: bool = False) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return the stable order of some values, and where in this order each different value starts."""
    order = pc.array_sort_indices(values, order="descending" if descends else "ascending")
    values = values.take(order)
    is_first = np.ones(len(values), bool)
    is_first[1:] = pc.not_equal(values[1:], values[:-1]).to_numpy(zero_copy_only=False)
    return order, np.flatnonzero(is_first)


def value_at(batch: pa.RecordBatch, row: int) -> Any:
    """Return the value of a row, as the key of an `Order`."""
    return batch.column(0)[row].as_py()
