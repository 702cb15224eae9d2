"""Shuffled orders: those of TensorFlow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.load.shuffle import Philox, PhiloxMemory, Shuffle, fold_in


def shuffled(count: int, seed: tuple[int, int]) -> list[int]:
    return Shuffle(count).order(seed).tolist()


SEEDS = [(0, 0), (7, 3), (-1, 2), (2**63 - 1, -(2**63)), (123456789012, 5)]


@given(st.integers(0, 5000), st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**63 - 1)))
def test_it_is_a_permutation_and_the_same_each_time(count, seed):
    assert sorted(shuffled(count, seed)) == list(range(count))
    assert shuffled(count, seed) == shuffled(count, seed)


def test_a_permutation_that_is_known():
    """What TensorFlow 2.16 and 2.21 give."""
    assert shuffled(10, (7, 3)) == [0, 5, 3, 1, 4, 2, 7, 8, 9, 6]


def test_each_epoch_has_another_order():
    assert len({tuple(shuffled(100, fold_in((5, epoch), 2))) for epoch in range(50)}) == 50


@pytest.mark.stack
@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS, ids=str)
def test_it_is_tensorflows(seed):
    import tensorflow as tf

    folded = tf.random.experimental.stateless_fold_in(tf.constant(seed, tf.int64), tf.constant(9, tf.int64))
    as_signed = np.array(fold_in(seed, 9), np.uint64).astype(np.int64)
    assert as_signed.tolist() == folded.numpy().tolist()
    for count in (1, 2, 3, 1000, 1025, 1026, 5000, 100_003):
        theirs = tf.random.experimental.stateless_shuffle(tf.range(count, dtype=tf.int64), seed)
        assert shuffled(count, seed) == theirs.numpy().tolist()


LOW = 0xFFFFFFFF
SCRAMBLE = 0x3EC8F720, 0x02461E29


def block_of(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    """Return the four words of one counter, with the integers of Python."""
    c0, c1, c2, c3 = counter
    for _ in range(10):
        first, second = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (second >> 32) ^ c1 ^ key[0], second & LOW, (first >> 32) ^ c3 ^ key[1], first & LOW
        key = (key[0] + 0x9E3779B9 & LOW, key[1] + 0xBB67AE85 & LOW)
    return c0, c1, c2, c3


def tensorflows(seed: tuple[int, int], block: int, count: int) -> list[int]:
    low, high = (part & (1 << 64) - 1 for part in seed)
    k0, k1, c2, c3 = block_of((low & LOW, low >> 32, high & LOW, high >> 32), SCRAMBLE)
    blocks = range(block, block - (-count // 4))
    return [word for one in blocks for word in block_of((one & LOW, one >> 32, c2, c3), (k0, k1))][:count]


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((LOW,) * 4, (LOW, LOW), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_the_reference_gives_the_known_answers(counter, key, words):
    assert block_of(counter, key) == words


ANY_SEEDS = st.tuples(st.integers(-(2**63), 2**64 - 1), st.integers(-(2**63), 2**64 - 1))


@given(ANY_SEEDS, st.integers(0, 2**33), st.integers(1, 70))
def test_words_are_those_of_the_reference(seed, block, count):
    assert Philox(seed).words(count, block).tolist() == tensorflows(seed, block, count)


def test_blocks_beyond_32_bits_continue_in_the_next_word():
    block = (1 << 32) - 2
    assert Philox((1, 2)).words(16, block).tolist() == tensorflows((1, 2), block, 16)


def test_memory_serves_several_draws():
    philox, memory = Philox((5, -6)), PhiloxMemory(3)
    drawn = [philox.draw(block, memory).tolist() for block in ((1 << 32) - 1, 0, 3)]
    assert drawn == [tensorflows((5, -6), block, 12) for block in ((1 << 32) - 1, 0, 3)]
