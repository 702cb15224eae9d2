"""Count values, or keep a value for each key, in bounded memory: sorted runs on disk, which a streaming merge joins.

    SortedRuns   sorts more rows than fit in memory
    Tally        counts the distinct values of a column
    KeyedRuns    merges the values of equal keys

A row has a key (bytes or int64) and a count (int64 or float64) or bytes. This module does not import TensorFlow.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import secrets
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.dataset import files
from infeed.components.engine import engine

V = TypeVar("V")
TALLY_BYTES = 64 << 20  # size of the rows in memory before a run is written
# Size of pickled keys and values. Objects take several times as much.
KEYED_BYTES = 16 << 20
_FIRST_CHECK = 1 << 10  # number of keys at the first estimate of their size
_SAMPLE = 16  # number of keys and values to pickle for the estimate
_FAN_IN = 32  # maximum number of open runs
_FIRST = 64  # first combine at this fraction of the limit
_PICKLED = 16  # a pickle contains rows up to this fraction of the limit, and else the path of a file
_OVERHEAD = 1 << 10  # size of the Python objects of a batch, which dominates for tiny batches


@dataclass(frozen=True)
class Order:
    """Sort order of rows. Picklable if its functions are."""

    key: Callable[[pa.RecordBatch, int], Any]  # (batch, row) -> sort key
    descends: bool  # whether the largest key comes first
    combine: Callable[[list[pa.RecordBatch]], pa.RecordBatch]  # -> one batch in this order, with each value once


class SortedRuns:
    """Sort batches of rows in bounded memory.

    Recent batches stay in memory. They are combined into one batch when they reach four times its size, or the limit.
    If the combined batch exceeds half of the limit, it is written to disk as a run.

    Sums of floats must not depend on pickling between merges. Combining adds from left to right, so combining early, as
    pickling does, gives the same bits. Only `_load` determines when a run is complete, and pickling does not change it.
    """

    def __init__(self, folder: str, limit: int, order: Order) -> None:
        self.folder = folder
        self.limit = limit
        self._order = order
        self._written: list[str] = []  # all files. Removed at the end, because pickled copies may need them
        self._clear()

    def _clear(self) -> None:
        self._held: list[pa.RecordBatch | str] = []  # a pickle contains a path instead of a large batch
        self._load = 0  # bytes in memory, without the effect of pickling
        self._due = self.limit // _FIRST  # load at which the batches are combined
        self._is_combined = True
        self._complete: list[str] = []

    def take(self, batch: pa.RecordBatch) -> None:
        """Add a batch. Its rows may be in any order."""
        if not batch.num_rows:
            return
        self._held.append(batch)
        self._is_combined = False
        self._load += _size(batch)
        if self._load > self._due:
            combined = self._combine()
            self._load = sum(map(_size, combined))
            # Combine again after the data has grown to four times this size, so that combining stays cheap per row.
            self._due = min(self.limit, max(self._due, 4 * self._load))
            if self._load > self.limit // 2:
                self._complete.append(self._write(combined))
                self._held, self._load = [], 0

    def merge(self, other: SortedRuns) -> None:
        """Move the batches and runs of `other` to this object."""
        combined = other._combine()
        self._written += other._written
        self._complete += other._complete
        other._written = []
        other._clear()
        for batch in combined:
            self.take(batch)

    def stream(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order. Merge runs first if there are too many to open at once."""
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
        """Combine the batches in memory. Return a list of at most one batch."""
        if not self._is_combined or any(isinstance(part, str) for part in self._held):
            parts = [_read(part) if isinstance(part, str) else [part] for part in self._held]
            self._held = [self._order.combine(list(itertools.chain.from_iterable(parts)))]
            self._is_combined = True
        return [part for part in self._held if not isinstance(part, str)]

    def _write(self, batches: Iterable[pa.RecordBatch]) -> str:
        """Write a run in blocks that are small enough for a merge to hold one block of each run."""
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
    """Merge runs block by block. Each turn combines all rows up to the end of the block that ends first."""
    heads = [next(run, None) for run in runs]
    while blocks := [head for head in heads if head is not None]:
        if len(blocks) == 1:
            yield blocks[0]
            heads = [None if head is None else next(run, None) for head, run in zip(heads, runs, strict=True)]
            continue
        # Up to this key, no unread block can hold further rows.
        cut = (max if order.descends else min)(order.key(block, block.num_rows - 1) for block in blocks)
        taken = []
        for number, head in enumerate(heads):
            if head is not None and (rows := _rows_until(cut, head, order)):
                taken.append(head.slice(0, rows))
                heads[number] = head.slice(rows) if rows < head.num_rows else next(runs[number], None)
        yield order.combine(taken)


