"""The feed's shuffle, without TensorFlow: the same permutations, number for number.

`tf.random.experimental.stateless_shuffle` is Fisher and Yates's shuffle, from the first place on: place `i` changes
with place `i + draw % (n - i)`, the draws being those of Philox (Salmon et al. 2011, "Parallel random numbers: as easy
as 1, 2, 3", with 4 words of 32 bits and 10 rounds). Here many changes are made in one call, where they do not touch
each other's places.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]
Seed = tuple[int, int]

_ROUNDS = 10
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = 0x9E3779B9, 0xBB67AE85  # what is added to the key after each round
_SCRAMBLE = 0x3EC8F720, 0x02461E29  # the key that TensorFlow makes keys with
_WORDS = 4  # of one block
_DRAWS = 1 << 14  # made at a time: they stay in the processor's cache
# So many changes a call, times the root of the places that are left: about as many clash as a call costs.
_CALL = 4.0
_FEW = 1 << 10  # places that are left to the end: calls for them cost more than they save


def fold_in(seed: Seed, data: int) -> Seed:
    """`tf.random.experimental.stateless_fold_in` of int64: a seed of its own for each `data`."""
    low, high = (int(word) for word in _Draws(seed).take(2))
    return low | high << 32, data


def shuffle(values: Ints, seed: Seed) -> None:
    """Puts the values, [n], into the order of `tf.random.experimental.stateless_shuffle`, in place."""
    count, draws = len(values), _Draws(seed)
    owner = np.empty(count, np.int64)  # which change took a place last
    first = 0
    while (left := count - first) > _FEW:
        size = min(int(_CALL * left**0.5), left - 1)
        places = np.arange(first, first + size)
        _change(values, places, places + draws.take(size) % (count - places).astype(np.uint32), owner)
        first += size
    _change_one_by_one(values[first:], draws)


def _change(values: Ints, places: Ints, others: Ints, owner: Ints) -> None:
    """Changes the values at neighbouring `places` with those at `others`, as if one after the other."""
    begin, end = places[0], places[-1] + 1
    owner[others] = places
    early = np.flatnonzero(owner[others] != places)  # a later one has the same other place
    inside = np.flatnonzero(others < end)  # the other place is changed in this call for its own sake as well
    clashing = np.unique(np.concatenate([early, owner[others[early]] - begin, inside, others[inside] - begin]))
    one_by_one = zip((clashing + begin).tolist(), others[clashing].tolist(), strict=True)
    others[clashing] = clashing + begin
    taken = values[others]
    values[others] = values[begin:end]
    values[begin:end] = taken
    for one, other in one_by_one:
        values[one], values[other] = values[other], values[one]


def _change_one_by_one(values: Ints, draws: _Draws) -> None:
    changed: list[int] = values.tolist()
    count = len(changed)
    for place, draw in enumerate(draws.take(max(0, count - 1)).tolist()):
        other = place + draw % (count - place)
        changed[place], changed[other] = changed[other], changed[place]
    values[:] = changed


class _Draws:
    """The words that TensorFlow's Philox draws from a seed of two int64, one after the other."""

    def __init__(self, seed: Seed) -> None:
        low, high = (part & (1 << 64) - 1 for part in seed)
        counter = (low & 0xFFFFFFFF, low >> 32, high & 0xFFFFFFFF, high >> 32)
        mixed = [int(word) for word in _philox(*(np.array([part], np.uint32) for part in counter), key=_SCRAMBLE)[0]]
        self._key, self._counter = (mixed[0], mixed[1]), (mixed[2], mixed[3])
        self._block, self._left = 0, np.empty(0, np.uint32)

    def take(self, count: int) -> Words:
        """The next so many, uint32 [count]."""
        parts, missing = [self._left[:count]], count - len(self._left)
        self._left = self._left[count:]
        while missing > 0:
            made = self._next()
            parts.append(made[:missing])
            self._left, missing = made[missing:], missing - len(made)
        return np.concatenate(parts)

    def _next(self) -> Words:
        blocks = np.arange(self._block, self._block + _DRAWS // _WORDS, dtype=np.uint64)
        self._block += len(blocks)
        rest = (np.full(len(blocks), word, np.uint32) for word in self._counter)
        low, high = blocks.astype(np.uint32), (blocks >> np.uint64(32)).astype(np.uint32)
        return _philox(low, high, *rest, key=self._key).reshape(-1)


def _philox(a: Words, b: Words, c: Words, d: Words, *, key: tuple[int, int]) -> Words:
    """Counters, their four words of [n] each, -> what is drawn for each, [n, 4]."""
    keys = [np.uint32(word) for word in key]
    for _ in range(_ROUNDS):
        low_a, high_a = _multiply(a, _MULTIPLIERS[0])
        low_c, high_c = _multiply(c, _MULTIPLIERS[1])
        a, b, c, d = high_c ^ b ^ keys[0], low_c, high_a ^ d ^ keys[1], low_a
        keys = [np.uint32((int(word) + step) & 0xFFFFFFFF) for word, step in zip(keys, _WEYL, strict=True)]
    return np.stack([a, b, c, d], axis=1)


def _multiply(words: Words, by: np.uint64) -> tuple[Any, Any]:
    """The low and the high words of products, [n] each."""
    products = (words.astype(np.uint64) * by).astype("<u8", copy=False).view("<u4")
    return products[0::2], products[1::2]
