"""Quantiles of any number of values in bounded memory, with a bound of their error that is counted, not guessed.

The values lie in sorted runs of at most 2,048 weighted ones. A run that would be longer is cut into 2,048 parts of
equal weight, each of which its middle value stands for: a rank is then wrong by half a part at most. Runs are joined in
pairs of one height, like the bits of a counter, so that n runs are cut log2(n) times (Munro and Paterson, "Selection
and sorting with limited storage", 1980). Nothing is random: the same runs in the same order give the same sketch. As
long as there are at most 2,048 different values the sketch is exact, and the order does not matter either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from infeed.components.annotations import Count
from infeed.components.dataset.statistics.cells import pack, unpack

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]  # int64 or float32
CAPACITY = 2048  # different values of a run


@dataclass(frozen=True, eq=False)
class Run:
    """Weighted values in ascending order, each once.

    Attributes:
      values: int64 or float32 [n]
      weights: int64 [n], how many values each stands for
      error: by how much a rank, counted in this run, may differ from the true one
      height: how many times runs were joined and cut
    """

    values: Numbers
    weights: Ints
    error: int = 0
    height: int = 0

    @property
    def total(self) -> int:
        return int(self.weights.sum())

    def cut(self) -> Run:
        """The same in at most CAPACITY values."""
        if len(self.values) <= CAPACITY:
            return self
        # The least and the greatest value stay as parts of their own.
        inner = 1 + np.arange(CAPACITY - 1, dtype=np.int64) * (self.total - 2) // (CAPACITY - 2)
        bounds = np.concatenate([[0], inner, [self.total]])
        weights = np.diff(bounds)
        middles = bounds[:-1] + (weights + 1) // 2
        places = np.searchsorted(np.cumsum(self.weights), middles)
        error = self.error + int(weights.max()) // 2
        return Run(*_joined(self.values[places], weights), error, self.height + 1)

    def plain(self) -> dict[str, Any]:
        return {"values": pack(self.values), "weights": pack(self.weights), "error": self.error, "height": self.height}


@dataclass(frozen=True, eq=False)
class QuantileSketch:
    """Where the values of a column lie.

    Attributes:
      runs: no two of one height, the highest first
    """

    runs: tuple[Run, ...] = ()

    @classmethod
    def of(cls, values: Numbers, counts: Ints) -> QuantileSketch:
        """Of ascending values, each once, and how often each occurs."""
        return cls((Run(values, counts).cut(),)) if len(values) else cls()

    def __add__(self, other: QuantileSketch) -> QuantileSketch:
        """All values of both."""
        by_height = dict[int, Run]()
        for run in sorted((*self.runs, *other.runs), key=lambda run: run.height):
            while (before := by_height.pop(run.height, None)) is not None:
                run = _join([before, run])
                # A join that cut nothing stays at its height, which is free now.
            by_height[run.height] = run
        return QuantileSketch(tuple(by_height[height] for height in sorted(by_height, reverse=True)))

    @property
    def total(self) -> int:
        """How many values there are."""
        return sum(run.total for run in self.runs)

    @property
    def error(self) -> float:
        """Bound of the error of a rank, as a share of all values; 0 where the sketch is exact."""
        return sum(run.error for run in self.runs) / max(1, self.total)

    def at(self, fractions: Iterable[float]) -> list[Any]:
        """The value below or at which lies each fraction of all values: NumPy's quantiles by `inverted_cdf`.

        Args:
          fractions: each from 0 to 1.

        Raises:
          ValueError: there are no values.
        """
        run = self._whole()
        if not len(run.values):
            raise ValueError("no values, so no quantiles")
        upto = np.cumsum(run.weights)
        ranks = np.ceil(np.array(list(fractions), np.float64) * upto[-1]).clip(1, upto[-1])
        found: list[Any] = run.values[np.searchsorted(upto, ranks.astype(np.int64))].tolist()
        return found

    def ranks(self, values: Iterable[float]) -> list[int]:
        """How many values are below or at each of these."""
        run = self._whole()
        upto = np.concatenate([[0], np.cumsum(run.weights)])
        found: list[int] = upto[np.searchsorted(run.values, list(values), side="right")].tolist()
        return found

    def collapse(self) -> QuantileSketch:
        """In one run, which is what a file keeps; it costs half a part of error more."""
        return QuantileSketch((self._whole().cut(),)) if self.runs else self

    def plain(self) -> list[dict[str, Any]]:
        return [run.plain() for run in self.runs]

    def _whole(self) -> Run:
        return _join(self.runs, cut=False) if self.runs else Run(np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True)
class StoredRun:
    """A run in a file; `run` gives it back."""

    values: str
    weights: str
    error: Count
    height: Count

    def run(self, dtype: npt.DTypeLike) -> Run:
        """
        Raises:
          ValueError: values that do not ascend, or weights below 1.
        """
        found = Run(unpack(self.values, dtype), unpack(self.weights, np.int64), self.error, self.height)
        if len(found.values) != len(found.weights) or not 0 < len(found.values) <= CAPACITY:
            raise ValueError(f"a run has {len(found.values)} values and {len(found.weights)} weights")
        if not (found.values[1:] > found.values[:-1]).all() or not np.isfinite(found.values).all():
            raise ValueError("the values of a run do not ascend")
        if found.weights.min() < 1 or not self.error <= found.total:
            raise ValueError("a run has an impossible weight, error or height")
        return found


def _join(runs: Sequence[Run], cut: bool = True) -> Run:
    values, weights = np.concatenate([run.values for run in runs]), np.concatenate([run.weights for run in runs])
    order = np.argsort(values, kind="stable")
    error, height = sum(run.error for run in runs), max(run.height for run in runs)
    joined = Run(*_joined(values[order], weights[order]), error, height)
    return joined.cut() if cut else joined


def _joined(values: Numbers, weights: Ints) -> tuple[Numbers, Ints]:
    """Ascending values, those that are equal as one."""
    starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    return values[starts], np.add.reduceat(weights, starts)
