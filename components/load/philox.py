"""Random words as TensorFlow draws them from a seed, in NumPy.

The generator is Philox: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", with 4 words of 32 bits and
10 rounds.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
Seed = tuple[int, int]
_ROUNDS = 10
_MULTIPLIERS = np.array([0xD2511F53, 0xCD9E8D57], np.uint64)
_WEYL = np.array([0x9E3779B9, 0xBB67AE85], np.uint64)  # added to the key after each round
_SCRAMBLE = 0x3EC8F720, 0x02461E29  # key with which TensorFlow derives keys
_HALF, _LOW = np.uint64(32), np.uint64((1 << 32) - 1)
_WORDS = 4  # words of one block


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
