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
from contenders import Contender, Contest, contest
from feed import serialize
from harness import Result
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
@click.option("--workers", default=os.cpu_count() or 1, show_default=True, help="Workers or threads of each contender.")
@contest("images", SCRIPTS, "images", CONTENDERS, seconds=3.0)
def main(contest: Contest, images: int, batch: int, kinds: Sequence[str], workers: int) -> Iterator[Result]:
    """Measure loaders of small images."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), images)
        for kind in kinds:
            arguments = [f"--folder={folder}", f"--scratch={folder}", f"--kind={kind}"]
            arguments += [f"--batch={batch}", f"--workers={workers}"]
            yield from contest.results(f"{kind}, {images:,} images, an image", arguments)


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


if __name__ == "__main__":
    main()
