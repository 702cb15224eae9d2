"""NumPy alone, which is the reference: one permutation per epoch, and `np.take` for the rows of each batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from arrays import Job, serve


def make(job: Job) -> Iterator[Any]:
    random, x, y = np.random.default_rng(1), job.x, job.y
    while True:
        order = random.permutation(len(x))
        for begin in range(0, len(x) - job.batch + 1, job.batch):
            rows = order[begin : begin + job.batch]
            yield {"x": np.take(x, rows, axis=0), "y": np.take(y, rows)}


if __name__ == "__main__":
    serve(make)
