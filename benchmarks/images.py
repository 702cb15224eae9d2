"""Pictures of 32 x 32 pixels, fully augmented, in batches of 128: the feed engine beside six other loaders.

    python benchmarks/images.py

Each contender is one process with two workers or threads of its own, in an environment of its own that is made from
PyPI first (about 7 GB, most of it torch with its CUDA libraries). They take turns; one JSON line a figure is printed:
the median of images per second and of CPU time an image, that of worker processes included, and how many times as fast
ours are. What cannot be installed or run is named with its error. `images/protocol.py` says what is measured,
`docs/images.md` what each contender does.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import click
import numpy as np
import pyarrow as pa
import tensorflow as tf
from sklearn.datasets import load_sample_images

from infeed.components.dataset import names, records

SCRIPTS = Path(__file__).parent / "images"
SHARDS = 8
SIDE = 32
OPENCV = "opencv-python-headless"
Figures = dict[str, float]


@dataclass(frozen=True)
class Contender:
    """A script, and the packages it needs from PyPI; none means the environment that this one runs in."""

    name: str
    script: str
    packages: tuple[str, ...] = ()


CONTENDERS = (
    Contender("ours, columns", "ours_columns.py"),
    Contender("ours, stream", "ours_stream.py"),
    Contender("Hugging Face datasets", "huggingface_opencv.py", ("datasets", "torch", OPENCV)),
    Contender("DALI", "dali_cpu.py", ("nvidia-dali-cuda120",)),
    Contender("torch DataLoader", "torch_loader.py", ("torch", "torchvision")),
    Contender("Grain", "grain_opencv.py", ("grain", OPENCV)),
    Contender("WebDataset", "webdataset_opencv.py", ("webdataset", "torch", OPENCV)),
    Contender("tensorpack", "tensorpack_opencv.py", ("tensorpack", OPENCV)),
)


class CannotRunError(Exception):
    """A contender that cannot be installed or started here, with the reason."""


@click.command()
@click.option("--images", default=20_000, show_default=True, help="Pictures in the data set.")
@click.option("--batch", default=128, show_default=True)
@click.option("--kind", "kinds", default=["raw", "png"], show_default=True, multiple=True)
@click.option("--turns", default=5, show_default=True, help="Turns of each contender; medians are printed.")
@click.option("--seconds", default=3.0, show_default=True, help="Length of a turn.")
@click.option("--workers", default=os.cpu_count() or 1, show_default=True, help="Workers or threads of each contender.")
@click.option("--only", multiple=True, help="Names of the contenders that run; all of them where not given.")
@click.option("--environments", default="~/.cache/tfx-infeed-benchmarks", show_default=True, type=Path)
def main(
    images: int,
    batch: int,
    kinds: Sequence[str],
    turns: int,
    seconds: float,
    workers: int,
    only: Sequence[str],
    environments: Path,
) -> None:
    """Measures loaders of small pictures."""
    chosen = [one for one in CONTENDERS if not only or one.name in only]
    pythons = installed(chosen, environments.expanduser())
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), images)
        for kind in kinds:
            arguments = [f"--folder={folder}", f"--scratch={folder}", f"--kind={kind}"]
            arguments += [f"--batch={batch}", f"--workers={workers}"]
            with started(pythons, arguments) as processes:
                figures = take_turns(processes, turns, seconds)
            report(figures, {"kind": kind, "images": images, "batch": batch, "workers": workers})


def installed(contenders: Sequence[Contender], folder: Path) -> dict[Contender, str]:
    """Contender -> its Python, after what it needs is there; those that cannot be installed are left out."""
    pythons = {contender: python_of(contender, folder) for contender in contenders}
    return {contender: python for contender, python in pythons.items() if python}


def python_of(contender: Contender, folder: Path) -> str:
    """Empty where the contender cannot be installed, which is reported."""
    try:
        return environment(contender, folder) if contender.packages else sys.executable
    except CannotRunError as error:
        say({"contender": contender.name, "figure": "cannot be installed", "value": str(error)})
        return ""


def environment(contender: Contender, folder: Path) -> str:
    """An environment with the contender's packages, made at the first time; says their versions."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}") or "uv"
    path = folder / Path(contender.script).stem
    python = str(path / "bin" / "python")
    if not (path / "whole").exists():
        command(uv, "venv", "--clear", "--python", sys.executable, str(path))
        command(uv, "pip", "install", "--python", python, "numpy", "psutil", *contender.packages)
        (path / "whole").touch()
    frozen = command(uv, "pip", "freeze", "--python", python).splitlines()
    versions = [line for line in frozen if line.partition("==")[0] in contender.packages]
    say({"contender": contender.name, "figure": "versions", "value": ", ".join(versions)})
    return python


