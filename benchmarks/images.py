"""Images of 32 x 32 pixels, fully augmented, in batches of 128: the feed engine and six other loaders.

    python benchmarks/images.py

Each contender is one process with two workers or threads, in a separate environment that is first installed from PyPI
(about 7 GB, most of it torch with its CUDA libraries). Contenders take turns. A turn starts once the contender has no
batches left from other turns. The benchmark compares the CPU time of an image, including worker processes, and the wall
time. It refuses a figure whose CPU time exceeds wall time times cores, and reports contenders that cannot be installed
or run. `images/protocol.py` defines the task.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import tensorflow as tf
from contenders import ENVIRONMENTS, Contender, Contest, prepared
from feed import serialize
from harness import Result, as_json, report
from sklearn.datasets import load_sample_images

from infeed.components.dataset import names, records

SCRIPTS = Path(__file__).parent / "images"
SHARDS = 8
SIDE = 32
OPENCV = "opencv-python-headless"


CONTENDERS = (
    Contender("ours, columns", "ours.py", options=("columns",)),
    Contender("ours, stream", "ours.py", options=("stream",)),
    Contender("Hugging Face datasets", "huggingface_opencv.py", ("datasets", "torch", OPENCV)),
    Contender("DALI", "dali_cpu.py", ("nvidia-dali-cuda120",)),
    Contender("torch DataLoader", "torch_loader.py", ("torch", "torchvision")),
    Contender("Grain", "grain_opencv.py", ("grain", OPENCV)),
    Contender("WebDataset", "webdataset_opencv.py", ("webdataset", "torch", OPENCV)),
    Contender("tensorpack", "tensorpack_opencv.py", ("tensorpack", OPENCV)),
)


@click.command()
@click.option("--images", default=20_000, show_default=True, help="Images in the data set.")
@click.option("--batch", default=128, show_default=True)
@click.option("--kind", "kinds", default=["raw", "png"], show_default=True, multiple=True)
@click.option("--turns", default=5, show_default=True, help="Turns of each contender. The table shows medians.")
@click.option("--seconds", default=3.0, show_default=True, help="Length of a turn.")
@click.option("--workers", default=os.cpu_count() or 1, show_default=True, help="Workers or threads of each contender.")
@click.option("--only", multiple=True, help="Contenders to run. Defaults to all.")
@click.option("--environments", default=ENVIRONMENTS, show_default=True, type=Path)
@click.option("--install/--no-install", default=True, show_default=True, help="Install missing environments.")
@as_json
def main(
    images: int,
    batch: int,
    kinds: Sequence[str],
    turns: int,
    seconds: float,
    workers: int,
    only: Sequence[str],
    environments: Path,
    install: bool,
    as_json: bool,
) -> None:
    """Measure loaders of small images."""
    chosen = [one for one in CONTENDERS if not only or one.name in only]
    found = [prepared(one, environments, install) for one in chosen]
    options = [f"--batch={batch}", f"--workers={workers}"]
    contest = Contest("images", SCRIPTS, "images", found, turns, seconds)
    report(measured(contest, images, kinds, options), as_json)


def write(folder: Path, count: int) -> None:
    """Write crops of two photographs in the formats of `images/protocol.py`."""
    random, photographs = np.random.default_rng(0), load_sample_images().images
    labels = random.integers(0, 10, count)
    pixels = np.stack([cutting(photographs[row % 2], random) for row in range(count)])
    pngs = [tf.io.encode_png(one).numpy() for one in pixels]
    np.save(folder / "labels.npy", labels)
    np.save(folder / "pixels.npy", pixels)
    np.save(folder / "png_ends.npy", np.cumsum([len(one) for one in pngs]))
    (folder / "png.bin").write_bytes(b"".join(pngs))
    for kind, stored in {"raw": [one.tobytes() for one in pixels], "png": pngs}.items():
        examples = [
            serialize({"image": [one], "label": [label]}) for one, label in zip(stored, labels.tolist(), strict=True)
        ]
        for shard in range(SHARDS):
            framed = records.frame_records(pa.array(examples[shard::SHARDS], pa.large_binary()))
            path = folder / kind / "Split-train" / names.shard_name(shard, SHARDS, gzip=False)
            records.write_records(str(path), [framed], gzip_level=None)


def cutting(photograph: Any, random: np.random.Generator) -> Any:
    """Return a random crop: uint8 [32, 32, 3]."""
    top, left = (random.integers(0, size - SIDE) for size in photograph.shape[:2])
    return photograph[top : top + SIDE, left : left + SIDE]


def measured(contest: Contest, images: int, kinds: Sequence[str], options: Sequence[str]) -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), images)
        for kind in kinds:
            arguments = [f"--folder={folder}", f"--scratch={folder}", f"--kind={kind}", *options]
            yield from contest.results(f"{kind}, {images:,} images, an image", arguments)


if __name__ == "__main__":
    main()
