"""Files damaged at random, the same way for the same seed; `--robustness-rounds N` tries N seeds instead of a few."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

_ROUNDS = 8
_INSERTED = (
    *(b"\0", b"\n", b"\r", b"\r\n\r\n", b'"', b",", b"\xff\xfe", b"\xef\xbb\xbf", b"\x1b[2J", b"../"),
    *(b"-1", b"9" * 400, b"9" * 5_000, b"null", b"\nnull\n", b'{"id":1}', b"{" * 300, b'{"a":' * 3_000, b"[" * 10_000),
)

Mutate = Callable[[bytes, int], bytes]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `seed` runs once for each of the seeds."""
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(_rounds(metafunc.config)))


@pytest.fixture(scope="session")
def rounds(pytestconfig: pytest.Config) -> int:
    """How many seeds there are, for a test that tries them all in one process of its own."""
    return _rounds(pytestconfig)


def _rounds(config: pytest.Config) -> int:
    return config.getoption("--robustness-rounds") or _ROUNDS


@pytest.fixture(scope="session")
def mutated() -> Mutate:
    """`mutated(data, seed)`: the bytes with one to three faults, such as disks, copies and people make."""
    return mutate


def mutate(data: bytes, seed: int) -> bytes:
    chance = random.Random(seed)
    for _ in range(chance.choice((1, 1, 2, 3))):
        data = chance.choice(_FAULTS)(data, chance)
    return data


def _flip_a_bit(data: bytes, chance: random.Random) -> bytes:
    if not data:
        return data
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def _cut_off(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _leave_out(data: bytes, chance: random.Random) -> bytes:
    start, stop = _range_of(data, chance)
    return data[:start] + data[stop:]


def _repeat(data: bytes, chance: random.Random) -> bytes:
    start, stop = _range_of(data, chance)
    return data[:stop] + data[start:]


def _blank(data: bytes, chance: random.Random) -> bytes:
    start, stop = _range_of(data, chance)
    return data[:start] + bytes(stop - start) + data[stop:]


def _insert(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(_INSERTED) + data[at:]


def _range_of(data: bytes, chance: random.Random) -> tuple[int, int]:
    start = chance.randrange(len(data) + 1)
    return start, min(len(data), start + chance.randrange(1, 65))


_FAULTS = (_flip_a_bit, _cut_off, _leave_out, _repeat, _blank, _insert)
