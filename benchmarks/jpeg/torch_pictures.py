"""torch: files, torchvision's decoder and transforms, and a DataLoader with worker processes."""

from __future__ import annotations

from typing import Any

import torch
from jpegs import LEAST, RATIO, SIDE, Batches, Job, serve
from torch.utils.data import DataLoader, Dataset
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms import v2

torch.set_num_threads(1)


class Pictures(Dataset[Any]):
    """Files with random windows."""

    def __init__(self, job: Job) -> None:
        self.paths, self.labels = job.paths, job.labels
        resized = v2.RandomResizedCrop(SIDE, (LEAST, 1.0), (1 / RATIO, RATIO), antialias=True)
        self.change = v2.Compose([v2.RandomCrop(SIDE) if job.kind == "cut" else resized, v2.RandomHorizontalFlip()])

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        return self.change(decode_image(self.paths[row], ImageReadMode.RGB)), int(self.labels[row])


def make(job: Job) -> Batches:
    options = {"shuffle": True, "num_workers": job.workers, "drop_last": True, "persistent_workers": True}
    loader = DataLoader(Pictures(job), job.batch, **options)
    while True:
        yield from loader


if __name__ == "__main__":
    serve(make)
