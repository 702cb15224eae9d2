"""Shuffled orders as TensorFlow computes them, in NumPy.

`tf.random.experimental.stateless_shuffle` is a forward Fisher-Yates shuffle: it swaps position `i` with position
`i + draw % (n - i)`. The draws come from Philox. This module draws for thousands of swaps at once, and LAPACK performs
them. Without LAPACK, NumPy performs many swaps together: it traces each position back through the earlier swaps that
touched it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from infeed.components.load.philox import PhiloxWords, Seed
from infeed.components.seams.lapack import row_swaps

Ints = npt.NDArray[np.int64]
_DRAWN = 1 << 16  # words drawn in one call, so that they stay in the processor's cache
# NumPy swaps at most a quarter of the remaining positions at once, because more swaps would collide often. Up to this
# many swaps, a single call is faster nevertheless.
_SHARE, _FEW = 4, 1 << 11


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
