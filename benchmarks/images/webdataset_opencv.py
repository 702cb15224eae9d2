"""WebDataset: tar shards, a shuffle buffer, OpenCV, batches made in the worker processes of torch's DataLoader."""

from __future__ import annotations

from typing import Any

import numpy as np
import recipe_opencv
import webdataset
from protocol import Batches, Job, serve
from torch.utils.data import get_worker_info

_SHARDS = 8


def make(job: Job) -> Batches:
    urls = write(job)
    dataset = (
        webdataset.WebDataset(urls, shardshuffle=_SHARDS, nodesplitter=None)
        .shuffle(1_000)
        .to_tuple("bin", "cls")
        .map_tuple(Change(job), int)
        .batched(job.batch, partial=False)
        .repeat()
    )
    return iter(webdataset.WebLoader(dataset, batch_size=None, num_workers=job.workers))


def write(job: Job) -> list[str]:
    """Write the images as tar shards."""
    paths = [str(job.scratch / f"{job.kind}-{shard}.tar") for shard in range(_SHARDS)]
    for shard, path in enumerate(paths):
        with webdataset.TarWriter(path) as writer:
            for row in range(shard, len(job.stored), _SHARDS):
                writer.write({"__key__": f"{row:08}", "bin": job.stored[row], "cls": str(job.labels[row]).encode()})
    return paths


class Change:
    """Decode and augment one image."""

    def __init__(self, job: Job) -> None:
        self.kind, self.recipe = job.kind, job.recipe
        self.random: np.random.Generator | None = None

    def __call__(self, stored: bytes) -> Any:
        if self.random is None:
            worker = get_worker_info()
            self.random = np.random.default_rng(worker.seed if worker else 0)
        return recipe_opencv.augment(recipe_opencv.decode(stored, self.kind), self.random, self.recipe)


if __name__ == "__main__":
    serve(make)
