"""infeed.load: `numpy`, with all columns as one feature or each under its name, and `tf`, read by TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from arrays import Job, serve

import infeed


def make(job: Job) -> Iterator[Any]:
    features, _, framework = job.how.partition(" ")
    data = infeed.load(str(job.folder / features), batch_size=job.batch, seed=1, cache_dir=str(job.folder / "cache"))
    return data.tf().as_numpy_iterator() if framework == "tf" else data.numpy()


if __name__ == "__main__":
    serve(make)
