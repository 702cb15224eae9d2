"""Batches of `infeed.load` from stored columns, with the user's maps.

The loop's thread makes them, or threads or processes ahead of it.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np

from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError
from infeed.components.base.units import counted, percent
from infeed.components.feed.user_maps import (
    SEED_MASK,
    SEED_USES,
    as_array,
    checked_dict,
    naming_broken_pool,
    result,
    rows_of,
    submit,
    takes_seed,
)
from infeed.components.load.ahead import in_order, results
from infeed.components.load.columns import Features
from infeed.components.load.delivery import NumpyArrays, Recipe
from infeed.components.load.frameworks import Convert
from infeed.components.load.options import whole_number
from infeed.components.load.order import BatchOrder, Ints
from infeed.components.load.pictures import Pictures
from infeed.components.load.shuffle import fold_in

_NUMPY = NumpyArrays()
_SPARE = 2  # extra batches that may be ready, so that a slow batch does not block other threads
_WHERE = "infeed.load(...).map"
R = TypeVar("R")


@dataclass(frozen=True)
class BatchMap:
    """Function on batches, whether it takes a seed, and the number of threads or processes that call it."""

    function: Callable[..., Any]
    seeded: bool
    threads: int = 1
    processes: int = 0
    imported: str = ""  # the name by which another process imports the function

    @classmethod
    def of(cls, function: str | Callable[..., Any], threads: int = 1, processes: int = 0) -> BatchMap:
        """Import a function if it is given by name.

        Raises InfeedError if the function does not exist, or `threads` or `processes` is not a suitable integer.
        """
        whole_number(threads, 1, f"{_WHERE}, threads")
        whole_number(processes, 0, f"{_WHERE}, processes")
        if threads > 1 and processes:
            what = f"threads is {threads}, and processes is {processes}"
            raise InfeedError(what, where=_WHERE, do="set only one: processes if the function holds the GIL")
        loaded = user_code.load(function, _WHERE) if isinstance(function, str) else function
        own = loaded.__wrapped__ if isinstance(function, str) else loaded  # type: ignore[attr-defined]
        return cls(own, takes_seed(own), threads, processes, function if isinstance(function, str) else "")

    def importable(self) -> BatchMap:
        """Return this map with the name of its function. Raises InfeedError if other processes cannot import it."""
        return replace(self, imported=self.imported or user_code.name_of(self.function, _WHERE))

    def __reduce__(self) -> tuple[Any, ...]:
        if self.imported:
            # The digest differs after a change of the file, so that `call_pickled` imports it again.
            digest = user_code.digest(self.imported, _WHERE)
            return _imported, (self.imported, self.threads, self.processes, digest)
        return BatchMap, (self.function, self.seeded, self.threads)

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def __call__(self, batch: dict[str, Any], order: BatchOrder, step: int) -> dict[str, Any]:
        """Call the function on the batch of a step.

        Raises InfeedError if the function failed, or returned no features or a different number of rows.
        """
        where, rows = f"{_WHERE}, step {step}", rows_of(batch)
        named = {"seed": seed_of(order, step)} if self.seeded else {}
        try:
            with user_code.translate_errors():
                given = self.function(batch, **named)
        except InfeedError as error:
            raise InfeedError(error.what, where=f"{error.where}, {where}", do=error.do) from error.__cause__
        return {name: _rows(name, value, rows, where) for name, value in checked_dict(given, where).items()}


def _rows(name: str, value: Any, rows: int, where: str) -> Any:
    """Return a feature of a function as an array or Ragged. Raises InfeedError if it is none, or has other rows."""
    try:
        made = as_array(value)
    except (TypeError, ValueError) as error:
        do = "return an array, or Ragged for rows of different lengths"
        raise InfeedError(f"feature {name!r} is no array: {error}", where=where, do=do) from error
    if isinstance(made, np.ndarray) and not made.ndim:
        what = f"feature {name!r} is {type(value).__name__}, one value for all rows"
    elif (found := rows_of({name: made})) != rows:
        what = f"feature {name!r} has {found} rows, but the batch has {rows}"
    else:
        return made
    raise InfeedError(what, where=where, do="return one row for each row of the batch")


def _imported(name: str, threads: int, processes: int, _digest: str) -> BatchMap:
    return BatchMap.of(name, threads, processes)


def seed_of(order: BatchOrder, step: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Derive the seed of this worker's batch, int64 [2], as the feed does for `map_batches`."""
    key, _ = fold_in((order.batch.seed, SEED_USES["map_batches"]), 0)
    return np.array([key & SEED_MASK, step * order.batch.workers.count + order.batch.workers.index], np.int64)


def call_pickled(pickled: bytes, *arguments: Any) -> Any:
    """Call a pickled function in this process. It is unpickled once."""
    return _unpickled(pickled)(*arguments)


@lru_cache(maxsize=4)
def _unpickled(pickled: bytes) -> Callable[..., Any]:
    function: Callable[..., Any] = pickle.loads(pickled)
    return function


