"""Batches from stored columns: their own rows in the order of the epoch, whoever prepares them."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.feed.user_maps import Ragged
from infeed.components.load.dataset import LoadedDataset, load
from infeed.components.load.reading import StageCosts

OPTIONS = [{}, {"workers": (1, 2), "start_step": 1}, {"shuffle": False}, {"shuffle": False, "drop_remainder": True}]
TABLE = {
    "x": pa.array(np.arange(10, dtype=np.float32)),
    "pair": pa.array([[number, number * number] for number in range(10)], pa.list_(pa.int64(), 2)),
    "maybe": pa.array([None if number % 3 else number / 2 for number in range(10)], pa.float32()),
    "list": pa.array([list(range(number % 4)) for number in range(10)], pa.list_(pa.int64())),
    "name": pa.array([f"row {number}" for number in range(10)]),
}


@pytest.fixture
def data(write: Callable[..., str], cache: str) -> Callable[..., LoadedDataset]:
    path = write("t-train.tfrecord", TABLE)
    return lambda **options: load(path, cache_dir=cache, on_missing="fill", **options)


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, Ragged):
        return [value.row(number).tolist() for number in range(len(value.row_splits) - 1)]
    return value.tolist()


def test_batches_are_gathered_in_the_order_of_the_epoch(data):
    for size in (1, 3, 4, 10):
        loaded = data(batch_size=size, seed=5)
        batches = list(loaded.numpy(epochs=2))
        orders = list(loaded.rows(epochs=2))
        assert len(batches) == len(orders) == 2 * loaded.steps_per_epoch == 2 * (10 // size)
        for batch, rows in zip(batches, orders, strict=True):
            assert plain(batch) == plain(loaded[rows])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("label", [None, "x", ["x", "pair", "maybe", "name"]], ids=str)
def test_batches_that_are_made_together_have_their_own_rows(data, options, label):
    loaded = data(**{"batch_size": 4, "columns": ["maybe", "name", "pair", "x"], **options})
    expected = [plain(loaded[rows]) for rows in loaded.rows(2)]
    if label is None:
        assert [plain(batch) for batch in loaded.numpy(epochs=2)] == expected
        return
    for batch, (features, labels) in zip(expected, loaded.numpy(label, epochs=2), strict=True):
        named = labels if isinstance(label, list) else {label: labels}
        assert {**plain(features), **plain(named)} == batch


@pytest.fixture
def same(tmp_path: Path) -> str:
    """A function by a name that other processes import."""
    (tmp_path / "functions.py").write_text("def same(batch):\n    return batch\n")
    return f"{tmp_path}/functions.py:same"


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("workers", [{}, {"threads": 3}, {"processes": 2}], ids=str)
def test_threads_and_processes_prepare_the_batches_of_the_loop(data, same, options, workers):
    loaded = data(batch_size=4, columns=["maybe", "name", "pair", "x"], **options)
    expected = [plain(batch) for batch in loaded.numpy(epochs=2)]
    assert expected == [plain(loaded[rows]) for rows in loaded.rows(2)]
    assert [plain(batch) for batch in loaded.map(same, **workers).numpy(epochs=2)] == expected


def test_another_process_unpickles_a_reader_of_the_same_files(data, same):
    loaded = data(batch_size=3, columns=["name", "x"]).map(same)
    reader, recipe, order = loaded._reader, loaded._recipe, loaded._order(1)
    copied = pickle.dumps(reader)
    assert len(copied) < 20_000
    rows = next(iter(order))
    assert plain(pickle.loads(copied).batch(order, 0, rows, recipe)) == plain(reader.batch(order, 0, rows, recipe))


@pytest.fixture
def costs(monkeypatch):
    """Costs of stages that take as many seconds as they are told."""
    now = [0.0]
    monkeypatch.setattr("infeed.components.load.reading.time.thread_time", lambda: now[0])

    def spend(seconds):
        now[0] += seconds
        return seconds

    made = StageCosts()
    for picture, double in ((0.06, 0.01), (0.12, 0.01)):
        assert made.timed("picture", spend, picture) == picture
        made.timed("double", spend, double)
    return made


@pytest.mark.parametrize(("threads", "rate"), [(1, "640 rows"), (4, "2,560 rows")])
def test_the_limit_is_the_stage_that_takes_most_of_a_batch(costs, threads, rate):
    limit = costs.limit(64, threads)
    assert limit.startswith("picture takes 90 % of 100 ms")
    assert rate in limit


def test_there_is_no_limit_before_the_first_batch():
    assert StageCosts().limit(64, 2) == ""


@pytest.mark.parametrize("threads", [1, 2])
def test_the_plan_names_the_most_expensive_map_of_the_batches_so_far(write, cache, threads):
    def costly(batch):
        return {**batch, "norm": np.linalg.norm(np.outer(batch["x"], np.ones(20_000)), axis=1)}

    def double(batch):
        return {**batch, "x": batch["x"] * 2}

    path = write("t-train.tfrecord", {"x": pa.array(np.arange(64, dtype=np.float32))})
    data = load(path, batch_size=32, workers=(0, 2), cache_dir=cache).map(double, threads=threads).map(costly)
    assert data.plan.limit == ""
    list(data.numpy(epochs=2))
    assert data.plan.limit.startswith("costly takes")
    assert f"so {threads} thread" in data.plan.limit
    assert re.search(r"\n6\. limit +costly", str(data.plan))


def test_rows_a_second_count_the_rows_of_this_worker(write, cache):
    path = write("t-train.tfrecord", {"x": pa.array(np.arange(64, dtype=np.float32))})
    data = load(path, batch_size=32, workers=(1, 2), cache_dir=cache)
    data._reader.costs.timed("made", lambda: sum(range(10_000)))
    assert data.plan.limit == data._reader.costs.limit(16, 1)
