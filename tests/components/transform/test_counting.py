"""Counts and keyed values on disk: how many runs are open, what a pickle carries, and what stays behind."""

from __future__ import annotations

import itertools
import operator
import pickle
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.transform import counting
from infeed.components.transform.counting import KeyedRuns, Tally


def words(*numbers: int) -> np.ndarray[Any, Any]:
    return np.array([b"%06d" % number for number in numbers], object)


def runs_in(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*")]


def rows_in(tally: Tally) -> int:
    return sum(batch.num_rows for batch in tally.items())


def test_few_runs_are_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_open: list[str] = []
    most = 0

    @contextmanager
    def counted(path: str) -> Iterator[Any]:
        nonlocal most
        with open_input(path) as file:
            is_open.append(path)
            most = max(most, len(is_open))
            yield file
            is_open.remove(path)

    open_input = files.open_input
    monkeypatch.setattr(files, "open_input", counted)
    tally = Tally(str(tmp_path), limit=64)
    for number in range(100):
        tally.add(words(number, 99 - number))
    assert len(runs_in(tmp_path)) == 100
    assert [batch.column(1).to_pylist() for batch in tally.items()] == [[2]] * 100
    assert counting._FAN_IN // 2 < most <= counting._FAN_IN
    assert not is_open


def test_a_few_rows_need_no_folder(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    tally = Tally(str(folder))
    tally.add(words(2, 1, 2))
    (batch,) = pickle.loads(pickle.dumps(tally)).ranked()
    assert batch.to_pydict() == {"value": [b"000002", b"000001"], "count": [2, 1]}
    assert not folder.exists()


def test_many_rows_travel_as_a_path(tmp_path: Path) -> None:
    tally = Tally(str(tmp_path), limit=1 << 20)
    tally.add(words(*range(10_000)))
    pickled = pickle.dumps(tally)
    assert len(pickled) < 5000
    assert len(runs_in(tmp_path)) == 1
    assert rows_in(pickle.loads(pickled)) == 10_000


def test_a_pickle_can_be_read_twice(tmp_path: Path) -> None:
    """A worker that is killed leaves its item to another."""
    tally = Tally(str(tmp_path), limit=1000)
    for start in range(0, 4000, 100):
        tally.add(words(*range(start, start + 100)))
    pickled = pickle.dumps(tally)
    assert [rows_in(pickle.loads(pickled)) for _ in range(2)] == [4000, 4000]


def test_rows_are_written_in_blocks_that_fit_a_merge(tmp_path: Path) -> None:
    limit = 1 << 20
    tally = Tally(str(tmp_path), limit)
    tally.add(words(*range(50_000)))
    (run,) = runs_in(tmp_path)
    blocks = list(counting._read(str(tmp_path / run)))
    assert sum(block.num_rows for block in blocks) == 50_000
    assert max(map(counting._size, blocks)) * counting._FAN_IN < limit


def test_ranking_leaves_nothing_behind_when_the_reader_stops(tmp_path: Path) -> None:
    tally = Tally(str(tmp_path), limit=64)
    for number in range(50):
        tally.add(words(number))
    before = runs_in(tmp_path)
    ranked = tally.ranked()
    assert next(ranked).column(0).to_pylist() == [b"000049"]
    assert len(runs_in(tmp_path)) > len(before)
    del ranked
    merged = set(runs_in(tmp_path)) - set(before)
    assert len(merged) < len(before)


def test_few_values_in_many_batches_take_little_memory(tmp_path: Path) -> None:
    limit = 1 << 20
    tally = Tally(str(tmp_path), limit)
    for _ in range(1000):
        tally.add(words(1, 2, 3))
    assert tally._runs._load < limit // 32
    assert [batch.column(1).to_pylist() for batch in tally.items()] == [[1000] * 3]


KEYS = st.one_of(
    *(st.lists(st.lists(keys, max_size=30), max_size=8) for keys in (st.binary(max_size=3), st.integers(-9, 9)))
)
LIMITS = st.sampled_from([64, 3000, 1 << 20])  # from a run for each part to none


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("keyed") / "runs")


def mapping(folder: str, limit: int | None = None, **options: Any) -> KeyedRuns[tuple[int, ...]]:
    return KeyedRuns(folder, operator.add, limit, b"secret", **options)


def put(runs: KeyedRuns[tuple[int, ...]], key: Any, value: int) -> None:
    runs.put(key, (*runs.get(key, tuple), value))


@given(parts=KEYS, limit=LIMITS, descends=st.booleans())
def test_holds_what_a_dictionary_holds_and_pickling_changes_no_order(
    folder: str, parts: list[list[Any]], limit: int, descends: bool
) -> None:
    expected: dict[Any, list[int]] = {}
    stayed, travelled = (mapping(folder, limit, descends=descends) for _ in range(2))
    for start, keys in enumerate(parts):
        some, others = (mapping(folder, limit, descends=descends) for _ in range(2))
        for number, key in enumerate(keys, 100 * start):
            put(some, key, number)
            put(others, key, number)
            expected.setdefault(key, []).append(number)
        stayed.merge(some)
        travelled.merge(pickle.loads(pickle.dumps(others)))
    held = list(stayed.items())
    assert held == list(travelled.items()) == list(stayed.items())
    assert {key: sorted(value) for key, value in held} == expected
    assert stayed.keys() == sorted(expected, reverse=descends)
    assert len(stayed) == len(expected)


def test_many_keys_go_to_disk_and_few_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_FIRST_CHECK", 8)
    many, few = mapping(str(tmp_path / "many"), 2000), mapping(str(tmp_path / "few"), 2000)
    for number in range(1000):
        put(many, b"%d" % number, number)
        put(few, b"%d" % (number % 4), number)
        assert len(many._held) <= 64
    assert list((tmp_path / "many").iterdir())
    assert not (tmp_path / "few").exists()
    assert dict(many.items()) == {b"%d" % number: (number,) for number in range(1000)}


def test_a_file_that_another_program_wrote_is_not_unpickled(tmp_path: Path) -> None:
    theirs = KeyedRuns[tuple[int, ...]](str(tmp_path), operator.add, secret=b"another secret")
    ours = mapping(str(tmp_path))
    put(theirs, b"key", 1)
    ours.merge(theirs)
    with pytest.raises(InfeedError, match="modified") as raised:
        list(ours.items())
    assert raised.value.where == str(tmp_path)


EXTREMES = [-(1 << 63), -1, 0, 1, (1 << 63) - 1]
BYTES = st.one_of(st.sampled_from([b"", b"\0", b"a", b"a\0", b"\xff\xfe", b"\n"]), st.binary(max_size=40))
INTS = st.one_of(st.sampled_from(EXTREMES), st.integers(-(1 << 63), (1 << 63) - 1))
BATCHES = st.one_of(*(st.lists(st.lists(values, max_size=30), max_size=12) for values in (BYTES, INTS)))
TALLY_LIMITS = st.sampled_from([64, 3000, 10_000, 1 << 20])  # from a run for each batch to none
WEIGHTS = [1e16, 1.0, -1e16, 0.1, 3.7, 1e-9]  # whose sum depends on the order


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("tally") / "runs")


