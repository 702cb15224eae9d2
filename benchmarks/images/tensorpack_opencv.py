"""tensorpack: rows of a list in memory, OpenCV, batches made in two processes and sent by ZeroMQ."""

from __future__ import annotations

from typing import Any

import numpy as np
import recipe_opencv
from protocol import Batches, Job, serve
from tensorpack.dataflow import BatchData, DataFromList, MapData, MultiProcessRunnerZMQ


def make(job: Job) -> Batches:
    rows = DataFromList([list(row) for row in zip(job.stored, job.labels, strict=True)], shuffle=True)
    batches = BatchData(MapData(rows, Change(job)), job.batch, remainder=False)
    runner = MultiProcessRunnerZMQ(batches, job.workers)
    runner.reset_state()
    return endless(runner)


def endless(runner: Any) -> Batches:
    while True:
        yield from runner


class Change:
    """Decode and augment one image."""

    def __init__(self, job: Job) -> None:
        self.kind, self.recipe = job.kind, job.recipe
        self.random: np.random.Generator | None = None

    def __call__(self, row: list[Any]) -> list[Any]:
        self.random = self.random or np.random.default_rng()
        image = recipe_opencv.decode(row[0], self.kind)
        return [recipe_opencv.augment(image, self.random, self.recipe), row[1]]


if __name__ == "__main__":
    serve(make)
