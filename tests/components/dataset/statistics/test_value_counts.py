"""Covers `cells` as well."""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infeed.components.dataset.statistics.cells import pack
from infeed.components.dataset.statistics.value_counts import FREQUENT, MAX_DISTINCT, StoredCounts, ValueCounts


def counts_of(values: Sequence[Any], kind: Any = "bytes") -> ValueCounts:
    counter = sorted(Counter(values).items())
    found = [value for value, _ in counter]
    array = pa.array(found, pa.large_binary()) if kind == "bytes" else np.array(found, np.int64)
    return ValueCounts.of(array, np.array([count for _, count in counter], np.int64))


@given(st.lists(st.lists(st.sampled_from([b"", b"a", b"ab", b"\xff\x00"]), max_size=9), max_size=6))
def test_few_values_are_counted_as_a_counter_does_in_any_order(parts: list[list[bytes]]) -> None:
    counted = [counts_of(part) for part in parts]
    added = functools.reduce(operator.add, counted, ValueCounts.none("bytes"))
    backwards = functools.reduce(operator.add, reversed(counted), ValueCounts.none("bytes"))
    expected = Counter(value for part in parts for value in part)
    assert dict(added.items()) == expected
    assert list(added.items()) == sorted(expected.items(), key=lambda item: (item[1], item[0]), reverse=True)
    assert (added.exact, added.distinct, added.others, added.error) == (True, len(expected), 0, 0)
    assert added.plain() == backwards.plain()
    assert StoredCounts(**{**added.plain(), "values": tuple(added.plain()["values"])}).counted("bytes").plain() == (
        added.plain()
    )


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_of_many_values_the_frequent_ones_are_counted_within_the_error(seed: int, texts: bool) -> None:
    values = np.random.default_rng(seed).zipf(1.1, 60_000) % 1_000_000
    words = [str(value).encode() for value in values] if texts else values.tolist()
    parts = [words[start : start + 20_000] for start in range(0, len(words), 20_000)]
    added = functools.reduce(operator.add, (counts_of(part, "bytes" if texts else "int") for part in parts))
    expected = Counter(words)
    assert len(expected) > MAX_DISTINCT
    assert not added.exact
    assert added.error <= len(words) / FREQUENT
    kept = dict(added.items())
    for value, count in expected.items():
        assert kept.get(value, 0) <= count <= kept.get(value, 0) + added.error
    assert added.total == len(words)
    assert added.others == len(words) - sum(kept.values())
    assert abs(added.distinct / len(expected) - 1) < 0.15


def test_the_estimate_does_not_depend_on_the_parts() -> None:
    words = [str(number).encode() for number in range(30_000)]
    parts = [words[:5_000], words[4_000:20_000], words[15_000:]]
    one, two, three = map(counts_of, parts)
    estimates = {(one + two + three).distinct, (three + (two + one)).distinct, counts_of(words).distinct}
    assert len(estimates) == 1
    assert abs(estimates.pop() / 30_000 - 1) < 0.1


def test_a_hash_does_not_depend_on_what_else_is_hashed() -> None:
    keys = [f"{number:06d}".encode() for number in range(MAX_DISTINCT + 1)]
    of_one_length, of_several = counts_of(keys).hashes, counts_of([*keys, b"of another length"]).hashes
    assert of_one_length is not None
    assert of_several is not None
    assert len(np.intersect1d(of_one_length, of_several)) >= len(of_one_length) - 1


def test_a_hash_is_the_same_for_ever() -> None:
    values = [str(number).encode() for number in range(MAX_DISTINCT + 1)]
    hashes = counts_of(values).hashes
    assert hashes is not None
    assert [hex(found) for found in hashes[:2].tolist()] == ["0x481586c2fb151", "0x87e1fc56877d5"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"counts": pack(np.array([1]))}, "do not match the counts"),
        ({"counts": pack(np.array([3, 0]))}, "below 1"),
        ({"counts": pack(np.array([1, 1]))}, "do not add up"),
        ({"counts": "?"}, "cannot decode"),
        ({"counts": "AAAA"}, "of 8 bytes each take 3 bytes"),
        ({"values": (pack(np.array([2, 1])), "YWI=")}, "do not match their lengths"),
        ({"values": (pack(np.array([-1, 3])), "YWI=")}, "do not match their lengths"),
        ({"values": (pack(np.array([1, 1])), "YmE=")}, "not ascending"),
        ({"values": ("YmE=",)}, "1 packed texts"),
        ({"hashes": pack(np.array([2, 1]))}, "hashes are not ascending"),
    ],
)
def test_counts_that_cannot_be_are_refused(changes: dict[str, Any], says: str) -> None:
    plain = counts_of([b"a", b"b", b"b"]).plain()
    with pytest.raises(ValueError, match=says):
        StoredCounts(**{**plain, "values": tuple(plain["values"]), **changes}).counted("bytes")
