"""Row numbers of each batch: the order of the feed, computed in NumPy.

The rows of a batch depend only on (seed, epoch, step, worker). All readers of a dataset get the same batches, for any
start step and any number of workers.

The shuffle reproduces the feed's permutations without TensorFlow. `tf.random.experimental.stateless_shuffle` is a
forward Fisher-Yates shuffle: it swaps position `i` with position `i + draw % (n - i)`. The draws come from
Philox (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", with 4 words of 32 bits and 10 rounds). This
module draws for thousands of swaps at once, and LAPACK performs them. Without LAPACK, NumPy performs many swaps
together: it traces each position back through the earlier swaps that touched it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Literal

import numpy as np
import numpy.typing as npt

from infeed.components.base.checks import at_least, refused, require
from infeed.components.feed.options import GlobalBatch
from infeed.components.load.ahead import in_background
from infeed.components.seams.lapack import row_swaps

Ints = npt.NDArray[np.int64]
_ORDER = 2  # the feed folds this number into the seed of an epoch to derive the seed of its order
Words = npt.NDArray[np.uint32]
Seed = tuple[int, int]
_ROUNDS = 10
_MULTIPLIERS = np.array([0xD2511F53, 0xCD9E8D57], np.uint64)
_WEYL = np.array([0x9E3779B9, 0xBB67AE85], np.uint64)  # added to the key after each round
_SCRAMBLE = 0x3EC8F720, 0x02461E29  # key with which TensorFlow derives keys
_HALF, _LOW = np.uint64(32), np.uint64((1 << 32) - 1)
_WORDS = 4  # words of one block
_DRAWN = 1 << 16  # words drawn in one call, so that they stay in the processor's cache
# NumPy swaps at most a quarter of the remaining positions at once, because more swaps would collide often. Up to this
# many swaps, a single call is faster nevertheless.
_SHARE, _FEW = 4, 1 << 11


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
    remainder: Literal["short", "drop", "pad"] = "short"

    def __post_init__(self) -> None:
        require(self.epochs is None or type(self.epochs) is int, self, "epochs", "use an integer")
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
        for steps in in_background(map(self._shuffled, epochs), ahead):
            for begin in range(first, len(steps), most):
                some = steps[begin : begin + most]
                yield some.reshape(-1), len(some)
            first = 0

    def _shuffled(self, epoch: int) -> Ints:
        """Return the row numbers of an epoch, int64 [steps, batch]."""
        order = np.arange(self.rows)
        shuffle(order, fold_in((self.batch.seed, epoch), _ORDER))
        if self.batch.size > self.rows:
            order = np.tile(order, -(-self.batch.size // self.rows))
        full = order[: self.steps_per_epoch * self.batch.size]
        steps: Ints = full.reshape(self.steps_per_epoch, self.batch.workers.count, -1)[:, self.batch.workers.index]
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


def fold_in(seed: Seed, data: int) -> Seed:
    """Derive a seed for each value of `data`, like `tf.random.experimental.stateless_fold_in` for int64."""
    low, high = (int(word) for word in PhiloxWords(seed).take(2))
    return low | high << 32, data


def shuffle(values: Ints, seed: Seed) -> None:
    """Shuffle values, [n], in place, like `tf.random.experimental.stateless_shuffle`."""
    draws, swap, numbers = PhiloxWords(seed), row_swaps() or swap_rows, np.arange(min(len(values), _DRAWN))
    for first in range(0, len(values) - 1, _DRAWN):
        left = len(values) - first
        size = min(left - 1, _DRAWN)
        others = (draws.take(size) % np.arange(left, left - size, -1, dtype=np.uint32)).astype(np.int64)
        others += numbers[:size]
        swap(values[first:], others)


def swap_rows(values: Ints, others: Ints) -> None:
    """Swap values i and others[i], for each i in turn. No others[i] is before i. Values are int64 [n]."""
    first = 0
    while first < len(others):
        some = others[first : first + max(_FEW, (len(values) - first) // _SHARE)] - first
        _swap_at_once(values[first:], some)
        first += len(some)


def _swap_at_once(values: Ints, others: Ints) -> None:
    own = slice(len(others))
    found = values[own].copy()  # value at the left position of swap i
    touched, roots = _touched_before(others)
    # Positions that an earlier swap has touched hold that swap's value, not the stored one.
    found[touched] = values.take(roots)
    taken = values.take(others)
    values[others] = np.arange(len(others))  # for equal indices, the last one wins
    later, earlier = _same_other(others, values)
    taken[later] = found.take(earlier)  # an earlier swap has moved its value there
    values[others] = found
    values[own] = taken


def _touched_before(others: Ints) -> tuple[Ints, Ints]:
    """Return the swaps whose left position an earlier swap touched, and for each the swap whose value is now there."""
    inside = np.flatnonzero(others < len(others))
    own = others.take(inside)
    is_other = own != inside
    touching, touched = inside[is_other], own[is_other]
    source = np.arange(len(others))
    source[touched] = touching  # for equal indices, the last one wins. Its left position may have been touched before
    left = touched
    while len(left):
        before = source.take(left)
        further = source.take(before)
        moved = further != before
        left = left[moved]
        source[left] = further[moved]
    return touched, source.take(touched)


def _same_other(others: Ints, toucher: Ints) -> tuple[Ints, Ints]:
    """Return pairs of swaps with the same right position: the later swap and the one before it.

    `toucher` holds the last swap of each right position. It is changed.
    """
    last = toucher.take(others)
    rest = np.flatnonzero(last != np.arange(len(others)))
    above = last.take(rest)
    later, earlier = [rest[:0]], [rest[:0]]
    while len(rest):
        places = others.take(rest)
        toucher[places] = rest
        last = toucher.take(places)
        is_last = last == rest
        later.append(above[is_last])
        earlier.append(rest[is_last])
        rest, above = rest[~is_last], last[~is_last]
    return np.concatenate(later), np.concatenate(earlier)


class PhiloxWords:
    """Sequence of words that TensorFlow's Philox draws from a seed of two int64, starting at a block of four words."""

    def __init__(self, seed: Seed, block: int = 0) -> None:
        low, high = (part & (1 << 64) - 1 for part in seed)
        mixed = [int(word) for word in _philox(np.array([low], np.uint64), high, _SCRAMBLE)]
        self._key, self._counter = (mixed[0], mixed[1]), mixed[2] | mixed[3] << 32
        self._block, self._left = block, np.empty(0, np.uint32)

    def take(self, count: int) -> Words:
        """Return the next `count` words, uint32."""
        missing = max(0, count - len(self._left))
        blocks = np.arange(self._block, self._block - (-missing // _WORDS), dtype=np.uint64)
        self._block += len(blocks)
        drawn = np.concatenate([self._left, _philox(blocks, self._counter, self._key)]) if missing else self._left
        self._left = drawn[count:]
        return drawn[:count]


def _philox(low: npt.NDArray[np.uint64], high: int, key: tuple[int, int]) -> Words:
    """Draw four words for each 128-bit counter, whose lower halves are [n]: [n * 4].

    Each round multiplies two of the four words and mixes in the other two.
    """
    first, mixed_first = low & _LOW, low >> _HALF
    second, mixed_second = np.full_like(low, high & 0xFFFFFFFF), np.full_like(low, high >> 32)
    product, other = np.empty_like(low), np.empty_like(low)
    keys = np.array(key, np.uint64)
    for _ in range(_ROUNDS):
        np.multiply(first, _MULTIPLIERS[0], out=product)
        np.multiply(second, _MULTIPLIERS[1], out=other)
        mixes = ((first, other, mixed_first), (second, product, mixed_second))
        for key_word, (word, above, mixed) in zip(keys, mixes, strict=True):
            np.right_shift(above, _HALF, out=word)
            word ^= mixed
            word ^= key_word
            word &= _LOW
        # The lower halves of the products are the next words to mix in. `word &= _LOW` removes their upper halves.
        mixed_first, mixed_second, product, other = other, product, mixed_first, mixed_second
        keys = (keys + _WEYL) & _LOW
    words = np.empty((len(low), _WORDS), np.uint32)
    for place, word in enumerate((first, mixed_first, second, mixed_second)):
        words[:, place] = word  # keeps the lower half
    return words.reshape(-1)
