from __future__ import annotations

import bisect
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.dataset.splits import Buckets, assign_splits
from infeed.components.errors import InfeedError


def bucket_of(key: bytes, limits: list[int]) -> int:
    """The rule as TFX states it, one key at a time."""
    return bisect.bisect(limits, int(hashlib.sha256(key).hexdigest(), 16) % limits[-1])


@given(
    keys=st.lists(st.binary(max_size=50), max_size=20), shares=st.lists(st.integers(1, 10**9), min_size=1, max_size=4)
)
def test_every_key_goes_where_one_big_integer_sends_it(keys: list[bytes], shares: list[int]) -> None:
    limits = [sum(shares[: end + 1]) for end in range(len(shares))]
    buckets = Buckets(tuple((f"split{number}", share) for number, share in enumerate(shares)))
    assigned = assign_splits(keys, buckets)
    assert assigned.tolist() == [bucket_of(key, limits) for key in keys]


def test_shares_are_kept_about() -> None:
    keys = [str(number).encode() for number in range(3_000)]
    assigned = assign_splits(keys, Buckets((("train", 2), ("eval", 1)))).tolist()
    assert set(assigned) == {0, 1}
    assert 1_900 < assigned.count(0) < 2_100


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ((), "its own name"),
        ((("a", 1), ("a", 1)), "its own name"),
        ((("../a", 1),), "remove /"),
        ((("a", 0),), "split 'a' has 0 buckets"),
        ((("a", 1 << 32), ("b", 1)), "4294967297 buckets"),
    ],
)
def test_impossible_splits(shares: tuple[tuple[str, int], ...], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        Buckets(shares)
