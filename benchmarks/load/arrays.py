"""Input of every contender of `benchmarks/load.py`. Requires only numpy and `turns`.

A batch is a dict of `x`, float32 [batch, columns], and `y`, int64 [batch]. The order changes in each epoch. Ours also
returns batches with a separate name for each column. All contenders work in one process without workers, because the
cost of a row is the same in each of several processes.
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


@dataclass(frozen=True)
class Job:
    """Input of a contender, and its settings."""

    folder: Path  # folder of `x.npy` and `y.npy`, and of the same rows as TFRecords under `together/` and `named/`
    batch: int  # rows of a batch
    how: str  # variant of the contender, a name that its script defines

    @cached_property
    def x(self) -> Any:
        return np.load(self.folder / "x.npy")

    @cached_property
    def y(self) -> Any:
        return np.load(self.folder / "y.npy")


def serve(make: Callable[[Job], Iterator[Any]]) -> None:
    """Run a contender until its standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--how", default="")
    job = Job(**vars(parser.parse_args()))
    started = time.perf_counter()
    batches = make(job)
    check(next(batches), job)
    turns.serve(batches, job.batch, started)


def check(batch: Any, job: Job) -> None:
    """Raise AssertionError for a batch that has the wrong form or is not shuffled."""
    named = [batch[f"x{column:02}"] for column in range(job.x.shape[1])] if "x" not in batch else None
    x = np.stack([np.asarray(one) for one in named], axis=1) if named else np.asarray(batch["x"])
    y = np.asarray(batch["y"]).reshape(-1)
    assert (x.shape, x.dtype) == ((job.batch, job.x.shape[1]), np.float32), (x.shape, x.dtype)
    assert y.dtype == np.int64, y.dtype
    assert (job.x[y] == x).all(), "a row is not that of its number"
    assert (np.diff(y) != 1).any(), "the rows are not shuffled"
