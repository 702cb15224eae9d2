"""Pictures of 32 x 32 pixels, fully augmented, in batches of 128: the feed engine beside six other loaders.

    python benchmarks/images.py

Each contender is one process with two workers or threads of its own, in an environment of its own that is made from
PyPI first (about 7 GB, most of it torch with its CUDA libraries). They take turns, each of which begins once those
batches are used up that were made while others had theirs. Compared are the CPU time an image, that of worker processes
included, and the wall time; a figure whose CPU has no place on the cores in its time is refused. What cannot be
installed or run is named with its error. `images/protocol.py` says what is asked, `docs/images.md` what each does.
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
@click.option("--images", default=20_000, show_default=True, help="Pictures in the data set.")
@click.option("--batch", default=128, show_default=True)
@click.option("--kind", "kinds", default=["raw", "png"], show_default=True, multiple=True)
@click.option("--turns", default=5, show_default=True, help="Turns of each contender, of which the medians are taken.")
@click.option("--seconds", default=3.0, show_default=True, help="Length of a turn.")
@click.option("--workers", default=os.cpu_count() or 1, show_default=True, help="Workers or threads of each contender.")
@click.option("--only", multiple=True, help="Names of the contenders that run; all of them where not given.")
@click.option("--environments", default=ENVIRONMENTS, show_default=True, type=Path)
@click.option("--install/--no-install", default=True, show_default=True, help="Whether environments are made.")
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
    """Measures loaders of small pictures."""
    chosen = [one for one in CONTENDERS if not only or one.name in only]
    found = [prepared(one, environments, install) for one in chosen]
    options = [f"--batch={batch}", f"--workers={workers}"]
    contest = Contest("images", SCRIPTS, "images", found, turns, seconds)
    report(measured(contest, images, kinds, options), as_json)


def write(folder: Path, count: int) -> None:
    """Cuttings from two photographs, in the forms that `images/protocol.py` names."""
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
    """uint8 [32, 32, 3] from anywhere."""
    top, left = (random.integers(0, size - SIDE) for size in photograph.shape[:2])
    return photograph[top : top + SIDE, left : left + SIDE]


def measured(contest: Contest, images: int, kinds: Sequence[str], options: Sequence[str]) -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), images)
        for kind in kinds:
            arguments = [f"--folder={folder}", f"--scratch={folder}", f"--kind={kind}", *options]
            yield from contest.results(f"{kind}, {images:,} pictures, a picture", arguments)


if __name__ == "__main__":
    main()
