"""infeed.load with `decode`: threads, a shuffle of all rows."""

from __future__ import annotations

from jpegs import LEAST, RATIO, SIDE, Batches, Job, serve

import infeed
from infeed.components.feed.options import Augment


def make(job: Job) -> Batches:
    cut = job.kind == "cut"
    data = infeed.load(
        str(job.folder / "records"),
        batch_size=job.batch,
        cache_dir=str(job.folder / "cache"),
        decode="image",
        size=SIDE,
        resize="none" if cut else "stretch",
        augment=Augment(shift=16, flip="horizontal") if cut else Augment(crop=LEAST, stretch=RATIO, flip="horizontal"),
        threads=job.workers,
    )
    return ((features["image"], label) for features, label in data.numpy(label="label"))


if __name__ == "__main__":
    serve(make)