def _rows_until(cut: Any, block: pa.RecordBatch, order: Order) -> int:
    """Return the number of rows of a block up to and including the key `cut`."""

    def is_after(row: int) -> bool:
        key = order.key(block, row)
        return bool(key < cut if order.descends else key > cut)

    return bisect.bisect_left(range(block.num_rows), True, key=is_after)


def _size(batch: pa.RecordBatch) -> int:
    """Return the size of a batch in bytes. Unlike `nbytes`, it does not depend on optional buffers."""
    texts = (column for column in batch.columns if pa.types.is_large_binary(column.type))
    text = sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in texts)
    return int(16 * batch.num_rows + text + _OVERHEAD)


def grouped(values: pa.Array, *, descends: bool = False) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return a stable sort order of the values, and the position of each distinct value in this order."""
    order = pc.array_sort_indices(values, order="descending" if descends else "ascending")
    values = values.take(order)
    is_first = np.ones(len(values), bool)
    is_first[1:] = pc.not_equal(values[1:], values[:-1]).to_numpy(zero_copy_only=False)
    return order, np.flatnonzero(is_first)


def value_at(batch: pa.RecordBatch, row: int) -> Any:
    """Return the value of a row, as the key of an `Order`."""
    return batch.column(0)[row].as_py()


class Tally:
    """Count how often each value occurs, or sum the weights of each value.

    A tally counts either bytes or int64 numbers, and either occurrences or weights. Its pickle has a few megabytes at
    most, so workers can count parts of a dataset, and one process merges their tallies. The result does not depend on
    the parts. Sums of floats are rounded: the same tree of merges gives the same bits, with or without pickling.

    Args:
      folder: folder of the runs, local or remote, created by the first run. Workers may share the folder.
      limit: bytes of values and counts in memory before a run is written. Defaults to 64 MiB.
    """

    def __init__(self, folder: str, limit: int | None = None) -> None:
        self._runs = SortedRuns(folder, limit or TALLY_BYTES, Order(value_at, False, _sum))

    def add(self, values: npt.NDArray[Any], weights: npt.NDArray[Any] | None = None) -> None:
        """Count a batch of values [n], bytes as objects or int64, each as 1 or as its weight (float or integer)."""
        column = pa.array(values, pa.large_binary() if values.dtype == object else pa.int64())
        if weights is None:
            found = column.value_counts()
            self._runs.take(_counted(found.field(0), found.field(1).to_numpy()))
        else:
            self._runs.take(_counted(column, weights.astype(np.float64 if weights.dtype.kind == "f" else np.int64)))

    def merge(self, other: Tally) -> None:
        """Move the counts of `other` to this tally."""
        self._runs.merge(other._runs)

    def items(self) -> Iterator[pa.RecordBatch]:
        """Yield batches of two columns, `value` and `count`, sorted by value."""
        return self._runs.stream()

    def ranked(self, size: int | None = None, least: float = 1) -> Iterator[pa.RecordBatch]:
        """Yield batches like `items`, sorted by count and then by value, largest first.

        The batches hold at most `size` (at least 1) values, or all, with a count of at least `least`.
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
        return _counted(values, counts)
    # `bincount` adds floats one after the other, which `reduceat` does not; but it makes floats of integers.
    if counts.dtype == np.int64:
        sums = np.add.reduceat(counts, starts)
    else:
        sums = np.bincount(np.repeat(np.arange(len(starts)), np.diff(starts, append=len(values))), counts)
    return _counted(values.take(pa.array(starts)), sums)


def _rank(batches: list[pa.RecordBatch], size: int | None) -> pa.RecordBatch:
    """Sort by count and value, largest first, and keep the first rows."""
    values, counts = _concat(batches)
    if size is not None and size < len(counts):
        # Sort only the rows that can be among the first.
        chosen = np.flatnonzero(counts >= np.partition(counts, -size)[-size])
        values, counts = values.take(pa.array(chosen)), counts[chosen]
    batch = _counted(values, counts)
    return batch.take(pc.sort_indices(batch, sort_keys=[("count", "descending"), ("value", "descending")])[:size])


def _concat(batches: list[pa.RecordBatch]) -> tuple[pa.Array, npt.NDArray[Any]]:
    values = pa.concat_arrays([batch.column(0) for batch in batches])
    return values, np.concatenate([batch.column(1).to_numpy() for batch in batches])