def array(values: Sequence[Any]) -> np.ndarray[Any, Any]:
    """NumPy's own choice would cut NUL bytes off the end."""
    if values and isinstance(values[0], int):
        return np.array(values, np.int64)
    made = np.empty(len(values), object)
    made[:] = values
    return made


def tally_of(scratch: str, limit: int, batches: Sequence[Sequence[Any]]) -> Tally:
    tally = Tally(scratch, limit)
    for batch in batches:
        tally.add(array(batch))
    return tally


def pairs(batches: Any) -> list[tuple[Any, Any]]:
    return list(counting.pairs(batches))


@given(batches=BATCHES, limit=TALLY_LIMITS)
def test_counts_what_a_counter_counts_in_the_order_of_the_values(scratch: str, batches: Any, limit: int) -> None:
    expected = Counter(value for batch in batches for value in batch)
    assert pairs(tally_of(scratch, limit, batches).items()) == sorted(expected.items())


@given(batches=BATCHES, limit=TALLY_LIMITS, cuts=st.lists(st.integers(0, 12), max_size=4), pickled=st.booleans())
def test_parts_make_no_difference(scratch: str, batches: Any, limit: int, cuts: list[int], pickled: bool) -> None:
    bounds = [0, *sorted(cuts), len(batches)]
    parts = [tally_of(scratch, limit, batches[start:stop]) for start, stop in itertools.pairwise(bounds)]
    if pickled:
        parts = [pickle.loads(pickle.dumps(part)) for part in parts]
    for part in parts[1:]:
        parts[0].merge(part)
    assert pairs(parts[0].items()) == sorted(Counter(value for batch in batches for value in batch).items())
    assert not any(list(part.items()) for part in parts[1:])


@given(batches=BATCHES, limit=TALLY_LIMITS, size=st.one_of(st.none(), st.integers(1, 40)), least=st.integers(0, 4))
def test_ranks_by_count_and_then_by_value(scratch: str, batches: Any, limit: int, size: int | None, least: int) -> None:
    counts = Counter(value for batch in batches for value in batch)
    expected = sorted(((count, value) for value, count in counts.items() if count >= least), reverse=True)[:size]
    ranked = tally_of(scratch, limit, batches).ranked(size, least)
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
    limit=TALLY_LIMITS,
)
@settings(max_examples=50)
def test_pickling_changes_no_bit_of_sums_of_weights(scratch: str, parts: Any, limit: int) -> None:
    merged = []
    for travel in (lambda tally: tally, lambda tally: pickle.loads(pickle.dumps(tally))):
        total = Tally(scratch, limit)
        for part in parts:
            tally = Tally(scratch, limit)
            for batch in part:
                tally.add(array([value for value, _ in batch]), np.array([weight for _, weight in batch]))
            total = travel(total)
            total.merge(travel(tally))
        merged.append(pairs(total.items()))
    assert merged[0] == merged[1]
    assert [value for value, _ in merged[0]] == sorted(
        {value for part in parts for batch in part for value, _ in batch}
    )


def test_weights_in_memory_are_added_in_their_order(scratch: str) -> None:
    tally = Tally(scratch)
    for weights in ([1e16, 1.0, 1.0], [1.0, -1e16]):
        tally.add(array([b"a"] * len(weights)), np.array(weights))
    assert pairs(tally.items()) == [(b"a", 1e16 + 1.0 + 1.0 + 1.0 - 1e16)]


def test_integer_weights_stay_exact(scratch: str) -> None:
    tally = Tally(scratch)
    tally.add(np.array([3, 3, 4]), np.array([1 << 60, 1, 2]))
    assert pairs(tally.items()) == [(3, (1 << 60) + 1), (4, 2)]
