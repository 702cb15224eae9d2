"""Random words as TensorFlow draws them from a seed, in NumPy.

The generator is Philox: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", with 4 words of 32 bits and
10 rounds. A word that all counters share is an int, and costs no pass over arrays: at first, three of four are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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
