"""Tallies count what a dictionary counts, whatever fits into memory and however the values are divided."""

from __future__ import annotations

import itertools
import pickle
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infeed.components.transform import counting
from infeed.components.transform.counting import Tally

EXTREMES = [-(1 << 63), -1, 0, 1, (1 << 63) - 1]
BYTES = st.one_of(st.sampled_from([b"", b"\0", b"a", b"a\0", b"\xff\xfe", b"\n"]), st.binary(max_size=40))
INTS = st.one_of(st.sampled_from(EXTREMES), st.integers(-(1 << 63), (1 << 63) - 1))
BATCHES = st.one_of(*(st.lists(st.lists(values, max_size=30), max_size=12) for values in (BYTES, INTS)))
LIMITS = st.sampled_from([64, 3000, 10_000, 1 << 20])  # from a run for each batch to none
WEIGHTS = [1e16, 1.0, -1e16, 0.1, 3.7, 1e-9]  # whose sum depends on the order


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("tally") / "runs")


def array(values: Sequence[Any]) -> np.ndarray[Any, Any]:
    """NumPy's own choice would cut NUL bytes off the end."""
    if values and isinstance(values[0], int):
        return np.array(values, np.int64)
    made = np.empty(len(values), object)
    made[:] = values
    return made


def tally_of(folder: str, limit: int, batches: Sequence[Sequence[Any]]) -> Tally:
    tally = Tally(folder, limit)
    for batch in batches:
        tally.add(array(batch))
    return tally


def pairs(batches: Any) -> list[tuple[Any, Any]]:
    return list(counting.pairs(batches))


@given(batches=BATCHES, limit=LIMITS)
def test_counts_what_a_counter_counts_in_the_order_of_the_values(folder: str, batches: Any, limit: int) -> None:
    expected = Counter(value for batch in batches for value in batch)
    assert pairs(tally_of(folder, limit, batches).items()) == sorted(expected.items())


@given(batches=BATCHES, limit=LIMITS, cuts=st.lists(st.integers(0, 12), max_size=4), pickled=st.booleans())
def test_parts_make_no_difference(folder: str, batches: Any, limit: int, cuts: list[int], pickled: bool) -> None:
    bounds = [0, *sorted(cuts), len(batches)]
    parts = [tally_of(folder, limit, batches[start:stop]) for start, stop in itertools.pairwise(bounds)]
    if pickled:
        parts = [pickle.loads(pickle.dumps(part)) for part in parts]
    for part in parts[1:]:
        parts[0].merge(part)
    assert pairs(parts[0].items()) == sorted(Counter(value for batch in batches for value in batch).items())
    assert not any(list(part.items()) for part in parts[1:])


@given(batches=BATCHES, limit=LIMITS, size=st.one_of(st.none(), st.integers(1, 40)), least=st.integers(0, 4))
def test_ranks_by_count_and_then_by_value(folder: str, batches: Any, limit: int, size: int | None, least: int) -> None:
    counts = Counter(value for batch in batches for value in batch)
    expected = sorted(((count, value) for value, count in counts.items() if count >= least), reverse=True)[:size]
    ranked = tally_of(folder, limit, batches).ranked(size, least)
    assert [(count, value) for value, count in pairs(ranked)] == expected


@pytest.mark.parametrize("kind", [int, lambda number: b"%d" % number])
def test_many_runs_are_merged_in_levels(tmp_path: Path, kind: Any) -> None:
    values = [kind(number) for number in random.Random(5).choices(range(1000), k=6000)]
    expected = Counter(values)
    tally = tally_of(str(tmp_path), 2000, [values[start : start + 40] for start in range(0, 6000, 40)])
    assert len(list(tmp_path.iterdir())) > 64
    assert pairs(tally.items()) == sorted(expected.items())
    ranked = [(count, value) for value, count in pairs(tally.ranked())]
    assert ranked == sorted(((count, value) for value, count in expected.items()), reverse=True)
    assert pairs(tally.ranked(7)) == [(value, count) for count, value in ranked[:7]]


@given(
    parts=st.lists(
        st.lists(st.lists(st.tuples(BYTES, st.sampled_from(WEIGHTS)), min_size=1, max_size=20), max_size=5), min_size=2
    ),
    limit=LIMITS,
)
@settings(max_examples=50)
def test_pickling_changes_no_bit_of_sums_of_weights(folder: str, parts: Any, limit: int) -> None:
    merged = []
    for travel in (lambda tally: tally, lambda tally: pickle.loads(pickle.dumps(tally))):
        total = Tally(folder, limit)
        for part in parts:
            tally = Tally(folder, limit)
            for batch in part:
                tally.add(array([value for value, _ in batch]), np.array([weight for _, weight in batch]))
            total = travel(total)
            total.merge(travel(tally))
        merged.append(pairs(total.items()))
    assert merged[0] == merged[1]
    assert [value for value, _ in merged[0]] == sorted(
        {value for part in parts for batch in part for value, _ in batch}
    )


def test_weights_in_memory_are_added_in_their_order(folder: str) -> None:
    tally = Tally(folder)
    for weights in ([1e16, 1.0, 1.0], [1.0, -1e16]):
        tally.add(array([b"a"] * len(weights)), np.array(weights))
    assert pairs(tally.items()) == [(b"a", 1e16 + 1.0 + 1.0 + 1.0 - 1e16)]


def test_integer_weights_stay_exact(folder: str) -> None:
    tally = Tally(folder)
    tally.add(np.array([3, 3, 4]), np.array([1 << 60, 1, 2]))
    assert pairs(tally.items()) == [(3, (1 << 60) + 1), (4, 2)]
