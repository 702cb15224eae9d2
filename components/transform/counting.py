"""Count values, or keep a value for each key, in bounded memory: sorted runs on disk, which a streaming merge joins.

    SortedRuns   sorts more rows than memory holds
    Tally        counts the different values of a column
    KeyedRuns    merges the values of equal keys

A row is a value, bytes or int64, and what belongs to it: a count, int64 or float64, or bytes. NumPy and Arrow alone: no
TensorFlow.
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
from infeed.components.engine import signed

V = TypeVar("V")
TALLY_BYTES = 64 << 20  # of rows that are held before a run is written
# Of pickled keys and values; objects take several times as much.
KEYED_BYTES = 16 << 20
_FIRST_CHECK = 1 << 10  # keys held when their size is estimated first
_SAMPLE = 16  # keys and values that are pickled for the estimate
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


class Tally:
    """Count how often each value occurs, or sum the weights of each value.

    A tally counts either bytes or int64 numbers, and either occurrences or weights. It pickles into a few megabytes at
    most, so that workers count parts of a dataset and one process merges their tallies. The result does not depend on
    the parts. Sums of floats round; the same tree of merges rounds to the same bits, with pickling and without.

    Args:
      folder: where runs are written, local or remote. Workers may share the folder: each run has a unique name. The
        first run makes the folder.
      limit: bytes of values and counts to hold before a run is written; 64 MiB by default.
    """

    def __init__(self, folder: str, limit: int | None = None) -> None:
        self._runs = SortedRuns(folder, limit or TALLY_BYTES, Order(value_at, False, _sum))

    def add(self, values: npt.NDArray[Any], weights: npt.NDArray[Any] | None = None) -> None:
        """Count a batch of values [n]: bytes as objects, or int64. Each counts 1, or its weight: float or integer."""
        column = pa.array(values, pa.large_binary() if values.dtype == object else pa.int64())
        if weights is None:
            found = column.value_counts()
            self._runs.take(_counted(found.field(0), found.field(1).to_numpy()))
        else:
            self._runs.take(_counted(column, weights.astype(np.float64 if weights.dtype.kind == "f" else np.int64)))

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
        return _counted(values, counts)
    # `bincount` adds floats one after the other, which `reduceat` does not; but it makes floats of integers.
    if counts.dtype == np.int64:
        sums = np.add.reduceat(counts, starts)
    else:
        sums = np.bincount(np.repeat(np.arange(len(starts)), np.diff(starts, append=len(values))), counts)
    return _counted(values.take(pa.array(starts)), sums)


def _rank(batches: list[pa.RecordBatch], size: int | None) -> pa.RecordBatch:
    """Sort by count and value, both from the largest, and keep the first rows."""
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

    A dictionary holds the latest values. It goes to the sorted runs when its pickles are estimated to exceed the limit,
    and before the mapping is merged, pickled or read. So the values of a key merge in the same order on every engine.

    Args:
      folder: where runs are written. Workers may share the folder.
      merge: (value, later value) -> their merge. May modify the first. Must be picklable.
      limit: bytes of pickled keys and values to hold before a run is written; 16 MiB by default.
      secret: signs the pickles. Mappings that are merged need the same secret.
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
        """Return the value of a key, bytes or an integer; a new one if none is held in memory."""
        value = self._held.get(key)
        return new() if value is None else value

    def put(self, key: Any, value: V) -> None:
        """Set the value of a key, in place of the value that `get` returned."""
        self.update({key: value})

    def update(self, values: Mapping[Any, V]) -> None:
        """Set the value of each key, as `put` does."""
        self._held.update(values)
        if len(self._held) < self._check_at:
            return
        sample = list(itertools.islice(self._held.items(), 0, None, max(1, len(self._held) // _SAMPLE)))
        bytes_each = sum(len(signed.dumps(self._secret, one)) for one in sample) / len(sample)
        if bytes_each * len(self._held) > self._runs.limit:
            self._flush()
        else:
            self._check_at = 2 * len(self._held)

    def merge(self, other: KeyedRuns[V]) -> None:
        """Take over the values of `other`, which follow these values."""
        self._flush()
        other._flush()
        self._runs.merge(other._runs)

    def items(self) -> Iterator[tuple[Any, V]]:
        """Yield keys and values, in the order of the keys. Can be called several times."""
        for batch in self._batches():
            keys = batch.column(0).to_pylist()
            for key, pickled in zip(keys, batch.column(1).to_pylist(), strict=True):
                yield key, signed.loads(self._secret, pickled, self._folder)

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
            self._runs.take(_pickled(keys, [signed.dumps(self._secret, value) for value in self._held.values()]))
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
            same = [signed.dumps(secret, functools.reduce(merge, (signed.loads(secret, one, where) for one in same)))]
        merged += same
    return _pickled(keys.take(pa.array(starts)), merged)


def _pickled(keys: pa.Array, pickles: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([keys, pa.array(pickles, pa.large_binary())], ["key", "value"])
