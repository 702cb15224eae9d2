"""infeed.load: `numpy` or `tf`, with all columns as one feature, as separate features, or packed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from arrays import Job, serve

import infeed


def make(job: Job) -> Iterator[Any]:
    features, how, framework = job.how.split()
    data = infeed.load(str(job.folder / features), batch_size=job.batch, seed=1, cache_dir=str(job.folder / "cache"))
    pack = how == "packed"
    batches = data.tf(pack=pack).as_numpy_iterator() if framework == "tf" else data.numpy(pack=pack)
    # Rename the arrays to the names that all contenders use.
    return ({"x": batch["float32"], "y": batch["int64"]} for batch in batches) if pack else iter(batches)


if __name__ == "__main__":
    serve(make)
