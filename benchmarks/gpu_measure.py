"""Measure a training step alone or with a feed: seconds per step, CPU seconds, and GPU utilization of `nvidia-smi`."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_WINDOWS = 5  # windows of a measurement, which is their median
_RUN_UP = 3  # unmeasured first steps, for compilation, workers and first copies
_SETTLING = 2  # first samples of nvidia-smi, which still include earlier work
_SAMPLE_MS = 50


@dataclass(frozen=True)
class Task:
    """A training step, and the feeds to run it with."""

    name: str
    framework: str
    batch: int  # rows per step
    step: Callable[[Any], None]
    wait: Callable[[], None]  # waits until the device has finished all steps
    resident: Any  # batch on the device
    feeds: Mapping[str, Callable[[], Iterable[Any]]]


@dataclass(frozen=True)
class Row:
    """Cost of a step. `gpu` is in percent. None if nvidia-smi took too few samples."""

    task: str
    framework: str
    feed: str
    batch: int
    seconds: float  # seconds per step
    cpu: float  # CPU seconds per step, without worker processes
    steps: int
    gpu: float | None
    share: float = 1.0  # seconds of the step alone over `seconds`

    def __str__(self) -> str:
        gpu = "-" if self.gpu is None else f"{self.gpu:.0f}"
        cells = (
            f"{self.task:6s} {self.framework:6s} {self.feed:52s}",
            f"{self.seconds * 1e3:9.3f} ms {self.batch / self.seconds:12,.0f} rows/s",
            f"share {self.share:4.2f}  GPU {gpu:>3s} %  CPU {self.cpu * 1e3:8.2f} ms  {self.steps:6,} steps",
        )
        return "  ".join(cells)


def measured(task: Task, feed: str, batches: Iterable[Any], seconds: float) -> Row:
    """Run the step on the batches of a feed for about `seconds`, and return its cost."""
    source = iter(batches)
    for _ in range(_RUN_UP):
        task.step(next(source))
    task.wait()
    with utilization() as samples:
        cpu = time.process_time()
        windows = [_window(task, source, seconds / _WINDOWS) for _ in range(_WINDOWS)]
        cpu = time.process_time() - cpu
    steps = sum(count for count, _ in windows)
    middle = statistics.median(took / count for count, took in windows)
    seen = samples[_SETTLING:]
    gpu = statistics.fmean(seen) if len(seen) > _SETTLING else None
    return Row(task.name, task.framework, feed, task.batch, middle, cpu / steps, steps, gpu)


def _window(task: Task, batches: Iterator[Any], seconds: float) -> tuple[int, float]:
    """Return the number of steps in a window, and the seconds until the device has finished them."""
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        task.step(next(batches))
        count += 1
    task.wait()
    return count, time.perf_counter() - began


@contextlib.contextmanager
def utilization() -> Iterator[list[float]]:
    """Collect the GPU's utilization in percent during the context. Empty without `nvidia-smi`."""
    samples: list[float] = []
    query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", f"-lms={_SAMPLE_MS}"]
    try:
        process = subprocess.Popen(query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        yield samples
        return
    assert process.stdout is not None
    lines = process.stdout
    reader = threading.Thread(target=lambda: samples.extend(float(line) for line in lines if line.strip().isdigit()))
    reader.start()
    try:
        yield samples
    finally:
        process.terminate()
        reader.join()
        process.wait()
