"""The benchmark of a GPU: what it counts as a step, and its share of the step alone."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(FOLDER))  # the scripts lie in one folder and import one another by name

import gpu  # noqa: E402
import gpu_data  # noqa: E402
import gpu_measure  # noqa: E402


def task(steps: list[Any], **feeds: Any) -> gpu_measure.Task:
    return gpu_measure.Task("table", "none", 8, steps.append, lambda: steps.append("wait"), "resident", feeds)


def test_each_window_ends_when_the_device_has_done_its_steps():
    steps: list[Any] = []
    row = gpu_measure.measured(task(steps), "counted", itertools.count(), 0.01)
    done = [step for step in steps if step != "wait"]
    assert done == [*range(len(done))]
    assert row.steps == len(done) - steps.index("wait")
    assert steps.count("wait") == 6
    assert steps[-1] == "wait"


def test_a_feed_that_fails_costs_no_other_its_turn(capsys):
    feeds = {"broken": lambda: iter(()), "good": lambda: itertools.repeat("batch")}
    alone, good = gpu._rows(task([], **feeds), 0.01, end=float("inf"))
    assert (alone.share, good.feed) == (1.0, "good")
    assert good.share == pytest.approx(alone.seconds / good.seconds)
    assert "broken failed" in capsys.readouterr().out
    assert "share 0.50" in str(replace(alone, share=0.5))


@pytest.mark.frameworks
def test_both_hand_written_and_own_feeds_decode_the_same_pictures(tmp_path):
    data = gpu_data.made("jpeg", tmp_path, gpu_data.TINY)
    side, batch = gpu_data.TINY.side, gpu_data.TINY.picture_batch
    mapped = next(gpu_data.decoded(data, 2).numpy("y"))
    features, label = next(gpu_data.in_threads(gpu_data.DecodedBatches.of(data, 1), 2))
    assert features["image"].shape == mapped[0]["image"].shape == (batch, side, side, 3)
    assert features["image"].dtype == mapped[0]["image"].dtype == np.uint8
    np.testing.assert_array_equal(label, mapped[1])


@pytest.mark.tfx
@pytest.mark.slow
def test_keras_on_jax_trains_by_the_steps_of_the_trainer_on_each_feed(tmp_path):
    options = ["--tiny", "--only=table,jpeg", "--frameworks=keras", "--seconds=0.1", f"--out={tmp_path}/gpu.json"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, str(FOLDER / "gpu.py"), *options], check=True, env=environment, cwd=tmp_path)
    rows = json.loads((tmp_path / "gpu.json").read_text())
    feeds = ["the step alone", "the Trainer's feed, columns", "the Trainer's feed, stream"]
    sizes = gpu_data.TINY
    batches = [(feed, batch) for batch in (sizes.batch, sizes.picture_batch) for feed in feeds]
    assert [(row["feed"], row["batch"]) for row in rows] == batches
    assert all(row["steps"] for row in rows)
