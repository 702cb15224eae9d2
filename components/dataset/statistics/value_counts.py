"""Counts of the values of a column: exact up to 10,000 distinct values, and approximate beyond.

Beyond that bound, counts are lower bounds. The 1,000 most frequent values are kept. Their counts are reduced by the
count of the next most frequent value, which is added to the error (Misra and Gries, "Finding repeated elements", 1982;
merged as in
Agarwal et al., "Mergeable summaries", 2012). The true count of a value is between its count and its count plus `error`,
which is at most a 1,000th of all values. A value that is not kept occurs at most `error` times. The number of distinct
values is then estimated from the 1,024 smallest hashes (Bar-Yossef et al., "Counting distinct elements in a data
stream", 2002), typically within 3 %. Bytes longer than 1,024, such as images, are not counted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.base.annotations import Count
from infeed.components.dataset.manifest import ColumnType
from infeed.components.dataset.records import data_of, values_of
from infeed.components.dataset.statistics.cells import (
    MAX_BYTES,
    Values,
    empty_values,
    pack,
    pack_values,
    unpack,
    unpack_values,
)

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
MAX_DISTINCT = 10_000
FREQUENT = 1_000  # values kept if there are more distinct values
_HASHES = 1_024
_RANGE = 2.0**64  # range of a hash
_HASHED_BYTES = 1 << 20  # bytes hashed at a time. Each takes about 30 bytes of memory


@dataclass(frozen=True, eq=False)
class ValueCounts:
    """Counts of the values of one column.

    Attributes:
      values: int64, float32 or bytes [n], ascending.
      counts: int64 [n], at least 1.
      total: number of counted values, including values that are not kept.
      error: maximum undercount of a value. 0 if counts are exact.
      hashes: uint64, the smallest hashes of all distinct values, ascending. None if counts are exact.
      uncounted: number of bytes values too long to be counted.
    """

    values: Values
    counts: Ints
    total: int
    error: int = 0
    hashes: Hashes | None = None
    uncounted: int = 0

    @classmethod
    def of(cls, values: Values, counts: Ints, uncounted: int = 0) -> ValueCounts:
        """Create counts from distinct values, ascending if they are numbers, and their counts."""
        return cls(values, counts, int(counts.sum()), uncounted=uncounted)._within_bound()._in_order()

    @classmethod
    def none(cls, kind: ColumnType) -> ValueCounts:
        return cls(empty_values(kind), np.empty(0, np.int64), 0)

    def __add__(self, other: ValueCounts) -> ValueCounts:
        values, counts = _united([self.values, other.values], np.concatenate([self.counts, other.counts]))
        hashes = None
        if self.hashes is not None or other.hashes is not None:
            hashes = _smallest(np.concatenate([self._hashes(), other._hashes()]))
        uncounted, error = self.uncounted + other.uncounted, self.error + other.error
        total = self.total + other.total
        return ValueCounts(values, counts, total, error, hashes, uncounted)._within_bound()._in_order()

    @property
    def exact(self) -> bool:
        """Whether every value is kept with its exact count."""
        return self.hashes is None and not self.uncounted

    @property
    def distinct(self) -> int:
        """Number of distinct counted values. An estimate if `hashes` is not None."""
        if self.hashes is None:
            return len(self.values)
        if len(self.hashes) < _HASHES:
            return len(self.hashes)
        return max(len(self.values), round((_HASHES - 1) * _RANGE / float(self.hashes[-1])))

    @property
    def others(self) -> int:
        """Number of values without a count: rare values, and values too long to be counted."""
        return self.total - int(self.counts.sum()) + self.uncounted

    def items(self) -> Iterator[tuple[Any, int]]:
        """Yield (value, count), most frequent first. Ties go to the larger value, as in tft."""
        order = np.lexsort((np.arange(len(self.counts)), self.counts))[::-1]
        values = self.values.tolist() if isinstance(self.values, np.ndarray) else list(values_of(self.values))
        return zip((values[place] for place in order.tolist()), self.counts[order].tolist(), strict=True)

    def _within_bound(self) -> ValueCounts:
        if len(self.values) <= (MAX_DISTINCT if self.hashes is None else FREQUENT):
            return self
        threshold = 1 if self.counts.max() == 1 else int(np.partition(self.counts, -FREQUENT - 1)[-FREQUENT - 1])
        kept = np.flatnonzero(self.counts > threshold)
        hashes = self._hashes()
        counts, error = self.counts[kept] - threshold, self.error + threshold
        return ValueCounts(_take(self.values, kept), counts, self.total, error, hashes, self.uncounted)

    def _in_order(self) -> ValueCounts:
        if isinstance(self.values, np.ndarray):
            return self
        order = pc.sort_indices(self.values).to_numpy()
        return dataclasses.replace(self, values=_take(self.values, order), counts=self.counts[order])

    def _hashes(self) -> Hashes:
        return _smallest(hashed(self.values)) if self.hashes is None else self.hashes

    def plain(self) -> dict[str, Any]:
        return {
            "values": pack_values(self.values),
            "counts": pack(self.counts),
            "total": self.total,
            "error": self.error,
            "hashes": None if self.hashes is None else pack(self.hashes),
            "uncounted": self.uncounted,
        }


@dataclass(frozen=True)
class StoredCounts:
    values: tuple[str, ...]
    counts: str
    total: Count
    error: Count
    hashes: str | None
    uncounted: Count

    def counted(self, kind: ColumnType) -> ValueCounts:
        """Decode and check the counts. Raises ValueError if the values are not ascending, or a count is impossible."""
        values, counts = unpack_values(self.values, kind), unpack(self.counts, np.int64)
        hashes = None if self.hashes is None else unpack(self.hashes, np.uint64)
        if len(values) != len(counts) or len(values) > MAX_DISTINCT or not _ascend(values):
            raise ValueError("the counted values are not ascending, or do not match the counts")
        if (counts < 1).any():
            raise ValueError("a count is below 1")
        if int(counts.sum()) > self.total or (hashes is None and int(counts.sum()) != self.total):
            raise ValueError("the counts do not add up")
        if hashes is not None and (len(hashes) > _HASHES or not _ascend(hashes)):
            raise ValueError("the hashes are not ascending")
        return ValueCounts(values, counts, self.total, self.error, hashes, self.uncounted)


def _ascend(values: Values) -> bool:
    if isinstance(values, np.ndarray):
        return bool((values[1:] > values[:-1]).all())
    return bool(len(values) < 2 or pc.all(pc.greater(values[1:], values[:-1])).as_py())


def _take(values: Values, places: Ints) -> Values:
    return values[places] if isinstance(values, np.ndarray) else values.take(pa.array(places))


def _united(parts: list[Values], counts: Ints) -> tuple[Values, Ints]:
    """Merge equal values, numbers ascending, and add up their counts."""
    if isinstance(parts[0], np.ndarray):
        values, which = np.unique(np.concatenate(parts), return_inverse=True)
        return values, _counted(which.reshape(-1), counts, len(values))
    encoded = pa.concat_arrays(parts).dictionary_encode()
    sums = _counted(encoded.indices.to_numpy(zero_copy_only=False), counts, len(encoded.dictionary))
    return encoded.dictionary, sums


def _counted(which: Ints, counts: Ints, distinct: int) -> Ints:
    # float64 weights are exact up to 2^53.
    return np.bincount(which, weights=counts, minlength=distinct).astype(np.int64)


def _smallest(hashes: Hashes) -> Hashes:
    if len(hashes) > 4 * _HASHES:  # few of the hashes are equal
        hashes = np.partition(hashes, 2 * _HASHES)[: 2 * _HASHES]
    return np.unique(hashes)[:_HASHES]


def hashed(values: Values) -> Hashes:
    """Return a hash of each value. The hash function must never change, because files store hashes."""
    if isinstance(values, np.ndarray):
        bits = values.view(np.int32) if values.dtype == np.float32 else values
        return _mixed(bits.astype(np.int64).view(np.uint64))
    lengths = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(lengths)
    data = np.frombuffer(data_of(values), np.uint8)
    cuts = np.searchsorted(ends, np.arange(_HASHED_BYTES, len(data) + _HASHED_BYTES, _HASHED_BYTES))
    parts, start = [np.empty(0, np.uint64)], 0
    for stop in (*cuts.tolist(), len(lengths)):
        if start < stop:
            parts.append(_hashed_bytes(data[ends[start] - lengths[start] : ends[stop - 1]], lengths[start:stop]))
            start = stop
    return np.concatenate(parts)


def _hashed_bytes(data: npt.NDArray[np.uint8], lengths: Ints) -> Hashes:
    """Sum the bytes times a weight of their position modulo 2^64, and mix the sum with the length."""
    weights = _mixed(np.arange(1, MAX_BYTES + 1, dtype=np.uint64))
    if (lengths == lengths[0]).all():  # true for most keys
        rows = data.reshape(len(lengths), -1).astype(np.uint64) + np.uint64(1)
        return _mixed((rows * weights[: lengths[0]]).sum(axis=1) ^ lengths.view(np.uint64))
    starts = np.cumsum(lengths) - lengths
    places = np.arange(len(data)) - np.repeat(starts, lengths)
    sums = np.concatenate([[np.uint64(0)], np.cumsum((data.astype(np.uint64) + np.uint64(1)) * weights[places])])
    return _mixed((sums[starts + lengths] - sums[starts]) ^ lengths.view(np.uint64))


def _mixed(bits: Hashes) -> Hashes:
    """Apply the mixing step of SplitMix64 (Steele et al., "Fast splittable pseudorandom number generators", 2014)."""
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
