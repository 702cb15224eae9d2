"""SPDL: its pipeline of threads with files, an exact shuffle, and Pillow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jpegs import Batches, Job, serve
from spdl.pipeline import PipelineBuilder
from window_pillow import window

_READY = 3  # batches


def make(job: Job) -> Batches:
    random = np.random.default_rng(0)

    def rows() -> Iterator[tuple[int, int]]:
        while True:
            for row in random.permutation(len(job.labels)).tolist():
                yield row, int(random.integers(1 << 32))

    paths, labels = job.paths, job.labels

    def change(drawn: tuple[int, int]) -> tuple[Any, Any]:
        row, seed = drawn
        return window(Path(paths[row]).read_bytes(), job.kind, np.random.default_rng(seed)), labels[row]

    def joined(pairs: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        images, targets = zip(*pairs, strict=True)
        return np.stack(images), np.array(targets)

    builder = PipelineBuilder().add_source(rows()).pipe(change, concurrency=job.workers)
    batches = builder.aggregate(job.batch, drop_last=True).pipe(joined).add_sink(_READY)
    pipeline = batches.build(num_threads=job.workers)
    with pipeline.auto_stop():
        yield from pipeline


if __name__ == "__main__":
    serve(make)
