"""Input and task of every contender of `benchmarks/images.py`. Requires only numpy and `turns`."""

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
    """The full augmentation. Every contender applies all of it to each image."""

    shift: int = 4  # pixels of reflected padding, before a random crop
    rotate: float = 15.0  # maximum degrees in either direction, bilinear
    brightness: float = 0.2  # maximum change, as a share of the full range
    contrast: float = 0.2  # maximum change of the distance from the image's mean, as a share
    cutout: int = 8  # side of one square that is set to the mean
    mean: float = 0.5
    std: float = 0.5


@dataclass(frozen=True)
class Job:
    """Input of a contender, and its settings.

    `folder` holds `labels.npy` (int64 [n]), `pixels.npy` (uint8 [n, 32, 32, 3]), `png.bin` (all PNGs concatenated),
    `png_ends.npy` (the end of each PNG), and TFRecord shards of both under `raw/` and `png/`. A contender that needs
    another format writes it under `scratch` before the measurement.
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
        """Return the stored bytes of each image: its pixels, or a PNG."""
        if self.kind == "raw":
            return [image.tobytes() for image in np.load(self.folder / "pixels.npy")]
        ends = np.load(self.folder / "png_ends.npy").tolist()
        data = (self.folder / "png.bin").read_bytes()
        return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    @property
    def shards(self) -> list[str]:
        """Return the TFRecord files of examples with `image` (bytes) and `label` (int64)."""
        return sorted(map(str, (self.folder / self.kind / "Split-train").iterdir()))


Batches = Iterator[tuple[Any, Any]]  # images float32 [batch, 32, 32, 3] or [batch, 3, 32, 32], labels [batch]


def serve(make: Callable[[Job], Batches]) -> None:
    """Run a contender until its standard input ends."""
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
    """Raise AssertionError for a contender that does less than the recipe."""
    images, labels = np.asarray(images), np.asarray(labels)
    if images.shape[1] == 3:
        images = images.transpose(0, 2, 3, 1)
    assert images.shape == (size, SIDE, SIDE, 3), images.shape
    assert images.dtype == np.float32, images.dtype
    assert labels.size == size, labels.shape
    assert -1.01 <= images.min() < -0.2, images.min()
    assert 0.2 < images.max() <= 1.01, images.max()
    cut = np.all(np.abs(images) < 0.005, axis=-1).mean(axis=(1, 2))
    assert (cut > 0.01).mean() > 0.95, "a square has to be cut out of every image"
