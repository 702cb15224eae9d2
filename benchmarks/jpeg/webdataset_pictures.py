"""WebDataset: tar shards, a shuffle buffer, Pillow, batches made in worker processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import webdataset
from jpegs import Batches, Job, serve
from torch.utils.data import get_worker_info
from window_pillow import window

_SHARDS = 8


class Change:
    """Decode and cut one picture."""

    def __init__(self, kind: str) -> None:
        self.kind, self.random = kind, np.random.default_rng(0)
        self.seeded = False

    def __call__(self, encoded: bytes) -> Any:
        if not self.seeded and (worker := get_worker_info()):
            self.random, self.seeded = np.random.default_rng(worker.seed), True
        return window(encoded, self.kind, self.random)


def make(job: Job) -> Batches:
    dataset = (
        webdataset.WebDataset(write(job), shardshuffle=_SHARDS, nodesplitter=None)
        .shuffle(1000)
        .to_tuple("jpg", "cls")
        .map_tuple(Change(job.kind), int)
        .batched(job.batch, partial=False)
        .repeat()
    )
    return iter(webdataset.WebLoader(dataset, batch_size=None, num_workers=job.workers))


def write(job: Job) -> list[str]:
    """Write the files as tar shards."""
    urls = [str(job.folder / f"{shard}.tar") for shard in range(_SHARDS)]
    for shard, url in enumerate(urls):
        with webdataset.TarWriter(url) as writer:
            for row in range(shard, len(job.paths), _SHARDS):
                file = {"jpg": Path(job.paths[row]).read_bytes(), "cls": str(job.labels[row]).encode()}
                writer.write({"__key__": f"{row:08}", **file})
    return urls


if __name__ == "__main__":
    serve(make)
