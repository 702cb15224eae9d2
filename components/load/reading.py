"""Batches of `infeed.load` from stored columns, made by the loop's thread, or ahead of it in threads or processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from infeed.components.feed.processes import naming_broken_pool, result, submit
from infeed.components.load.ahead import in_order, results
from infeed.components.load.columns import Features
from infeed.components.load.costs import StageCosts
from infeed.components.load.delivery import NumpyArrays, Recipe
from infeed.components.load.frameworks import Convert
from infeed.components.load.mapping import BatchMap, call_pickled
from infeed.components.load.order import BatchOrder, Ints
from infeed.components.load.pictures import Pictures

_NUMPY = NumpyArrays()
_SPARE = 2  # extra batches that may be ready, so that a slow batch does not block other threads


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
