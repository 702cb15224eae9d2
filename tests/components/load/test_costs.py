"""CPU time of the stages that decode and map: `components/load/costs.py`, and the plan that shows it."""

import re

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.load.costs import StageCosts
from infeed.components.load.dataset import load


@pytest.fixture
def costs(monkeypatch):
    """Costs of stages that take as many seconds as they are told."""
    now = [0.0]
    monkeypatch.setattr("infeed.components.load.costs.time.thread_time", lambda: now[0])

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