def command(*words: str) -> str:
    """Runs a command and returns what it prints."""
    try:
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout
    except subprocess.CalledProcessError as error:
        raise CannotRunError(error.stderr.strip()[-500:]) from error


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
        examples = [example(*row) for row in zip(stored, labels.tolist(), strict=True)]
        for shard in range(SHARDS):
            framed = records.frame_records(pa.array(examples[shard::SHARDS], pa.large_binary()))
            path = folder / kind / "Split-train" / names.shard_name(shard, SHARDS, gzip=False)
            records.write_records(str(path), [framed], gzip_level=None)


def cutting(photograph: Any, random: np.random.Generator) -> Any:
    """uint8 [32, 32, 3] from anywhere."""
    top, left = (random.integers(0, size - SIDE) for size in photograph.shape[:2])
    return photograph[top : top + SIDE, left : left + SIDE]


def example(stored: bytes, label: int) -> bytes:
    """A serialized tf.Example."""
    image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[stored]))
    number = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
    features = tf.train.Features(feature={"image": image, "label": number})
    return bytes(tf.train.Example(features=features).SerializeToString())


@dataclass(frozen=True)
class Process:
    """A running contender; `errors` is where its standard error goes."""

    contender: Contender
    running: subprocess.Popen[str]
    errors: IO[str]

    def answer(self) -> Figures:
        """The next line that it prints, which may come after lines of a library.

        Raises:
          CannotRunError: it ended instead.
        """
        assert self.running.stdout is not None
        for line in self.running.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        self.errors.seek(0)
        raise CannotRunError(self.errors.read().strip()[-500:])

    def turn(self, seconds: float) -> Figures:
        """Lets it work for so long."""
        assert self.running.stdin is not None
        print(seconds, file=self.running.stdin, flush=True)
        return self.answer()


@contextmanager
def started(pythons: dict[Contender, str], arguments: Sequence[str]) -> Iterator[list[Process]]:
    """All contenders that can be run, each ready and at rest."""
    processes = [process for one, python in pythons.items() if (process := start(one, python, arguments))]
    yield processes
    for process in processes:
        process.running.communicate()
        process.errors.close()


def start(contender: Contender, python: str, arguments: Sequence[str]) -> Process | None:
    """A contender that has made its first batch; None where it cannot, which is reported."""
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the process is
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
    words = [python, str(SCRIPTS / contender.script), *arguments]
    process = Process(contender, subprocess.Popen(words, text=True, **pipes), errors)
    try:
        process.answer()
    except CannotRunError as error:
        say({"contender": contender.name, "figure": "cannot be run", "value": str(error)})
        return None
    return process


def take_turns(processes: Sequence[Process], turns: int, seconds: float) -> dict[str, Figures]:
    """Medians of each contender, over turns that are taken one after the other."""
    took: dict[str, list[Figures]] = {process.contender.name: [] for process in processes}
    for _ in range(turns):
        for process in processes:
            took[process.contender.name].append(process.turn(seconds))
    return {name: medians(some) for name, some in took.items()}


def medians(turns: Sequence[Figures]) -> Figures:
    return {
        "images per second": statistics.median(turn["images"] / turn["wall"] for turn in turns),
        "CPU microseconds an image": statistics.median(turn["cpu"] / turn["images"] * 1e6 for turn in turns),
    }


def report(took: dict[str, Figures], fields: dict[str, Any]) -> None:
    """One line a figure, then each of ours beside each of the others."""
    for name, figures in took.items():
        for figure, value in figures.items():
            say({**fields, "contender": name, "figure": figure, "value": round(value, 1)})
    ours = {name: figures for name, figures in took.items() if name.startswith("ours")}
    for name, figures in ours.items():
        for other in took.keys() - ours.keys():
            wall = figures["images per second"] / took[other]["images per second"]
            cpu = took[other]["CPU microseconds an image"] / figures["CPU microseconds an image"]
            say({**fields, "contender": name, "figure": f"times as fast as {other}, wall", "value": round(wall, 2)})
            say({**fields, "contender": name, "figure": f"times as fast as {other}, CPU", "value": round(cpu, 2)})


def say(fields: dict[str, Any]) -> None:
    click.echo(json.dumps({"benchmark": "images", **fields}))


if __name__ == "__main__":
    main()
