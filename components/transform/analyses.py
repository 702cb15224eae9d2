"""What features have to know of the training rows: sums, counts and quantiles, in parts that are filled batch by batch.

They stand on the same sums and sketches as the statistics of a dataset, so it makes no difference whether an analysis
is answered by those, or by a pass over the rows (see `columns.py`). NumPy and Arrow alone: no TensorFlow.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.dataset.statistics.summaries import ExactSum, QuantileSketch, sums_of_floats, sums_of_ints
from infeed.components.transform.tally import Tally

Array = npt.NDArray[Any]
_SAMPLE = 3
A = TypeVar("A", bound="Analysis")


class Analysis:
    """Filled by `add`, then asked.

    Args:
      folder: where counts go that are too many for memory; several workers may share it. Empty: they stay in memory.

    Attributes:
      rows: of the batches.
      count: values that are not missing.
      missing: those that are; of one value a row, rows without.
      sample: some of the values, for errors.
    """

    def __init__(self, folder: str = "") -> None:
        self.rows = 0
        self.count = 0
        self.missing = 0
        self.sample: list[Any] = []

    def add(self, values: Array, missing: int = 0, rows: int = 0) -> None:
        """Counts the values [n] of a batch: float32, int64, or bytes as objects."""
        self.rows += rows
        self.count += len(values)
        self.missing += missing
        self.sample += values[: _SAMPLE - len(self.sample)].tolist()
        if len(values):
            self._add(values)

    def merge(self: A, other: A) -> A:
        """Counts the rows of `other` as well, which follow its own, and returns itself."""
        self.rows += other.rows
        self.count += other.count
        self.missing += other.missing
        self.sample = [*self.sample, *other.sample][:_SAMPLE]
        self._merge(other)
        return self

    @classmethod
    def of(cls: type[A], column: ColumnStatistics) -> A | None:
        """From what is known of a whole column; None where that does not tell all."""
        analysis = cls()
        analysis.rows = column.rows
        analysis.count = column.counts.total + column.counts.uncounted if column.type == "bytes" else column.finite
        lists = column.lengths.maximum > 1
        analysis.missing = (column.values if lists else column.rows) - analysis.count
        analysis.sample = [value for value, _ in itertools.islice(column.counts.items(), _SAMPLE)]
        return analysis if analysis._fill(column) else None

    def _add(self, values: Array) -> None:
        raise NotImplementedError

    def _merge(self: A, other: A) -> None:
        raise NotImplementedError

    def _fill(self, column: ColumnStatistics) -> bool:
        """Takes what it needs, and says whether that was there."""
        raise NotImplementedError


class Moments(Analysis):
    """Mean, variance and range of numbers, from exact sums."""

    def __init__(self, folder: str = "") -> None:
        super().__init__(folder)
        self.least = math.inf
        self.most = -math.inf
        self.sum, self.squares = ExactSum(), ExactSum()

    @property
    def mean(self) -> float:
        """Of the values that are not missing; 0 where there are none."""
        return float(self.sum.fraction / max(1, self.count))

    @property
    def variance(self) -> float:
        """The mean square less the square of the mean: that of all values, not an estimate from a sample."""
        number = max(1, self.count)
        return float(self.squares.fraction / number - (self.sum.fraction / number) ** 2)

    @property
    def deviation(self) -> float:
        """The standard deviation."""
        return math.sqrt(self.variance)

    def _add(self, values: Array) -> None:
        sums = sums_of_floats(values) if values.dtype == np.float32 else sums_of_ints(values)
        self.sum, self.squares = self.sum + sums[0], self.squares + sums[1]
        self.least = min(self.least, values.min().item())
        self.most = max(self.most, values.max().item())

    def _merge(self, other: Moments) -> None:
        self.sum, self.squares = self.sum + other.sum, self.squares + other.squares
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)

    def _fill(self, column: ColumnStatistics) -> bool:
        self.sum, self.squares = column.total, column.squares
        if column.minimum is not None and column.maximum is not None:
            self.least, self.most = column.minimum, column.maximum
        return True


class Quantiles(Analysis):
    """Where numbers lie, by a sketch that says its error."""

    def __init__(self, folder: str = "") -> None:
        super().__init__(folder)
        self.sketch = QuantileSketch()

    def at(self, fractions: Sequence[float]) -> list[float]:
        """The value below or at which lies each fraction of all values; as many 0 where there are none."""
        return self.sketch.at(fractions) if self.count else [0.0 for _ in fractions]

    def _add(self, values: Array) -> None:
        self.sketch += QuantileSketch.of(*np.unique(values, return_counts=True))

    def _merge(self, other: Quantiles) -> None:
        self.sketch += other.sketch

    def _fill(self, column: ColumnStatistics) -> bool:
        self.sketch = column.quantiles
        return True


class Frequencies(Analysis):
    """How often each value occurs, exactly, in bounded memory."""

    def __init__(self, folder: str = "") -> None:
        super().__init__(folder)
        self._new = partial(Tally, folder, None if folder else sys.maxsize)
        self.tally = self._new()  # of floats: their bits
        self._floats = False

    @property
    def counts(self) -> dict[Any, int]:
        """Value -> how often it occurs; of few values, for all are in memory."""
        return dict(self._items())

    @property
    def mode(self) -> Any:
        """The most frequent value; of equally frequent ones the last in the order of their text."""
        return max(self._items(), key=lambda pair: (pair[1], str(pair[0])))[0]

    def _as_text(self) -> Tally:
        text = self._new()
        for batch in self.tally.items():
            if not pa.types.is_integer(batch.column(0).type):
                return self.tally
            text.add(np.array([*map(as_word, batch.column(0).to_pylist())], object), batch.column(1).to_numpy())
        return text

    def _items(self) -> Iterator[tuple[Any, int]]:
        for batch in self.tally.items():
            values = batch.column(0)
            if self._floats:
                values = values.to_numpy().astype(np.int32).view(np.float32)
            yield from zip(values.tolist(), batch.column(1).to_pylist(), strict=True)

    def _add(self, values: Array, counts: Array | None = None) -> None:
        if values.dtype == np.float32:
            self._floats = True
            values = (values + np.float32(0)).view(np.int32).astype(np.int64)  # -0.0 is 0.0
        self.tally.add(values, counts)

    def _merge(self, other: Frequencies) -> None:
        self.tally.merge(other.tally)
        self._floats |= other._floats

    def _fill(self, column: ColumnStatistics) -> bool:
        known = dict(column.counts.items())
        kind = {"bytes": object, "int": np.int64, "float": np.float32}[column.type]
        if known:
            self._add(np.array([*known], kind), np.array([*known.values()], np.int64))
        return column.counts.exact

    def ranked(self, size: int | None = None, least: int = 1) -> list[bytes]:
        """Values as text, most frequent first; of equally frequent ones the later in byte order first, as tft has it.

        The empty string and what holds a line break are never among them, since a vocabulary is kept one a line.

        Args:
          size: how many to keep.
          least: how often a value has to occur.
        """
        words: list[bytes] = []
        for batch in self._as_text().ranked(least=least):
            words += filter(is_word, batch.column(0).to_pylist())
            if size is not None and len(words) >= size:
                break
        return words[:size]


def as_word(value: Any) -> bytes:
    """A value as it stands in a vocabulary."""
    return value if isinstance(value, bytes) else b"%d" % value


def is_word(value: bytes) -> bool:
    """Whether a vocabulary file can hold it."""
    return bool(value) and b"\n" not in value and b"\r" not in value


class ByKey(Generic[A]):
    """An analysis of all values, and one for each key; a key that no training row has stands on that of all."""

    def __init__(self, kind: type[A], folder: str = "") -> None:
        self.overall = kind(folder)
        self._folder = folder
        self.of: dict[bytes, A] = {}
        self._kind = kind

    @property
    def keys(self) -> list[bytes]:
        return sorted(self.of)

    @property
    def in_order(self) -> list[A]:
        """The analysis of all values, then those of `keys`: place -1, no such key, is number 0."""
        return [self.overall, *(self.of[key] for key in self.keys)]

    def add(self, values: Array, keys: Array, missing: int = 0, rows: int = 0) -> None:
        """Counts the values [n] of a batch, each with its key: bytes, as objects [n]."""
        self.overall.add(values, missing, rows)
        coded = pa.array(keys, pa.large_binary()).dictionary_encode()
        codes = coded.indices.to_numpy(zero_copy_only=False)
        ends = np.cumsum(np.bincount(codes, minlength=len(coded.dictionary)))
        parts = np.split(values[np.argsort(codes, kind="stable")], ends[:-1])
        for key, part in zip(coded.dictionary.to_pylist(), parts, strict=False):
            self.of.setdefault(key, self._kind(self._folder)).add(part)

    def merge(self, other: ByKey[A]) -> ByKey[A]:
        """Counts the rows of `other` as well, which follow its own, and returns itself."""
        self.overall.merge(other.overall)
        for key, analysis in other.of.items():
            self.of[key] = self.of[key].merge(analysis) if key in self.of else analysis
        return self