def _counted(values: pa.Array, counts: npt.NDArray[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([values, pa.array(counts)], ["value", "count"])


class KeyedRuns(Generic[V]):
    """A mapping from keys to values, which merges the values of equal keys.

    A dictionary holds recent values. They move to the sorted runs when the estimated size of their pickles exceeds the
    limit, and before the mapping is merged, pickled or read. So the values of a key merge in the same order on every
    engine.

    Args:
      folder: folder of the runs. Workers may share the folder.
      merge: (value, later value) -> merged value. May modify the first value. Must be picklable.
      limit: bytes of pickled keys and values in memory before a run is written. Defaults to 16 MiB.
      secret: key that signs the pickles. Mappings to merge need the same secret.
      descends: whether the largest key comes first.
    """

    def __init__(
        self,
        folder: str,
        merge: Callable[[V, V], V],
        limit: int | None = None,
        secret: bytes | None = None,
        *,
        descends: bool = False,
    ) -> None:
        self._secret = secret or secrets.token_bytes(32)
        self._folder = folder
        combine = partial(_combine, merge=merge, descends=descends, secret=self._secret, where=folder)
        self._runs = SortedRuns(folder, limit or KEYED_BYTES, Order(value_at, descends, combine))
        self._held: dict[Any, V] = {}
        self._check_at = _FIRST_CHECK

    def get(self, key: Any, new: Callable[[], V]) -> V:
        """Return the value in memory of a key (bytes or an integer), or a new value."""
        value = self._held.get(key)
        return new() if value is None else value

    def put(self, key: Any, value: V) -> None:
        """Set the value of a key. It replaces the value that `get` returned."""
        self.update({key: value})

    def update(self, values: Mapping[Any, V]) -> None:
        """Set the value of each key, like `put`."""
        self._held.update(values)
        if len(self._held) < self._check_at:
            return
        # Pickling all values to measure them would cost as much as writing them.
        sample = list(itertools.islice(self._held.items(), 0, None, max(1, len(self._held) // _SAMPLE)))
        bytes_each = sum(len(engine.dumps(self._secret, one)) for one in sample) / len(sample)
        if bytes_each * len(self._held) > self._runs.limit:
            self._flush()
        else:
            self._check_at = 2 * len(self._held)

    def merge(self, other: KeyedRuns[V]) -> None:
        """Move the values of `other`, which are later values, to this mapping."""
        self._flush()
        other._flush()
        self._runs.merge(other._runs)

    def items(self) -> Iterator[tuple[Any, V]]:
        """Yield keys and values, in the order of the keys. Can be called several times."""
        for batch in self._batches():
            keys = batch.column(0).to_pylist()
            for key, pickled in zip(keys, batch.column(1).to_pylist(), strict=True):
                yield key, engine.loads(self._secret, pickled, self._folder)

    def keys(self) -> list[Any]:
        """Return all keys in order."""
        return list(itertools.chain.from_iterable(batch.column(0).to_pylist() for batch in self._batches()))

    def __len__(self) -> int:
        return sum(batch.num_rows for batch in self._batches())

    def __getstate__(self) -> dict[str, Any]:
        self._flush()
        return vars(self)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        self._flush()
        return self._runs.stream()

    def _flush(self) -> None:
        if self._held:
            kind = pa.large_binary() if isinstance(next(iter(self._held)), bytes) else pa.int64()
            keys = pa.array(list(self._held), kind)
            self._runs.take(_pickled(keys, [engine.dumps(self._secret, value) for value in self._held.values()]))
            self._held = {}


def _combine(
    batches: list[pa.RecordBatch], merge: Callable[[Any, Any], Any], descends: bool, secret: bytes, where: str
) -> pa.RecordBatch:
    """Sort by key, and merge the values of each key in the order of the batches."""
    keys, pickles = (pa.concat_arrays([batch.column(number) for batch in batches]) for number in (0, 1))
    order, starts = grouped(keys, descends=descends)
    keys, pickles = keys.take(order), pickles.take(order)
    if len(starts) == len(keys):
        return pa.RecordBatch.from_arrays([keys, pickles], ["key", "value"])
    merged: list[bytes] = []
    for start, end in itertools.pairwise([*starts.tolist(), len(keys)]):
        same = pickles.slice(start, end - start).to_pylist()
        if len(same) > 1:
            same = [engine.dumps(secret, functools.reduce(merge, (engine.loads(secret, one, where) for one in same)))]
        merged += same
    return _pickled(keys.take(pa.array(starts)), merged)


def _pickled(keys: pa.Array, pickles: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([keys, pa.array(pickles, pa.large_binary())], ["key", "value"])