class StageCosts:
    """CPU seconds of each stage in the threads of this process."""

    def __init__(self) -> None:
        self._seconds, self._batches = defaultdict[str, float](float), defaultdict[str, int](int)
        self._lock = threading.Lock()

    def timed(self, stage: str, function: Callable[..., R], *arguments: Any) -> R:
        """Call a function, and add the CPU time of this thread to the stage."""
        began = time.thread_time()
        made = function(*arguments)
        took = time.thread_time() - began
        with self._lock:
            self._seconds[stage] += took
            self._batches[stage] += 1
        return made

    def limit(self, rows: int, threads: int) -> str:
        """Name the most expensive stage, and the rate of all stages. Empty before the first batch.

        Args:
          rows: rows of a batch.
          threads: threads that prepare batches, each on a core.
        """
        a_batch = {stage: seconds / self._batches[stage] for stage, seconds in self._seconds.items()}
        total = sum(a_batch.values())
        if not total:
            return ""
        slowest = max(a_batch, key=lambda stage: a_batch[stage])
        return (
            f"{slowest} takes {percent(a_batch[slowest] / total)} of {total * 1e3:.3g} ms of CPU a batch, so "
            f"{counted(threads, 'thread')} with a core each can prepare {rows * threads / total:,.0f} rows a second"
        )


class BatchReader:
    """Gathers the rows of a batch, decodes its pictures, and maps it. Other processes unpickle the reader."""

    def __init__(self, features: Features, pictures: Pictures | None, maps: tuple[BatchMap, ...]) -> None:
        self.features, self.pictures, self.maps = features, pictures, maps
        self.costs = StageCosts()

    def __reduce__(self) -> tuple[Any, ...]:
        return BatchReader, (self.features, self.pictures, self.maps)

    @property
    def is_gathering_only(self) -> bool:
        """Whether batches are the stored columns, neither decoded nor mapped."""
        return not (self.maps or self.pictures)

    @property
    def threads(self) -> int:
        """Number of threads that prepare batches. With 1, the consuming thread does."""
        decoding = self.pictures.threads if self.pictures else 1
        return max(decoding, *(one.threads for one in self.maps), 1)

    @property
    def processes(self) -> int:
        """Number of processes that prepare batches instead of threads, or 0."""
        return max((one.processes for one in self.maps), default=0)

    def rows(self, rows: Ints, recipe: Recipe) -> dict[str, Any]:
        """Return existing rows, int64 [n], with pictures decoded but not augmented, and not mapped."""
        batch = recipe.batch(next(self.features.take(rows)), _NUMPY)
        return self.pictures(batch, rows) if self.pictures else batch

    def batch(self, order: BatchOrder, step: int, rows: Ints, recipe: Recipe) -> Any:
        """Return the batch of a step. Raises the errors of decoding and of the maps."""
        return self._finished(next(self.features.take(rows)), rows, order, step, recipe)

    def batches(self, convert: Convert, recipe: Recipe) -> Callable[[BatchOrder], Iterator[Any]]:
        """Return a function that yields the converted batches of an order."""

        def read(order: BatchOrder) -> Iterator[Any]:
            if not (self.is_gathering_only and recipe.is_by_row and order.remainder != "pad"):
                return convert(self._one_by_one(order, recipe, convert.ahead))
            # The values of a row do not depend on its batch, so several batches can be made at once.
            gathered = self.features.batches_a_call(order.batch.part)
            several = convert.batches_a_call(gathered, recipe.arrays)
            return convert.together(self._several(order, recipe, several, min(1, convert.ahead)), several)

        return read

    def _several(self, order: BatchOrder, recipe: Recipe, several: int, orders_ahead: int) -> Iterator[tuple[Any, int]]:
        """Yield (several batches as one, their number), which is smaller at an end."""
        for rows, batches in order.chunks(several, orders_ahead):
            # Without a name, the batch is freed before the next one is taken, which then has its memory, still cached.
            yield (
                recipe.targets.split(recipe.batch(next(self.features.take(rows)), _NUMPY), _NUMPY.weight, None),
                batches,
            )

    def _one_by_one(self, order: BatchOrder, recipe: Recipe, ahead: int) -> Iterator[Any]:
        if self.threads == 1 and not self.processes:
            return self._gathered(order, recipe, min(1, ahead))
        steps = enumerate((rows for rows, _ in order.chunks(1, 1)), order.start_step)
        make = partial(self.batch, order, recipe=recipe)
        if not self.processes:
            return in_order(steps, lambda step: make(*step), self.threads, self.threads + _SPARE)
        return self._in_processes(steps, pickle.dumps(make))

    def _in_processes(self, steps: Iterable[tuple[int, Ints]], make: bytes) -> Iterator[Any]:
        with naming_broken_pool(f"infeed.load(...).map, {', '.join(one.name for one in self.maps)}"):
            processes = self.processes
            yield from results(
                steps,
                lambda step: submit(processes, call_pickled, make, *step),
                processes + _SPARE,
                partial(result, processes),
            )

    def _gathered(self, order: BatchOrder, recipe: Recipe, orders_ahead: int) -> Iterator[Any]:
        step = order.start_step
        for rows, batches in order.chunks(self.features.batches_a_call(order.batch.part), orders_ahead):
            part = len(rows) // batches
            for number, columns in enumerate(self.features.take(rows, batches)):
                yield self._finished(columns, rows[number * part : (number + 1) * part], order, step, recipe)
                step += 1

    def _finished(self, columns: tuple[Any, ...], rows: Ints, order: BatchOrder, step: int, recipe: Recipe) -> Any:
        batch = recipe.batch(columns, _NUMPY)
        if self.pictures:
            batch = self.costs.timed("picture", self.pictures, batch, rows, order, step)
        for function in self.maps:
            batch = self.costs.timed(function.name, function, batch, order, step)
        return recipe.targets.split(batch, _NUMPY.weight, order.present(step))
