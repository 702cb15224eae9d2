"""torch: a map-style dataset in memory, torchvision's v2 transforms per image, DataLoader with processes."""

from __future__ import annotations

from typing import Any

import torch
from protocol import SIDE, Batches, Job, serve
from torch.utils.data import DataLoader, Dataset, RandomSampler
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms import InterpolationMode, v2


def make(job: Job) -> Batches:
    images = Images(job)
    sampler = RandomSampler(images, num_samples=1 << 30, replacement=False)
    return iter(DataLoader(images, job.batch, sampler=sampler, num_workers=job.workers, drop_last=True))


class Images(Dataset[Any]):
    """Dataset of stored bytes in memory that decodes and augments single images."""

    def __init__(self, job: Job) -> None:
        self.kind, self.labels = job.kind, job.labels
        self.stored = [torch.frombuffer(bytearray(one), dtype=torch.uint8) for one in job.stored]
        recipe = job.recipe
        area = recipe.cutout**2 / SIDE**2
        self.change = v2.Compose(
            [
                v2.Pad(recipe.shift, padding_mode="symmetric"),
                v2.RandomCrop(SIDE),
                v2.RandomHorizontalFlip(),
                v2.RandomRotation(recipe.rotate, InterpolationMode.BILINEAR),
                v2.ColorJitter(brightness=recipe.brightness, contrast=recipe.contrast),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([recipe.mean] * 3, [recipe.std] * 3),
                v2.RandomErasing(p=1.0, scale=(area, area), ratio=(1.0, 1.0)),
            ]
        )

    def __len__(self) -> int:
        return len(self.stored)

    def __getitem__(self, row: int) -> tuple[Any, Any]:
        stored = self.stored[row]
        if self.kind == "raw":
            image = stored.reshape(SIDE, SIDE, 3).permute(2, 0, 1)
        else:
            image = decode_image(stored, ImageReadMode.RGB)
        return self.change(image), self.labels[row]


if __name__ == "__main__":
    serve(make)
