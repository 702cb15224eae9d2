from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infeed.components.dataset import files
from infeed.components.dataset.options import ShardPlan
from infeed.components.example_gen import planning, shuffle
from infeed.components.example_gen.planning import SplitPlan
from infeed.components.example_gen.shuffle import (
    Level,
    Ranges,
    SpillTable,
    levels_of,
    read_windows,
    regroup,
    regroupings,
)
from infeed.components.example_gen.spills import Spill, Spills, Strata, write_spill

RECORD = 10  # bytes
DISK, STORE = shuffle.ON_DISK, shuffle.ON_STORE


def write(folder: str, sizes: Sequence[int], shards: int, *, interleave: bool = True) -> SplitPlan:
    """Spills of so many records each, which are numbered from 0 on."""
    spills, first = list[Spill](), 0
    for number, size in enumerate(sizes):
        records = pa.array([b"%010d" % record for record in range(first, first + size)], pa.large_binary())
        path = files.join(shuffle.level_folder(folder, 0, "train"), f"{number:04d}.records")
        spills += write_spill(path, "train", records, np.arange(size), None, Strata.none(size))
        first += size
    shuffle.list_spills(folder, "train", Spills.of(spills))
    return SplitPlan("train", first, first * RECORD, len(spills), interleave, ShardPlan(shards, ""))


def regroup_all(plan: SplitPlan, folder: str) -> None:
    for level in range(1, len(levels_of(plan, Ranges.of(folder))) + 1):
        for task in regroupings(plan, level, folder):
            regroup(task, folder)
        files.remove(shuffle.level_folder(folder, level - 1, plan.split))


