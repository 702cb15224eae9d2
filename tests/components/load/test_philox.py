"""Random words: those of Philox4x32-10, whose authors publish known answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.load.philox import Philox, PhiloxMemory

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


SEEDS = st.tuples(st.integers(-(2**63), 2**64 - 1), st.integers(-(2**63), 2**64 - 1))


@given(SEEDS, st.integers(0, 2**33), st.integers(1, 70))
def test_words_are_those_of_the_reference(seed, block, count):
    assert Philox(seed).words(count, block).tolist() == tensorflows(seed, block, count)


def test_blocks_beyond_32_bits_continue_in_the_next_word():
    block = (1 << 32) - 2
    assert Philox((1, 2)).words(16, block).tolist() == tensorflows((1, 2), block, 16)


def test_memory_serves_several_draws():
    philox, memory = Philox((5, -6)), PhiloxMemory(3)
    drawn = [philox.draw(block, memory).tolist() for block in ((1 << 32) - 1, 0, 3)]
    assert drawn == [tensorflows((5, -6), block, 12) for block in ((1 << 32) - 1, 0, 3)]
