"""Hugging Face datasets: an Arrow table in a file, OpenCV in its transform, torch's DataLoader for two processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import recipe_opencv
from datasets import Dataset, load_from_disk
from protocol import Batches, Job, serve
from torch.utils.data import DataLoader, RandomSampler, get_worker_info


def make(job: Job) -> Batches:
    path = str(job.scratch / f"arrow-{job.kind}")
    Dataset.from_dict({"image": job.stored, "label": job.labels}).save_to_disk(path)
    table = load_from_disk(path).with_transform(Transform(job))
    sampler = RandomSampler(table, num_samples=1 << 30, replacement=False)
    loader = DataLoader(table, job.batch, sampler=sampler, num_workers=job.workers, collate_fn=collate, drop_last=True)
    return iter(loader)


class Transform:
    """Augment the images of a batch one after the other."""

    def __init__(self, job: Job) -> None:
        self.kind, self.recipe = job.kind, job.recipe
        self.random: np.random.Generator | None = None

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        if self.random is None:
            worker = get_worker_info()
            self.random = np.random.default_rng(worker.seed if worker else 0)
        images = [recipe_opencv.decode(stored, self.kind) for stored in batch["image"]]
        return {
            "image": [recipe_opencv.augment(image, self.random, self.recipe) for image in images],
            "label": batch["label"],
        }


def collate(rows: list[dict[str, Any]]) -> tuple[Any, Any]:
    return np.stack([row["image"] for row in rows]), np.array([row["label"] for row in rows])


if __name__ == "__main__":
    serve(make)
