"""What every contender of `benchmarks/images.py` is given, and what it has to do; needs numpy and `turns` alone."""

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

SIDE = 32


@dataclass(frozen=True)
class Recipe:
    """The full augmentation: every contender changes each picture in all of these ways."""

    shift: int = 4  # pads by so many pixels with reflection and crops at random
    rotate: float = 15.0  # up to so many degrees either way, bilinear
    brightness: float = 0.2  # adds up to this share of the full range, or takes it away
    contrast: float = 0.2  # scales the distance from the picture's mean by up to this share more or less
    cutout: int = 8  # side of one square that is set to the mean
    mean: float = 0.5
    std: float = 0.5


@dataclass(frozen=True)
class Job:
    """What to read, and how.

    `folder` holds `labels.npy` (int64 [n]), `pixels.npy` (uint8 [n, 32, 32, 3]), `png.bin` (all PNGs, end to end, with
    their ends in `png_ends.npy`) and TFRecord shards of the same under `raw/` and `png/`. Contenders that want another
    form make it under `scratch` before they are measured.
    """

    folder: Path
    kind: str
    batch: int
    workers: int
    scratch: Path
    recipe: Recipe = Recipe()

    @cached_property
    def labels(self) -> Any:
        return np.load(self.folder / "labels.npy")

    @cached_property
    def stored(self) -> list[bytes]:
        """Each picture as it is stored: its pixels' bytes, or a PNG."""
        if self.kind == "raw":
            return [picture.tobytes() for picture in np.load(self.folder / "pixels.npy")]
        ends = np.load(self.folder / "png_ends.npy").tolist()
        data = (self.folder / "png.bin").read_bytes()
        return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    @property
    def shards(self) -> list[str]:
        """TFRecord files of examples with `image` (bytes) and `label` (int64)."""
        return sorted(map(str, (self.folder / self.kind / "Split-train").iterdir()))


Batches = Iterator[tuple[Any, Any]]  # images float32 [batch, 32, 32, 3] or [batch, 3, 32, 32], labels [batch]


def serve(make: Callable[[Job], Batches]) -> None:
    """Runs a contender until its standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--kind", choices=["raw", "png"], required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    job = Job(**vars(parser.parse_args()))
    started = time.perf_counter()
    batches = make(job)
    check(*next(batches), job.batch)
    turns.serve(batches, job.batch, started)


def check(images: Any, labels: Any, size: int) -> None:
    """Stops a contender that does less than the recipe asks for."""
    images, labels = np.asarray(images), np.asarray(labels)
    if images.shape[1] == 3:
        images = images.transpose(0, 2, 3, 1)
    assert images.shape == (size, SIDE, SIDE, 3), images.shape
    assert images.dtype == np.float32, images.dtype
    assert labels.size == size, labels.shape
    assert -1.01 <= images.min() < -0.2, images.min()
    assert 0.2 < images.max() <= 1.01, images.max()
    cut = np.all(np.abs(images) < 0.005, axis=-1).mean(axis=(1, 2))
    assert (cut > 0.01).mean() > 0.95, "a square is to be cut out of every picture"
