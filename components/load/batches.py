"""Repeatable passes over an order, which clients of `infeed.load` iterate over.

Clients such as Lightning, Accelerate and Keras request an iterator once per epoch. Each iterator continues with the
next epoch, so that the shuffled order changes. Keras accepts no re-iterable Python object but its own `PyDataset`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

from infeed.components.base.errors import InfeedError
from infeed.components.load.order import BatchOrder, Ints

T = TypeVar("T")
_SHAPES_FROM = 2  # on TensorFlow, Keras reads this many batches to determine their shapes, then starts over


class Batches(Generic[T]):
    """Re-iterable batches. Each `iter()` continues with the next epoch.

    With `epochs=n`, one iteration reads n epochs. Otherwise, a shuffled order is endless and has no length.
    `next(batches)` continues after the previous `next`, and so does a later loop.
    """

    def __init__(self, order: BatchOrder, read: Callable[[BatchOrder], Iterator[T]]) -> None:
        self.order, self._read = order, read
        # The next pass begins at this training step, and counts its epochs from this epoch.
        self._epoch = 0 if order.epochs is not None else order.start_step // order.steps_per_epoch
        self._step = order.start_step
        self._begun = False  # whether a pass has begun but not ended
        self._restored = False  # whether the step comes from a saved state
        self._drawn: Iterator[T] | None = None  # the pass that `next` reads

    def __iter__(self) -> Iterator[T]:
        drawn, self._drawn = self._drawn, None
        return self._read_pass() if drawn is None else drawn

    def __next__(self) -> T:
        if self._drawn is None:
            self._drawn = iter(self)
        try:
            return next(self._drawn)
        except StopIteration:
            self._drawn = None
            raise

    def __len__(self) -> int:
        """Return the number of batches of the next iteration. Raises TypeError if it is endless.

        After `load_state_dict`, earlier batches count, too, as trainers for PyTorch expect.
        """
        epoch, step = self._next_position()
        return len(self._pass_at(epoch, epoch * self.order.steps_per_epoch if self._restored else step))

    def set_epoch(self, epoch: int) -> None:
        """Begin the next iteration with this epoch, counted from 0.

        If a resumed training sets the epoch in which it stopped, it continues within that epoch.
        """
        if self._begun or epoch != self._epoch:
            self._epoch, self._step, self._begun = epoch, epoch * self.order.steps_per_epoch, False
        self._drawn = None

    @property
    def batch_sampler(self) -> SimpleNamespace:
        """Object whose `sampler` is these batches. Lightning sets the epoch there, also when it resumes at an epoch."""
        return SimpleNamespace(sampler=self)

    def state_dict(self) -> dict[str, int]:
        """Return the position after the last read batch, for `load_state_dict`."""
        return {"epoch": self._epoch, "step": self._step, **self._identity}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue at a position from `state_dict`. Raises InfeedError if it is of another order, or incomplete."""
        if missing := self.state_dict().keys() - state.keys():
            do = "pass the result of state_dict"
            raise InfeedError(f"the state has no {min(missing)}", where="load_state_dict", do=do)
        for name, value in self._identity.items():
            if state.get(name) != value:
                what = f"the state has {name}={state.get(name)}, but this order has {name}={value}"
                raise InfeedError(what, where="load_state_dict", do="load the data with the options of the saved state")
        self._epoch, self._step, self._begun, self._drawn = state["epoch"], state["step"], False, None
        self._restored = True

    @property
    def _identity(self) -> dict[str, int]:
        batch = self.order.batch
        return {"rows": self.order.rows, "batch_size": batch.size, "seed": batch.seed}

    def _next_position(self) -> tuple[int, int]:
        """Return the first epoch and the first step of the next pass."""
        if not self._begun:
            return self._epoch, self._step
        epoch = -(-self._step // self.order.steps_per_epoch)
        return epoch, epoch * self.order.steps_per_epoch

    def next_pass(self) -> BatchOrder:
        """Begin the next iteration, and return the order of its batches."""
        self._epoch, self._step = self._next_position()
        self._begun = False
        return self._pass_at(self._epoch, self._step)

    def _pass_at(self, epoch: int, step: int) -> BatchOrder:
        order = self.order
        if not order.shuffled and order.epochs is None:  # all epochs are equal, and a pass reads a whole one
            return replace(order, start_step=step % order.steps_per_epoch)
        return replace(order, start_step=step, epochs=order.epochs and epoch + order.epochs)

    def _read_pass(self) -> Iterator[T]:
        """Yield the batches of the next pass, and record the position after each."""
        # The pass begins with its first batch: Lightning first requests the iterator, and then sets the epoch.
        order = self.next_pass()
        after = self._step
        end = None if order.is_endless else after + len(order)
        for batch in self._read(order):
            after += 1
            self._step, self._begun, self._restored = after, after != end, False
            if after == end:
                self._epoch = after // order.steps_per_epoch
            yield batch
            del batch  # so that the next batch can have its memory, which is still cached


class BatchSampler(Batches[list[int]]):
    """Batch sampler of PyTorch: lists of row numbers, one list per batch."""

    def __init__(self, order: BatchOrder) -> None:
        super().__init__(order, _lists)

    @property
    def batch_size(self) -> int:
        """Number of rows in a full batch of this worker."""
        return self.order.batch.part

    @property
    def drop_last(self) -> bool:
        """Whether all batches are full."""
        return self.order.shuffled or self.order.remainder != "short"

    @property
    def sampler(self) -> BatchSampler:
        """This sampler, for clients such as Accelerate that set the epoch on a batch sampler's `sampler`."""
        return self


def _lists(order: BatchOrder) -> Iterator[list[int]]:
    # Not a lambda, because a DataLoader with this sampler is pickled for processes.
    return (rows.tolist() for rows in order)


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
            if self.order.is_endless:
                if number < len(self._first):
                    return self._first[number]
                batch = next(self)
                self._first = [*self._first, batch] if number < _SHAPES_FROM else []
                return batch
            if self._pass is None:
                order = self.next_pass()
                self._pass = order, list(order)
            order, rows = self._pass
            self._asked += 1
            return self._take(order, order.start_step + number, rows[number])

        def on_epoch_end(self) -> None:
            """Begin the next pass if Keras has read this one."""
            if self._pass is not None and self._asked >= len(self._pass[1]):
                order, _ = self._pass
                self._step, self._pass, self._asked = self._step + len(order), None, 0
                self._epoch = self._step // order.steps_per_epoch

    return KerasBatches
