"""What every contender of `benchmarks/images.py` is given, and how it answers; needs numpy and `clock` alone.

A contender is one process. It makes an endless iterator of batches and answers each line on its standard input, a
number of seconds, with one JSON line: the images it made in that time, and the wall and CPU seconds that took, those of
its own worker processes included.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from clock import Stopwatch, below, settle

SIDE = 32


@dataclass(frozen=True)
class Recipe:
    """The full augmentation: every contender changes each picture in all of these ways.

    Attributes:
      shift: pads by so many pixels with reflection and crops at random.
      rotate: up to so many degrees either way, bilinear.
      brightness: adds up to this share of the full range, or takes it away.
      contrast: scales the distance from the picture's mean by up to this share more or less.
      cutout: side of one square that is set to the mean.
    """

    shift: int = 4
    rotate: float = 15.0
    brightness: float = 0.2
    contrast: float = 0.2
    cutout: int = 8
    mean: float = 0.5
    std: float = 0.5


@dataclass(frozen=True)
class Job:
    """What to read, and how.

    `folder` holds `labels.npy` (int64 [n]), `pixels.npy` (uint8 [n, 32, 32, 3]), `png.bin` (all PNGs, end to
    end, with their ends in `png_ends.npy`) and
    TFRecord shards of the same under `raw/` and `png/`. Contenders that want another form make it under `scratch`
    before they are measured.
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
    job = _job()
    started = time.perf_counter()
    batches = make(job)
    check(*next(batches), job.batch)
    _say({"ready": time.perf_counter() - started})
    for line in sys.stdin:
        _say(turn(batches, float(line), job.batch))
    for pid in list(below(os.getpid())):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    sys.stdout.flush()
    os._exit(0)  # loaders that wait for their workers would wait for ever


def turn(batches: Batches, seconds: float, size: int) -> dict[str, float]:
    """Takes batches for so long, after a run-up of half of that: buffers are full before, and nobody's advantage.

    CPU is counted from the first batch of the run-up until all buffers are full again.
    """
    watch = Stopwatch()
    run_up, _ = take(batches, seconds / 2)
    count, wall = take(batches, seconds)
    settle(every=0.3, rounds=20)
    return {"images": count * size, "wall": wall, "cpu": watch.cpu * count / (count + run_up)}


def take(batches: Batches, seconds: float) -> tuple[int, float]:
    """Batches taken in at least so many seconds, and the seconds that took."""
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        next(batches)
        count += 1
    return count, time.perf_counter() - started


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


def _job() -> Job:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--kind", choices=["raw", "png"], required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    return Job(**vars(parser.parse_args()))


def _say(answer: dict[str, float]) -> None:
    print(json.dumps(answer), flush=True)
