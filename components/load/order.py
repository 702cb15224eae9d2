"""Which rows make up which batch, as row numbers: the feed's own order, made in NumPy.

What an epoch, a step and a worker are given follows from (seed, epoch, step, worker) alone, so every reader of a
dataset has the same batches, wherever it begins and however many share the work.

The shuffle gives the feed's permutations, number for number, without TensorFlow.
`tf.random.experimental.stateless_shuffle` is Fisher and Yates's shuffle, from the first place on: place `i` changes
with place `i + draw % (n - i)`, the draws being those of Philox (Salmon et al. 2011, "Parallel random numbers: as easy
as 1, 2, 3", with 4 words of 32 bits and 10 rounds). Here thousands of changes are made together. What would have
happened one after the other follows from who touched a place before whom: each place that changes is given what the
other one holds at that moment, and that is found by going back from change to change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np
import numpy.typing as npt

from infeed.components.checks import about, at_least, refused, require
from infeed.components.feed.options import SINGLE_WORKER, WorkerContext

Ints = npt.NDArray[np.int64]
# The feed derives the seed of an epoch's order from that of the epoch by this number.
_ORDER = 2
Words = npt.NDArray[np.uint32]
Seed = tuple[int, int]
_ROUNDS = 10
_MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], np.uint64)
_WEYL = np.array([[0x9E3779B9], [0xBB67AE85]], np.uint64)  # what is added to the key after each round
_SCRAMBLE = 0x3EC8F720, 0x02461E29  # the key that TensorFlow makes keys with
_HALF, _LOW = np.uint64(32), np.uint64((1 << 32) - 1)
_WORDS = 4  # of one block
# Of the places that are left, the share that changes in one call: more of them would touch one another's places.
_SHARE = 4
_MOST = 1 << 15  # changes of one call: they stay in the processor's cache
_FEW = 1 << 11  # places that change in one call, however many touch one another's


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


def fold_in(seed: Seed, data: int) -> Seed:
    """`tf.random.experimental.stateless_fold_in` of int64: a seed of its own for each `data`."""
    low, high = (int(word) for word in _Draws(seed).take(2))
    return low | high << 32, data


def shuffle(values: Ints, seed: Seed) -> None:
    """Puts the values, [n], into the order of `tf.random.experimental.stateless_shuffle`, in place."""
    count, draws = len(values), _Draws(seed)
    toucher, first = np.empty(count, np.int64), 0
    while (left := count - first) > 1:
        size = left - 1 if left <= _FEW else min(left // _SHARE, _MOST)
        choices = np.arange(left, left - size, -1, dtype=np.uint32)
        others = (draws.take(size, min(left, _MOST)) % choices).astype(np.int64)
        others += np.arange(first, first + size)
        _change(values, first, others, toucher)
        first += size


def _change(values: Ints, first: int, others: Ints, toucher: Ints) -> None:
    """Changes the value at place `first + i` with that at `others[i]`, for each i in turn.

    Args:
      others: int64 [changes], none of them before its place
      toucher: int64 [n], room for what is noted of each place
    """
    own = slice(first, first + len(others))
    found = values[own].copy()  # what change i finds at its own place
    touched, roots = _touched_before(others, first)
    found[touched] = values.take(roots + first)
    later, earlier = _same_other(others, toucher)
    taken = values.take(others)
    taken[later] = found.take(earlier)  # the earlier change has left there what it found
    values[others] = found  # of several the last one stays
    values[own] = taken


def _touched_before(others: Ints, first: int) -> tuple[Ints, Ints]:
    """The changes whose own place an earlier one has touched, and for each the change whose first value lies there."""
    inside = np.flatnonzero(others < first + len(others))
    own = others.take(inside) - first
    is_other = own != inside
    touching, touched = inside[is_other], own[is_other]
    source = np.arange(len(others))
    source[touched] = touching  # of several the last one stays; its own place may have been touched before
    left = touched
    while len(left):
        before = source.take(left)
        further = source.take(before)
        moved = further != before
        left = left[moved]
        source[left] = further[moved]
    return touched, source.take(touched)


def _same_other(others: Ints, toucher: Ints) -> tuple[Ints, Ints]:
    """Pairs of changes with the same other place, the later and the one before it."""
    numbers = np.arange(len(others))
    toucher[others] = numbers  # of several the last one stays
    rest = np.flatnonzero(toucher.take(others) != numbers)
    later, earlier = [rest[:0]], [rest[:0]]
    while len(rest):
        places = others.take(rest)
        above = toucher.take(places)
        toucher[places] = rest
        is_last = toucher.take(places) == rest
        later.append(above[is_last])
        earlier.append(rest[is_last])
        rest = rest[~is_last]
    return np.concatenate(later), np.concatenate(earlier)


class _Draws:
    """The words that TensorFlow's Philox draws from a seed of two int64, one after the other."""

    def __init__(self, seed: Seed) -> None:
        low, high = (part & (1 << 64) - 1 for part in seed)
        mixed = [int(word) for word in _philox(np.array([low], np.uint64), high, _SCRAMBLE)]
        self._key, self._counter = (mixed[0], mixed[1]), mixed[2] | mixed[3] << 32
        self._block, self._left = 0, np.empty(0, np.uint32)

    def take(self, count: int, at_once: int = 0) -> Words:
        """The next so many, uint32 [count]; where some have to be made, at least `at_once`."""
        missing = count - len(self._left)
        make = max(missing, at_once) if missing > 0 else 0
        blocks = np.arange(self._block, self._block - (-make // _WORDS), dtype=np.uint64)
        self._block += len(blocks)
        drawn = np.concatenate([self._left, _philox(blocks, self._counter, self._key)]) if make else self._left
        self._left = drawn[count:]
        return drawn[:count]


def _philox(low: npt.NDArray[np.uint64], high: int, key: tuple[int, int]) -> Words:
    """Counters of 128 bits, whose lower halves are [n], -> four words drawn for each, [n * 4].

    Of the four words of each counter two are multiplied in a round, and the other two mixed in.
    """
    multiplied = np.stack([low & _LOW, np.full_like(low, high & 0xFFFFFFFF)])
    mixed = np.stack([low >> _HALF, np.full_like(low, high >> 32)])
    keys = np.array(key, np.uint64)[:, np.newaxis]
    products = np.empty_like(multiplied)
    for _ in range(_ROUNDS):
        np.multiply(multiplied, _MULTIPLIERS, out=products)
        np.right_shift(products[::-1], _HALF, out=multiplied)
        multiplied ^= mixed
        multiplied ^= keys
        np.bitwise_and(products[::-1], _LOW, out=mixed)
        keys = (keys + _WEYL) & _LOW
    words = np.empty((len(low), 2, 2), np.uint32)
    words[:, :, 0], words[:, :, 1] = multiplied.T, mixed.T
    return words.reshape(-1)
