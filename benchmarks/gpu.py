"""Share of a GPU's time that training uses with `infeed.load` and other feeds, compared with the step alone.

    python benchmarks/gpu.py --out gpu.json
    python benchmarks/gpu.py --tiny --only table

The benchmark runs on one GPU, or with `--tiny` on a CPU. It uses PyTorch, JAX, torchvision, OpenCV and Grain if they
are installed, and only the core of this package. Keras runs on JAX by the Trainer's code, which needs TensorFlow. The
tasks are a table of 20 numbers, clicks with 26 embeddings, and a ResNet-50 on JPEGs. The share is the time of the step
alone over the time of the step with a feed, so 1.00 is a device that never waits. `nvidia-smi` samples the utilization.
No feed starts after `--budget` seconds.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from gpu_data import CORES, TASKS, TINY, Sizes
from gpu_measure import Row, Task, measured

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # PyTorch and JAX share a device
_ALONE = "the step alone"


def main() -> None:
    options = _options()
    rows, end = list[Row](), time.monotonic() + options.budget
    with tempfile.TemporaryDirectory() as folder:
        for task in _tasks(options, Path(folder)):
            for row in _rows(task, options.seconds, end):
                print(row, flush=True)
                rows.append(row)
                options.out.write_text(json.dumps([asdict(one) for one in rows], indent=1))


def _tasks(options: argparse.Namespace, folder: Path) -> Iterator[Task]:
    for framework in options.frameworks.split(","):
        if not importlib.util.find_spec(framework):
            print(f"{framework} is not installed")
            continue
        try:
            module = importlib.import_module(f"gpu_{framework}")
        except ImportError as error:
            print(f"{framework} cannot run: {error}")
            continue
        print(f"{module.about()}, {CORES} cores, Python {sys.version.split()[0]}", flush=True)
        yield from module.tasks(options.only.split(","), folder, TINY if options.tiny else Sizes())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="Use small data and models.")
    parser.add_argument("--only", default=",".join(TASKS), help="Tasks to run.")
    parser.add_argument("--frameworks", default="torch,jax,keras", help="Frameworks to run.")
    parser.add_argument("--seconds", type=float, default=3.0, help="Length of a measurement.")
    parser.add_argument(
        "--budget", type=float, default=float("inf"), help="Begin no measurement after this many seconds."
    )
    parser.add_argument("--out", type=Path, default=Path("gpu.json"), help="File of the rows, as JSON.")
    return parser.parse_args()


def _rows(task: Task, seconds: float, end: float) -> Iterator[Row]:
    alone = measured(task, _ALONE, itertools.repeat(task.resident), seconds)
    yield alone
    for feed, make in task.feeds.items():
        if time.monotonic() > end:
            print(f"no time is left for {task.name}, {task.framework}, {feed}")
            continue
        try:
            row = measured(task, feed, make(), seconds)
        except Exception as error:  # a feed that fails must not end the other measurements
            print(f"{task.name}, {task.framework}, {feed} failed: {type(error).__name__}: {error}")
            continue
        yield replace(row, share=alone.seconds / row.seconds)


if __name__ == "__main__":
    main()