def windows(plan: SplitPlan, folder: str) -> list[list[int]]:
    found = []
    for shard in range(plan.shards.count):
        of_shard = range(shard * plan.windows_of_shard, (shard + 1) * plan.windows_of_shard)
        found += [[int(record) for record in window.to_pylist()] for window in read_windows(plan, of_shard, folder)]
    return found


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every limit is small, so that few records take several levels."""
    monkeypatch.setattr(planning, "WINDOW_BYTES", 10 * RECORD)
    monkeypatch.setattr(shuffle, "_GROUP_BYTES", 20 * RECORD)
    monkeypatch.setattr(shuffle, "ON_DISK", Ranges(2 * RECORD, 0))
    monkeypatch.setattr(shuffle, "_FAN", 2)


def plan_of(size: int, spills: int, shards: int, *, interleave: bool = True) -> SplitPlan:
    return SplitPlan("train", size // 100, size, spills, interleave, ShardPlan(shards, ""))


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (plan_of(10**12, 8, 8_000), "eight ranges a shard or a spill"),
        (plan_of(10**4, 13, 15), "few, and small"),
        (plan_of(25 * 10**9, 450, 190), "large ranges, and fewer than 100,000"),
        (plan_of(10**13, 10**6, 10**5, interleave=False), "without a shuffle a shard reaches few spills"),
    ],
)
def test_spills_are_read_as_they_are_where_that_takes_few_or_large_ranges(plan: SplitPlan, why: str) -> None:
    assert levels_of(plan, DISK) == [], why


def test_many_ranges_and_small_ones_are_regrouped() -> None:
    assert levels_of(plan_of(10**6, 94, 102), DISK) == [Level(1, 1)]
    assert levels_of(plan_of(30 * 10**9, 530, 225), DISK) == [Level(64, 4)]


@pytest.mark.parametrize(
    ("size", "levels"),
    [
        (10**12, [Level(64, 117), Level(4096, 2, 64)]),
        (10**14, [Level(64, 11_642), Level(4096, 182, 64), Level(262_144, 3, 64)]),
    ],
)
def test_each_level_narrows_the_stripes(size: int, levels: list[Level]) -> None:
    assert levels_of(plan_of(size, size // 80_000_000, size // (128 << 20)), DISK) == levels


@given(megabytes=st.integers(1, 10**8), spill_megabytes=st.floats(0.001, 80), shard_megabytes=st.floats(0.001, 10_000))
def test_on_a_store_each_level_takes_a_request_for_four_megabytes_or_for_a_file(
    megabytes: int, spill_megabytes: float, shard_megabytes: float
) -> None:
    spills, shards = (max(1, int(megabytes / size)) for size in (spill_megabytes, shard_megabytes))
    plan = plan_of(megabytes << 20, spills, shards)
    levels = levels_of(plan, STORE)
    readers = shards * -(-plan.windows_of_shard // (shuffle._GROUP_BYTES // planning.WINDOW_BYTES))
    files_read = [spills, *(level.stripes * level.groups for level in levels)]
    tasks = [*(level.stripes * level.groups for level in levels), readers]
    stripes_read = [*(level.stripes for level in levels), readers]
    groups_read = [spills, *(level.groups for level in levels)]
    for files_of_level, tasks_of_level, stripes, groups in zip(
        files_read, tasks, stripes_read, groups_read, strict=True
    ):
        assert 3 * stripes * groups <= plan.bytes / 4e6 + 3 * (files_of_level + tasks_of_level)
    assert len(levels) <= 2 + math.log(plan.bytes / (128 << 20) + 1, 4)
    assert all(plan.bytes / (level.stripes * level.groups) <= 2 * shuffle._GROUP_BYTES for level in levels)


@pytest.mark.usefixtures("small")
@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=25), shards=st.integers(1, 9))
def test_regrouping_changes_neither_records_nor_their_order(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], shards: int
) -> None:
    folder = str(tmp_path_factory.mktemp("spills"))
    plan = write(folder, sizes, shards)
    spills = SpillTable.read(folder, "train")
    expected: list[list[int]] = [[] for _ in range(plan.windows)]
    for number in range(len(spills)):
        one = spills[number]
        bounds = plan.deal.bounds(one.part, one.before, range(plan.windows)) + one.before.records
        for window, (start, stop) in enumerate(itertools.pairwise(bounds.tolist())):
            expected[window] += range(start, stop)
    regroup_all(plan, folder)
    assert windows(plan, folder) == expected
    assert sorted(itertools.chain.from_iterable(expected)) == list(range(plan.records))


@pytest.mark.usefixtures("small")
def test_without_a_shuffle_the_order_is_that_of_the_input(tmp_path: Path) -> None:
    plan = write(str(tmp_path), [7, 1, 30, 12, 2], 4, interleave=False)
    found = windows(plan, str(tmp_path))
    assert list(itertools.chain.from_iterable(found)) == list(range(52))
    assert [len(window) for window in found] == [6, 7] * 4


def test_a_split_without_records_has_empty_windows(tmp_path: Path) -> None:
    plan = write(str(tmp_path), [], 1)
    assert windows(plan, str(tmp_path)) == [[]]


def opened(sizes: Sequence[int], shards: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often spills and regrouped files are opened, and how many ranges are read, for a whole shuffle."""
    counts = Counter[str]()
    real_open, real_read = files.open_input, shuffle.read_file

    def open_input(path: str, **how: Any) -> Any:
        counts["opens"] += path.endswith(".records")
        return real_open(path, **how)

    def read_file(*given: Any) -> Any:
        counts["ranges"] += 1
        return real_read(*given)

    with monkeypatch.context() as patched:
        patched.setattr(files, "open_input", open_input)
        patched.setattr(shuffle, "read_file", read_file)
        plan = write(str(folder), sizes, shards)
        regroup_all(plan, str(folder))
        assert sum(map(len, windows(plan, str(folder)))) == sum(sizes)
    return counts


@pytest.mark.slow
def test_opens_grow_with_the_input_and_no_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        spills: opened([4] * spills, spills // 7, tmp_path / str(spills), monkeypatch) for spills in (100, 500, 2_000)
    }
    for counts in found.values():
        assert counts["opens"] > 0
    for fewer, more in itertools.pairwise(found):
        grown = 1.01 * more / fewer  # the number of shards is rounded
        assert found[more]["opens"] <= grown * found[fewer]["opens"]
        assert found[more]["ranges"] <= grown * found[fewer]["ranges"]
