"""Shuffled orders: those of TensorFlow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.load.shuffle import Shuffle, fold_in


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
