"""Shuffled orders as TensorFlow computes them, in NumPy.

`tf.random.experimental.stateless_shuffle` is a forward Fisher-Yates shuffle: it swaps position `i` with position
`i + draw % (n - i)`. The draws come from Philox. This module draws for thousands of swaps at once, and LAPACK performs
them. Without LAPACK, NumPy performs many swaps together: it traces each position back through the earlier swaps that
touched it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from infeed.components.load.philox import WORDS, Philox, PhiloxMemory, Seed
from infeed.components.seams.lapack import row_swaps

Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.uint32]
_DRAWN = 1 << 16  # maximum number of words drawn in one call, so that they stay in the processor's cache
# NumPy swaps at most a quarter of the remaining positions at once, because more swaps would collide often. Up to this
# many swaps, a single call is faster nevertheless.
_SHARE, _FEW = 4, 1 << 11


def fold_in(seed: Seed, data: int) -> Seed:
    """Derive a seed for each value of `data`, like `tf.random.experimental.stateless_fold_in` for int64."""
    low, high, *_ = Philox(seed).first()
    return low | high << 32, data


class Shuffle:
    """Shuffled orders of `count` rows. All orders use the same memory."""

    def __init__(self, count: int) -> None:
        self._count, swaps = count, max(count - 1, 1)
        calls = -(-swaps // _DRAWN)
        blocks = -(-swaps // (calls * WORDS))  # of a call, so that all calls are equal
        self._swap, self._memory = row_swaps() or swap_rows, PhiloxMemory(blocks)
        self._numbers = np.arange(1, blocks * WORDS + 1, dtype=np.uint32)
        self._left, self._others = np.empty_like(self._numbers), np.empty(blocks * WORDS, np.int64)

    def order(self, seed: Seed) -> Rows:
        """Return the row numbers in the order of `tf.random.experimental.stateless_shuffle`, uint32 [count]."""
        rows, philox = np.arange(self._count, dtype=np.uint32), Philox(seed)
        for first in range(0, self._count - 1, len(self._numbers)):
            words = philox.draw(first // WORDS, self._memory)[: self._count - first - 1]
            numbers, left, others = self._numbers[: len(words)], self._left[: len(words)], self._others[: len(words)]
            np.subtract(np.uint32(self._count - first + 1), numbers, out=left)
            words %= left
            words += numbers
            others[:] = words
            self._swap(rows[first:], others)
        return rows


def swap_rows(values: Rows, others: Ints) -> None:
    """Swap values i and others[i] - 1, for each i in turn. No others[i] - 1 is before i. Values are uint32 [n]."""
    first, places = 0, others - 1
    while first < len(others):
        some = places[first : first + max(_FEW, (len(values) - first) // _SHARE)] - first
        _swap_at_once(values[first:], some)
        first += len(some)


def _swap_at_once(values: Rows, others: Ints) -> None:
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


def _same_other(others: Ints, toucher: Rows) -> tuple[Ints, Ints]:
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
