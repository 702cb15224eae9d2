"""infeed.load with `decode`: threads, a shuffle of all rows."""

from __future__ import annotations

from jpegs import LEAST, RATIO, SIDE, Batches, Job, serve

import infeed
from infeed.components.feed.options import Augment


def make(job: Job) -> Batches:
    cut = {"resize": "none", "augment": Augment(shift=16, flip="horizontal")}
    resized = {"augment": Augment(crop=LEAST, stretch=RATIO, flip="horizontal")}
    options = {"batch_size": job.batch, "threads": job.workers, "cache_dir": str(job.folder / "cache")}
    kind = cut if job.kind == "cut" else resized
    data = infeed.load(str(job.folder / "records"), decode="image", size=SIDE, **options, **kind)
    return ((features["image"], label) for features, label in data.numpy(label="label"))


if __name__ == "__main__":
    serve(make)
