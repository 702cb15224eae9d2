"""Pictures of 32 x 32 pixels, fully augmented, in batches of 128: the feed engine beside six other loaders.

    python benchmarks/images.py

Each contender is one process with two workers or threads of its own, in an environment of its own that is made from
PyPI first (about 7 GB, most of it torch with its CUDA libraries). They take turns; compared are the CPU time an image,
that of worker processes included, and the wall time. What cannot be installed or run is named with its error.
`images/protocol.py` says what is measured, `docs/images.md` what each contender does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import click
import numpy as np
import pyarrow as pa
import tensorflow as tf
from clock import Cost, median
from harness import Result, Side, as_json, interleave, report
from sklearn.datasets import load_sample_images

from infeed.components.dataset import names, records

SCRIPTS = Path(__file__).parent / "images"
SHARDS = 8
SIDE = 32
OPENCV = "opencv-python-headless"
Figures = dict[str, float]


@dataclass(frozen=True)
class Contender:
    """A script, and the packages it needs from PyPI; ours need none beyond those that this one has."""

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
@click.option("--turns", default=5, show_default=True, help="Turns of each contender, of which the medians are taken.")
@click.option("--seconds", default=3.0, show_default=True, help="Length of a turn.")
@click.option("--workers", default=os.cpu_count() or 1, show_default=True, help="Workers or threads of each contender.")
@click.option("--only", multiple=True, help="Names of the contenders that run; all of them where not given.")
@click.option("--environments", default="~/.cache/tfx-infeed-benchmarks", show_default=True, type=Path)
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
    found = [prepared(one, environments.expanduser(), install) for one in chosen]
    options = [f"--batch={batch}", f"--workers={workers}"]
    report(measured(found, images, kinds, options, turns, seconds), as_json)


@dataclass(frozen=True)
class Prepared:
    """A contender with its Python and what that holds, or why there is none."""

    contender: Contender
    python: str = ""
    versions: str = ""
    absent: str = ""

    @property
    def side(self) -> Side:
        """Before it has run."""
        return Side(self.contender.name, also={"versions": self.versions} if self.versions else {}, absent=self.absent)


def prepared(contender: Contender, folder: Path, install: bool) -> Prepared:
    """A contender, after what it needs is there."""
    if not contender.packages:
        return Prepared(contender, sys.executable)
    try:
        return environment(contender, folder, install)
    except CannotRunError as error:
        return Prepared(contender, absent=str(error))


def environment(contender: Contender, folder: Path, install: bool) -> Prepared:
    """An environment with the contender's packages, made at the first time.

    Raises:
      CannotRunError: it is not there and cannot or must not be made.
    """
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}") or "uv"
    path = folder / Path(contender.script).stem
    python = str(path / "bin" / "python")
    if not (path / "whole").exists():
        if not install:
            raise CannotRunError("not installed")
        command(uv, "venv", "--clear", "--python", sys.executable, str(path))
        command(uv, "pip", "install", "--python", python, "numpy", *contender.packages)
        (path / "whole").touch()
    frozen = command(uv, "pip", "freeze", "--python", python).splitlines()
    versions = [line for line in frozen if line.partition("==")[0] in contender.packages]
    return Prepared(contender, python, ", ".join(versions))


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

    def turn(self, seconds: float) -> Cost:
        """Lets it work for so long; what an image took."""
        assert self.running.stdin is not None
        print(seconds, file=self.running.stdin, flush=True)
        figures = self.answer()
        return Cost(figures["wall"], figures["cpu"]) / figures["images"]


def measured(
    found: Sequence[Prepared],
    images: int,
    kinds: Sequence[str],
    options: Sequence[str],
    turns: int,
    seconds: float,
) -> Iterator[Result]:
    """Each kind of picture, in all contenders."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), images)
        for kind in kinds:
            arguments = [f"--folder={folder}", f"--scratch={folder}", f"--kind={kind}", *options]
            sides = {one.contender.name: one.side for one in found}
            with started(found, arguments, sides) as processes:
                runs = {one.contender.name: partial(one.turn, seconds) for one in processes}
                for name, costs in interleave(runs, turns).items():
                    a_second = 1 / median(costs).wall
                    sides[name] = Side.of(name, costs, also={**sides[name].also, "images a second": a_second})
            yield from compared(f"{kind}, {images:,} pictures, a picture", sides, turns)


@contextmanager
def started(found: Sequence[Prepared], arguments: Sequence[str], sides: dict[str, Side]) -> Iterator[list[Process]]:
    """All contenders that can be run, each ready and at rest; why others cannot is written into `sides`.

    Raises:
      CannotRunError: one of ours cannot be run, which is no other's fault.
    """
    processes = []
    for one in found:
        name = one.contender.name
        try:
            processes += [start(one, arguments)] if one.python else []
        except CannotRunError as error:
            if not one.contender.packages:
                raise
            sides[name] = replace(sides[name], absent=f"cannot be run: {error}")
    yield processes
    for process in processes:
        process.running.communicate()
        process.errors.close()


def start(one: Prepared, arguments: Sequence[str]) -> Process:
    """A contender that has made its first batch.

    Raises:
      CannotRunError: it did not come so far.
    """
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the process is
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
    paths = [str(SCRIPTS.parent), *filter(None, [os.environ.get("PYTHONPATH")])]  # there lies clock.py
    words = [one.python, str(SCRIPTS / one.contender.script), *arguments]
    running = subprocess.Popen(words, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, **pipes)
    process = Process(one.contender, running, errors)
    process.answer()
    return process


def compared(case: str, sides: dict[str, Side], turns: int) -> Iterator[Result]:
    """Each of ours beside each of the others; those that are not installed are one side together."""
    ours = [side for name, side in sides.items() if name.startswith("ours")]
    others = [side for side in sides.values() if side not in ours]
    reasons = dict.fromkeys(side.absent for side in others)
    together = [[side for side in others if side.absent == reason] for reason in reasons if reason]
    absent = [Side(", ".join(side.name for side in some), absent=some[0].absent) for some in together]
    beside: list[Side | None] = [*(side for side in others if not side.absent), *absent]
    for own in ours:
        for other in beside or [None]:
            yield Result("images", case, own, other, turns)


if __name__ == "__main__":
    main()
