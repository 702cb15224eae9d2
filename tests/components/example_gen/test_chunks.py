from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infeed.components.dataset.shards import ShardPlan
from infeed.components.example_gen import chunks, planning, shuffle
from infeed.components.example_gen.chunks import Chunk, chunks_of, windows_of
from infeed.components.example_gen.planning import ShardTask, SplitPlan
from infeed.components.example_gen.shuffle import SpillTable, read_windows
from infeed.components.example_gen.spills import Spills, Strata, write_spill


def write(folder: str, spills: list[list[bytes]], shards: int, *, interleave: bool = True) -> SplitPlan:
    written = [
        spill
        for number, records in enumerate(spills)
        for spill in write_spill(
            f"{folder}/{number}",
            "train",
            pa.array(records, pa.large_binary()),
            np.arange(len(records)),
            None,
            Strata.none(len(records)),
        )
    ]
    shuffle.list_spills(folder, "train", Spills.of(written))
    records, size = sum(map(len, spills)), sum(len(record) for record in itertools.chain.from_iterable(spills))
    return SplitPlan("train", records, size, len(written), interleave, ShardPlan(shards, ""))


def dealt(plan: SplitPlan, folder: str) -> dict[int, list[Chunk]]:
    """The chunks of each shard."""
    found: dict[int, list[Chunk]] = {shard: [] for shard in range(plan.shards.count)}
    spills = SpillTable.read(folder, "train")
    for number in range(len(spills)):
        for shard, chunk in chunks_of(plan, number, spills[number]):
            found[shard].append(chunk)
    return found


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "WINDOW_BYTES", 200)
    monkeypatch.setattr(chunks, "_CHUNK_BYTES", 512)


@pytest.mark.usefixtures("small")
@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.lists(st.integers(1, 300), min_size=1, max_size=20), max_size=6),
    shards=st.integers(1, 5),
    interleave=st.booleans(),
    seed=st.integers(0, 9),
)
def test_chunks_in_any_order_make_the_windows_that_files_make(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[list[int]], shards: int, interleave: bool, seed: int
) -> None:
    folder = str(tmp_path_factory.mktemp("spills"))
    spills = [[bytes([number]) * size for size in of_spill] for number, of_spill in enumerate(sizes)]
    plan = write(folder, spills, shards, interleave=interleave)
    for shard, of_shard in dealt(plan, folder).items():
        task = ShardTask(plan, shard)
        expected = [window.to_pylist() for window in read_windows(plan, task.windows, folder)]
        random.Random(seed).shuffle(of_shard)
        again = of_shard[: len(of_shard) // 2]  # from a worker that was tried twice
        assert [window.to_pylist() for window in windows_of(task, [*of_shard, *again])] == expected


def test_no_chunk_is_larger_than_a_megabyte(tmp_path: Path) -> None:
    spills = [[b"a" * 3_000_000, b"b" * 10, b"c" * 900_000], [b"d" * 1_000] * 3_000]
    plan = write(str(tmp_path), spills, 1)
    (of_shard,) = dealt(plan, str(tmp_path)).values()
    assert max(len(chunk.data) for chunk in of_shard) <= 1 << 20 < sum(len(chunk.data) for chunk in of_shard)
    (window,) = windows_of(ShardTask(plan, 0), of_shard[::-1])
    assert window.to_pylist() == [*spills[0], *spills[1]]
