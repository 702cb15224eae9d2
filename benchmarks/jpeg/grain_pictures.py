"""Grain: files read by number, an exact shuffle, Pillow, threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grain
import numpy as np
from jpegs import Batches, Job, serve
from window_pillow import window


class Change(grain.transforms.RandomMap):
    """Read, decode and cut one picture."""

    def __init__(self, job: Job) -> None:
        self.paths, self.labels, self.kind = job.paths, job.labels, job.kind

    def random_map(self, row: int, rng: np.random.Generator) -> tuple[Any, Any]:
        return window(Path(self.paths[row]).read_bytes(), self.kind, rng), self.labels[row]


def make(job: Job) -> Batches:
    rows = grain.MapDataset.range(len(job.labels)).shuffle(seed=1).repeat()
    batches = rows.random_map(Change(job), seed=1).batch(job.batch, drop_remainder=True)
    # The default of 500 batches in advance would fill during the turns of others.
    options = grain.ReadOptions(num_threads=job.workers, prefetch_buffer_size=2 * job.workers)
    return iter(batches.to_iter_dataset(options))


if __name__ == "__main__":
    serve(make)
