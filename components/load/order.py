"""Row numbers of each batch: the order of the feed, computed in NumPy.

The rows of a batch depend only on (seed, epoch, step, worker). All readers of a dataset get the same batches, for any
start step and any number of workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Literal

import numpy as np
import numpy.typing as npt

from infeed.components.base.checks import at_least, is_whole, refused, require
from infeed.components.feed.options import GlobalBatch
from infeed.components.load.ahead import in_background
from infeed.components.load.shuffle import Rows, Shuffle, fold_in

Remainder = Literal["short", "drop", "pad"]
Ints = npt.NDArray[np.int64]
_ORDER = 2  # the feed folds this number into the seed of an epoch to derive the seed of its order


@dataclass(frozen=True)
class BatchOrder:
    """Row numbers of every batch of a worker, starting at step `start_step`. Iteration yields int64 [batch]."""

    rows: int
    # The global batch and this worker. The concatenated parts of all workers are the global batch.
    batch: GlobalBatch
    # Whether each epoch has a new order of whole batches. If False, the rows come once and in order, and the last batch
    # may be short.
    shuffled: bool
    start_step: int = 0  # number of the first batch, counted from the beginning of training
    # Number of epochs, counted from the beginning of training; None repeats forever, or reads one epoch without
    # shuffling.
    epochs: int | None = None
    # Without shuffling, whether a last batch that is not full is short, left out, or padded with its last row.
    remainder: Remainder = "short"

    def __post_init__(self) -> None:
        require(self.epochs is None or is_whole(self.epochs), self, "epochs", "use an integer")
        at_least(self, 1, "epochs")
        if not self.steps_per_epoch:
            what = f"batch_size is {self.batch.size:,}, more than the {self.rows:,} rows"
            raise refused(self, "batch_size", "use a smaller batch, or leave out drop_remainder", what)
        if (end := self._end) is not None and self.start_step >= end:
            single = end == self.steps_per_epoch
            ends = f"the epoch of {end:,} steps" if single else f"{self.epochs:,} epochs of {self.steps_per_epoch:,}"
            do = f"use a step below {end:,}" + (", or more epochs" if self.shuffled else "")
            raise refused(self, "start_step", do, f"start_step is {self.start_step:,}, beyond {ends}")

    @property
    def steps_per_epoch(self) -> int:
        """Number of global batches. With a shuffle, only full batches count."""
        if self.shuffled:
            return self.batch.steps(self.rows)
        return self.rows // self.batch.size if self.remainder == "drop" else -(-self.rows // self.batch.size)

    def __len__(self) -> int:
        """Return the number of batches. Raises TypeError if the order is endless."""
        if self._end is None:
            raise TypeError("an endless order has no length")
        return self._end - self.start_step

    def __iter__(self) -> Iterator[Ints]:
        for rows, batches in self.chunks(1):
            yield from np.split(rows, batches)

    @property
    def is_endless(self) -> bool:
        return self._end is None

    def chunks(self, most: int, ahead: int = 0) -> Iterator[tuple[Ints, int]]:
        """Yield (concatenated row numbers, number of batches) for up to `most` batches of one epoch and size.

        A thread computes the orders of `ahead` epochs in advance.
        """
        epoch, first = divmod(self.start_step, self.steps_per_epoch)
        if not self.shuffled:
            for _ in range(epoch, self.epochs or 1):
                yield from self._in_order(first, self.steps_per_epoch, most)
                first = 0
            return
        epochs = count(epoch) if self.epochs is None else range(epoch, self.epochs)
        for steps in in_background(map(partial(self._shuffled, Shuffle(self.rows)), epochs), ahead):
            for begin in range(first, len(steps), most):
                some = steps[begin : begin + most]
                yield some.reshape(-1).astype(np.int64), len(some)
            first = 0

    def _shuffled(self, shuffle: Shuffle, epoch: int) -> Rows:
        """Return the row numbers of an epoch, uint32 [steps, batch]."""
        order = shuffle.order(fold_in((self.batch.seed, epoch), _ORDER))
        if self.batch.size > self.rows:
            order = np.tile(order, -(-self.batch.size // self.rows))
        full = order[: self.steps_per_epoch * self.batch.size]
        steps: Rows = full.reshape(self.steps_per_epoch, self.batch.workers.count, -1)[:, self.batch.workers.index]
        return steps

    def _in_order(self, first: int, last: int, most: int) -> Iterator[tuple[Ints, int]]:
        batch, part = self.batch, self.batch.part
        full, index, workers = self.rows // batch.size, batch.workers.index, batch.workers.count
        for begin in range(first, full, most):
            steps = np.arange(begin, min(begin + most, full))
            starts = steps * batch.size + index * part
            yield (starts[:, np.newaxis] + np.arange(part)).reshape(-1), len(steps)
        if full < last:
            begin, size = full * batch.size, self.rows - full * batch.size
            if self.remainder == "pad":
                yield np.minimum(begin + index * part + np.arange(part), self.rows - 1), 1
                return
            yield np.arange(begin + size * index // workers, begin + size * (index + 1) // workers), 1

    def present(self, step: int) -> npt.NDArray[np.float32] | None:
        """Return 1 for each row of this worker's batch, and 0 for padding, float32 [batch]. None if nothing pads."""
        if self.remainder != "pad":
            return None
        begin = step % self.steps_per_epoch * self.batch.size + self.batch.workers.index * self.batch.part
        return (np.arange(begin, begin + self.batch.part) < self.rows).astype(np.float32)

    @property
    def _end(self) -> int | None:
        """End of the steps, exclusive."""
        epochs = self.epochs or (None if self.shuffled else 1)
        return None if epochs is None else epochs * self.steps_per_epoch
