"""Random words and shuffled orders as TensorFlow computes them, in NumPy.

The generator is Philox: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", with 4 words of 32 bits and
10 rounds. A word that all counters share is an int, and costs no pass over arrays: at first, three of four are.

`tf.random.experimental.stateless_shuffle` is a forward Fisher-Yates shuffle: it swaps position `i` with position
`i + draw % (n - i)`. This module draws for thousands of swaps at once, and LAPACK performs them. Without LAPACK, NumPy
performs many swaps together: it traces each position back through the earlier swaps that touched it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from infeed.components.seams.lapack import row_swaps

Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.uint32]
Words = npt.NDArray[np.uint32]
Word = Words | int  # word of each counter, uint32 [counters], or of all counters
Seed = tuple[int, int]
WORDS = 4  # words that one counter yields
_ROUNDS = 10
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85  # added to the key after each round
_SCRAMBLE = 0x3EC8F720, 0x02461E29  # key with which TensorFlow derives keys
_HALF, _LOW = 32, (1 << 32) - 1
_U32, _U64 = np.dtype("<u4"), np.dtype("<u8")
_DRAWN = 1 << 16  # maximum number of words drawn in one call, so that they stay in the processor's cache
# NumPy swaps at most a quarter of the remaining positions at once, because more swaps would collide often. Up to this
# many swaps, a single call is faster nevertheless.
_SHARE, _FEW = 4, 1 << 11


class _Halves(NamedTuple):
    """Numbers of 64 bits, [counters], and views of their lower and upper halves."""

    whole: npt.NDArray[np.uint64]
    low: Words
    high: Words

    @classmethod
    def of(cls, counters: int) -> _Halves:
        whole = np.zeros(counters, _U64)
        halves = whole.view(_U32)
        return cls(whole, halves[::2], halves[1::2])


class PhiloxMemory:
    """Arrays in which words are drawn for many counters at once. New arrays would cost as much as the words."""

    def __init__(self, counters: int) -> None:
        self.numbers = np.arange(counters, dtype=_U64)
        self.words = np.empty((counters, WORDS), _U32)
        # The two words to multiply. Their upper halves stay 0.
        self.factors = [_Halves.of(counters) for _ in _MULTIPLIERS]
        # Products of this round and of the one before, whose lower halves this round mixes in.
        self.products = [[_Halves.of(counters) for _ in _MULTIPLIERS] for _ in range(2)]


class Philox:
    """Generator that TensorFlow derives from a seed of two int64."""

    def __init__(self, seed: Seed) -> None:
        counter = [part >> shift & _LOW for part in seed for shift in (0, _HALF)]
        words = _block(counter, _SCRAMBLE)
        self._key, self._high = words[:2], words[2:]

    def first(self) -> list[int]:
        """Return the first block of four words."""
        return _block([0, 0, *self._high], self._key)

    def words(self, count: int, block: int = 0) -> Words:
        """Return `count` words of the sequence, which begin at a block of four words, uint32 [count]."""
        return self.draw(block, PhiloxMemory(-(-count // WORDS)))[:count]

    def draw(self, block: int, memory: PhiloxMemory) -> Words:
        """Return the words of as many blocks as `memory` holds, uint32 [blocks * 4]. The next call overwrites them."""
        low, above = memory.factors[0], block >> _HALF
        np.add(memory.numbers, np.uint64(block & _LOW), out=low.whole)
        counter: list[Word] = [low.low, above, *self._high]
        if (block & _LOW) + len(memory.numbers) > _LOW:  # the sums exceed 32 bits
            counter[1] = low.high + np.uint32(above)
            low.high[:] = 0
        for place, word in enumerate(_mixed(counter, self._key, memory)):
            memory.words[:, place] = word
        return memory.words.reshape(-1)


def _block(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    return [int(word) for word in _mixed(counter, key, PhiloxMemory(0))]


def _mixed(counter: Sequence[Word], key: Sequence[int], memory: PhiloxMemory) -> list[Word]:
    """Return the four words of counters of four words. If word 0 is an array, it is the first of `memory.factors`."""
    factors, (first, mixed_first, second, mixed_second) = memory.factors, counter
    for number in range(_ROUNDS):
        places = zip((first, second), _MULTIPLIERS, factors, memory.products[number % 2], strict=True)
        (low_first, high_first), (low_second, high_second) = (_multiplied(*place) for place in places)
        first = _combined(high_second, mixed_first, key[0], factors[0])
        second = _combined(high_first, mixed_second, key[1], factors[1])
        mixed_first, mixed_second = low_second, low_first
        key = [word + weyl & _LOW for word, weyl in zip(key, _WEYL, strict=True)]
    return [first, mixed_first, second, mixed_second]


def _multiplied(word: Word, multiplier: int, factor: _Halves, out: _Halves) -> tuple[Word, Word]:
    """Return the lower and upper half of a product. `word` is an int, or the lower half of `factor`."""
    if isinstance(word, int):
        return word * multiplier & _LOW, word * multiplier >> _HALF
    np.multiply(factor.whole, np.uint64(multiplier), out=out.whole)
    return out.low, out.high


def _combined(high: Word, low: Word, key: int, out: _Halves) -> Word:
    """Return high ^ low ^ key. An array is written into the lower half of `out`."""
    if isinstance(high, int):
        return high ^ low ^ key if isinstance(low, int) else np.bitwise_xor(low, np.uint32(high ^ key), out=out.low)
    if isinstance(low, int):
        return np.bitwise_xor(high, np.uint32(low ^ key), out=out.low)
    np.bitwise_xor(high, low, out=out.low)
    np.bitwise_xor(out.whole, np.uint64(key), out=out.whole)  # half the time of `out.low`, which has strides
    return out.low


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
