"""Input and task of every contender of `benchmarks/jpeg.py`. Requires only numpy and `turns`.

A batch is (images, labels): uint8 [batch, 224, 224, 3] or [batch, 3, 224, 224], half of them mirrored. `cut` takes
224 x 224 pixels at a random place. `resized` takes a random part of 8 % to 100 % of the area and resizes it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import turns

SIDE, FILE_SIDE = 224, 256
LEAST, RATIO = 0.08, 4 / 3
Batches = Iterator[tuple[Any, Any]]


@dataclass(frozen=True)
class Job:
    """Input of a contender, and its settings.

    `folder` holds the files `files/00000000.jpg`, labels.npy (int64 [n]), and the same rows as TFRecords of `image` and
    `label` under `records`. A contender that needs another format writes it under `folder` before the measurement.
    """

    folder: Path
    kind: str
    batch: int
    workers: int

    @property
    def paths(self) -> list[str]:
        return sorted(map(str, (self.folder / "files").iterdir()))

    @cached_property
    def labels(self) -> Any:
        return np.load(self.folder / "labels.npy")


def serve(make: Callable[[Job], Batches]) -> None:
    """Run a contender until its standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--kind", choices=["cut", "resized"], required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    job = Job(**vars(parser.parse_args()))
    started = time.perf_counter()
    batches = make(job)
    images, labels = next(batches)
    assert images.shape in ((job.batch, SIDE, SIDE, 3), (job.batch, 3, SIDE, SIDE)), images.shape
    assert str(images.dtype).endswith("uint8"), images.dtype
    assert len(labels) == job.batch
    turns.serve(batches, job.batch, started)
