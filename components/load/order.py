"""Which rows make up which batch, as row numbers: the feed's own order, made in NumPy.

What an epoch, a step and a worker are given follows from (seed, epoch, step, worker) alone, so every reader of a
dataset has the same batches, wherever it begins and however many share the work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np
import numpy.typing as npt

from infeed.components.checks import about, at_least, refused, require
from infeed.components.feed.options import SINGLE_WORKER, WorkerContext
from infeed.components.load.shuffle import fold_in, shuffle

Ints = npt.NDArray[np.int64]
# The feed derives the seed of an epoch's order from that of the epoch by this number.
_ORDER = 2


@dataclass(frozen=True)
class BatchOrder:
    """The row numbers of every batch of a worker, from step `start_step` on; iterating gives int64 [batch] each.

    It may be iterated again and again, as a batch sampler of PyTorch's DataLoader is.

    Attributes:
      rows: of the split.
      batch_size: of a global batch, over all workers.
      shuffled: whether each epoch has an order of its own, of whole batches; else the rows come once, in their order,
        and the last batch may be short.
      seed: of the orders.
      workers: which worker this is, and of how many. All workers' parts of a step, end to end, are the batch of one.
      start_step: number of the first batch, counted from the beginning of training.
      epochs: ends with the last batch of so many, counted from the beginning of training; None goes on for ever, and
        ends after one where nothing is shuffled.
    """

    rows: int
    batch_size: int
    shuffled: bool
    seed: int = 0
    workers: WorkerContext = SINGLE_WORKER
    start_step: int = 0
    epochs: int | None = None

    def __post_init__(self) -> None:
        with about(self, "batch_size"):
            self.workers.per_worker_batch_size(self.batch_size)  # an error where they cannot share it
        require(self.epochs is None or type(self.epochs) is int, self, "epochs", "use a whole number")
        at_least(self, 1, "epochs")
        if (end := self._end) is not None and self.start_step >= end:
            single = end == self.steps_per_epoch
            ends = f"the epoch of {end:,} steps" if single else f"{self.epochs:,} epochs of {self.steps_per_epoch:,}"
            do = f"use a step below {end:,}" + (", or more epochs" if self.shuffled else "")
            raise refused(self, "start_step", do, f"start_step is {self.start_step:,}, beyond {ends}")

    @property
    def part(self) -> int:
        """Rows of a batch that fall to this worker."""
        return self.workers.per_worker_batch_size(self.batch_size)

    @property
    def steps_per_epoch(self) -> int:
        """Global batches: those that the rows fill, or, where nothing is shuffled, all that it takes to hold them."""
        return max(1, self.rows // self.batch_size) if self.shuffled else -(-self.rows // self.batch_size)

    def __len__(self) -> int:
        """Batches to the end.

        Raises:
          TypeError: there is none.
        """
        if self._end is None:
            raise TypeError("an endless order has no length")
        return self._end - self.start_step

    def __iter__(self) -> Iterator[Ints]:
        for rows, batches in self.chunks(1):
            yield from np.split(rows, batches)

    def chunks(self, most: int) -> Iterator[tuple[Ints, int]]:
        """(row numbers of some batches of one size, end to end; how many batches): `most` at most, of one epoch."""
        epoch, first = divmod(self.start_step, self.steps_per_epoch)
        for number in count(epoch):
            last = self.steps_per_epoch
            yield from self._shuffled(number, first, last, most) if self.shuffled else self._in_order(first, last, most)
            first = 0
            if self._end == (number + 1) * self.steps_per_epoch:
                return

    def _shuffled(self, epoch: int, first: int, last: int, most: int) -> Iterator[tuple[Ints, int]]:
        order = np.arange(self.rows)
        shuffle(order, fold_in((self.seed, epoch), _ORDER))
        order = np.tile(order, -(-self.batch_size // self.rows))  # once, unless a batch is larger than the split
        full = order[: self.steps_per_epoch * self.batch_size]
        steps = full.reshape(self.steps_per_epoch, self.workers.count, -1)[:, self.workers.index]
        for begin in range(first, last, most):
            some = steps[begin : min(begin + most, last)]
            yield some.reshape(-1), len(some)

    def _in_order(self, first: int, last: int, most: int) -> Iterator[tuple[Ints, int]]:
        full, index, workers = self.rows // self.batch_size, self.workers.index, self.workers.count
        for begin in range(first, full, most):
            steps = np.arange(begin, min(begin + most, full))
            starts = steps * self.batch_size + index * self.part
            yield (starts[:, np.newaxis] + np.arange(self.part)).reshape(-1), len(steps)
        if full < last:
            begin, size = full * self.batch_size, self.rows - full * self.batch_size
            yield np.arange(begin + size * index // workers, begin + size * (index + 1) // workers), 1

    @property
    def _end(self) -> int | None:
        """The step behind the last one."""
        if not self.shuffled:
            return self.steps_per_epoch
        return None if self.epochs is None else self.epochs * self.steps_per_epoch
