"""NumPy batches as a `keras.utils.PyDataset`, which Keras accepts on every backend.

Keras accepts no other re-iterable Python object.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from infeed.components.load.batches import Batches
from infeed.components.load.order import BatchOrder, Ints

_SHAPES_FROM = 2  # on TensorFlow, Keras reads this many batches to determine their shapes, then starts over


def numpy_batches(
    order: BatchOrder, read: Callable[[BatchOrder], Iterator[Any]], take: Callable[[BatchOrder, int, Ints], Any]
) -> Batches[Any]:
    """Return the batches of `read`, as a PyDataset if this process has imported Keras 3.

    Args:
      take: returns one batch of an order by its step and its rows.
    """
    keras = sys.modules.get("keras")
    dataset = getattr(getattr(keras, "utils", None), "PyDataset", None)
    return Batches(order, read) if dataset is None else _class_of(dataset)(order, read, take)


def _class_of(dataset: type[Any]) -> type[Any]:
    class KerasBatches(Batches[Any], dataset):
        """Batches with a length, which Keras requests by number."""

        def __init__(
            self,
            order: BatchOrder,
            read: Callable[[BatchOrder], Iterator[Any]],
            take: Callable[[BatchOrder, int, Ints], Any],
        ) -> None:
            dataset.__init__(self)
            Batches.__init__(self, order, read)
            self._take = take
            self._pass: tuple[BatchOrder, list[Ints]] | None = None  # a finite pass, and the rows of its batches
            self._asked = 0  # number of batches of the pass that Keras has requested
            self._first: list[Any] = []

        @property
        def num_batches(self) -> int | None:
            """Number of batches in an iteration. None if it is endless."""
            return None if self.order.is_endless else len(self)

        def __getitem__(self, number: int) -> Any:
            """Return a batch of this pass by its number. An endless order returns the next batch."""
            return self._following(number) if self.order.is_endless else self._numbered(number)

        def on_epoch_end(self) -> None:
            """Begin the next pass if Keras has read this one."""
            if self._pass is not None and self._asked >= len(self._pass[1]):
                order, _ = self._pass
                self._step, self._pass, self._asked = self._step + len(order), None, 0
                self._epoch = self._step // order.steps_per_epoch

        def _numbered(self, number: int) -> Any:
            if self._pass is None:
                order = self.next_pass()
                self._pass = order, list(order)
            order, rows = self._pass
            self._asked += 1
            return self._take(order, order.start_step + number, rows[number])

        def _following(self, number: int) -> Any:
            if number < len(self._first):
                return self._first[number]
            batch = next(self)
            self._first = [*self._first, batch] if number < _SHAPES_FROM else []
            return batch

    return KerasBatches
