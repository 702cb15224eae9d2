"""Grain: ArrayRecord files read by row number, an exact shuffle, OpenCV, batches made in worker processes."""

from __future__ import annotations

from typing import Any

import grain
import numpy as np
import recipe_opencv
from array_record.python.array_record_module import ArrayRecordWriter
from protocol import Batches, Job, serve

_LABEL_BYTES = 8


def make(job: Job) -> Batches:
    dataset = (
        grain.MapDataset.source(grain.sources.ArrayRecordDataSource([write(job)]))
        .shuffle(seed=1)
        .repeat()
        .random_map(Change(job), seed=1)
        .batch(job.batch, drop_remainder=True)
        .to_iter_dataset(grain.ReadOptions(num_threads=2))
        .mp_prefetch(grain.MultiprocessingOptions(num_workers=job.workers))
    )
    return iter(dataset)


def write(job: Job) -> str:
    """Write the images as one ArrayRecord file: label, then the stored bytes."""
    path = str(job.scratch / f"{job.kind}.arrayrecord")
    writer = ArrayRecordWriter(path, "group_size:1")
    for stored, label in zip(job.stored, job.labels, strict=True):
        writer.write(label.tobytes() + stored)
    writer.close()
    return path


class Change(grain.transforms.RandomMap):
    """Decode and augment one image."""

    def __init__(self, job: Job) -> None:
        self.kind, self.recipe = job.kind, job.recipe

    def random_map(self, element: bytes, rng: np.random.Generator) -> tuple[Any, Any]:
        image = recipe_opencv.decode(element[_LABEL_BYTES:], self.kind)
        label = np.frombuffer(element, np.int64, 1)[0]
        return recipe_opencv.augment(image, rng, self.recipe), label


if __name__ == "__main__":
    serve(make)
