"""Keep a value for each key in bounded memory: sorted runs on disk, which a streaming merge joins.

NumPy and Arrow alone: no TensorFlow.
"""

from __future__ import annotations

import functools
import itertools
import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import pyarrow as pa

from infeed.components.engine import signed
from infeed.components.transform.sorted_runs import Order, SortedRuns, grouped, value_at

V = TypeVar("V")
# Bytes of pickled keys and values that are held before a run is written; objects take several times as much.
LIMIT = 16 << 20
_FIRST_CHECK = 1 << 10  # keys held when their size is estimated first
_SAMPLE = 16  # keys and values that are pickled for the estimate


class KeyedRuns(Generic[V]):
    """A mapping from keys to values, which merges the values of equal keys.

    A dictionary holds the latest values. It goes to the sorted runs when its pickles are estimated to exceed the limit,
    and before the mapping is merged, pickled or read. So the values of a key merge in the same order on every engine.

    Args:
      folder: where runs are written. Workers may share the folder.
      merge: (value, later value) -> their merge. May modify the first. Must be picklable.
      limit: bytes of pickled keys and values to hold before a run is written; LIMIT by default.
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
        combine = functools.partial(_combine, merge=merge, descends=descends, secret=self._secret, where=folder)
        self._runs = SortedRuns(folder, limit or LIMIT, Order(value_at, descends, combine))
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
            self._runs.take(_batch(keys, [signed.dumps(self._secret, value) for value in self._held.values()]))
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
    return _batch(keys.take(pa.array(starts)), merged)


def _batch(keys: pa.Array, pickles: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([keys, pa.array(pickles, pa.large_binary())], ["key", "value"])
