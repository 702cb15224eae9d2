"""Planted causes of slow training: how often `infeed measure` finds each of them.

    python benchmarks/causes.py --turns 10 --busy 2

Each turn is one measurement by the command, in this process. With `--busy N`, N other processes compute meanwhile. A
cause counts as found if the measurement reports its stage as the bottleneck. The giant shard counts as found if the
advice names it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner
from clock import Stopwatch
from harness import Result, Side, as_json, report

STEP = "training step"  # the bottleneck if the input is fast enough
SLOW = 0.01  # seconds
GIANT, OTHERS, SMALL = 40_000, 7, 800  # records of the giant shard; the other shards, and their records


@click.command()
@click.option("--cause", "names", multiple=True, help="Causes to plant. Defaults to all.")
@click.option("--turns", default=10, show_default=True, help="Measurements of each cause.")
@click.option("--seconds", default=4.0, show_default=True, help="Length of a measurement.")
@click.option("--busy", default=0, show_default=True, help="Number of other processes that compute meanwhile.")
@as_json
def main(names: tuple[str, ...], turns: int, seconds: float, busy: int, as_json: bool) -> None:
    """Count how often the command finds each planted cause."""
    with tempfile.TemporaryDirectory() as folder, other_work(busy):
        report((result(CAUSES[name], Path(folder), turns, seconds) for name in names or CAUSES), as_json)


@dataclass(frozen=True)
class Cause:
    """A pipeline with a planted cause."""

    name: str
    dataset: Callable[[Path], str]  # writes data into a folder, and returns its path or a function of this file
    stage: str  # stage that the command has to report
    arguments: tuple[str, ...] = ()  # further arguments of the command
    advice: str = ""  # text that the verdict has to contain, instead of the stage


def result(cause: Cause, folder: Path, turns: int, seconds: float) -> Result:
    dataset = cause.dataset(folder)
    named, found, watch = 0, Counter[str](), Stopwatch()
    for _ in range(turns):
        told = measured(dataset, "--seconds", str(seconds), *cause.arguments)
        found[told["bound_by"] or "none"] += 1
        named += cause.advice in told["verdict"] if cause.advice else told["bound_by"] == cause.stage
    said = ", ".join(f"{stage} {count}" for stage, count in found.most_common())
    ours = Side.of("infeed", [watch.cost / turns], also={"named": f"{named} of {turns}", "said": said})
    return Result("causes", cause.name, ours, None, turns)


def measured(*arguments: str) -> dict[str, Any]:
    from infeed.pipelines.cli import main as infeed

    done = CliRunner().invoke(infeed, ["measure", *arguments, "--json"], catch_exceptions=False)
    if done.exit_code:
        raise SystemExit(done.output)
    told: dict[str, Any] = json.loads(done.output.splitlines()[-1])
    return told


@contextlib.contextmanager
def other_work(count: int) -> Iterator[None]:
    """Run processes that compute until the context ends."""
    processes = [multiprocessing.get_context("spawn").Process(target=compute, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()


def compute() -> None:
    for _ in itertools.count():
        sum(range(10_000))


def this(function: Callable[..., object]) -> Callable[[Path], str]:
    """Return a function that ignores the folder and names a function of this file."""
    return lambda folder: f"{__file__}:{function.__name__}"


def slow_source() -> Any:
    import tensorflow as tf

    return tf.data.Dataset.range(1000).map(_waiting).map(lambda number: number + 1).batch(4)


def decoding() -> Any:
    """Return images that are decoded one by one."""
    import tensorflow as tf

    pixels = tf.cast(tf.random.uniform([256, 256, 3]) * 255, tf.uint8)
    images = tf.data.Dataset.from_tensors(tf.io.encode_jpeg(pixels)).repeat()
    return images.map(tf.io.decode_jpeg).batch(8).prefetch(2)


def generating() -> Any:
    import numpy as np
    import tensorflow as tf

    def rows() -> Iterator[Any]:
        for number in itertools.count():
            time.sleep(SLOW)
            yield np.full([4, 1], number, np.float32), np.zeros([4, 1], np.float32)

    spec = tf.TensorSpec([4, 1], tf.float32)
    return tf.data.Dataset.from_generator(rows, output_signature=(spec, spec)).prefetch(2)


def slow_batches() -> Any:
    """Return batches with an expensive computation."""
    import tensorflow as tf

    def busy(numbers: Any) -> Any:
        product = tf.random.uniform([300, 300])
        for _ in range(6):
            product = tf.linalg.matmul(product, product) / 300
        with tf.control_dependencies([product]):
            return tf.identity(numbers)

    return tf.data.Dataset.range(100_000).batch(64).map(busy).prefetch(2)


def fast_input() -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensors((tf.zeros([64, 1]), tf.zeros([64, 1]))).repeat().prefetch(2)


def augmented(features: dict[str, Any]) -> dict[str, Any]:
    """Wait for each batch: a user's slow `map_batches` function."""
    return {**features, "x": _waiting(features["x"])}


def fast_model() -> Any:
    """Return a model whose step is faster than all of these inputs."""
    return _model(1)


def slow_model() -> Any:
    """Return a model whose step is slower than all of these inputs."""
    return _model(2_000_000)


def _model(units: int) -> Any:
    import keras

    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(units), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def _waiting(value: Any) -> Any:
    import tensorflow as tf

    def wait(given: Any) -> Any:
        time.sleep(SLOW)
        return given

    return tf.ensure_shape(tf.numpy_function(wait, [value], value.dtype), value.shape)


def one_file(folder: Path) -> str:
    """Write large records into one gzip-compressed file."""
    return _written(folder / "one", [400], bytes_each=100_000, noise=1)


def small_rows(folder: Path) -> str:
    """Write small records, which are cheap to read."""
    return _written(folder / "small", [4_000], bytes_each=8, noise=1)


def giant_shard(folder: Path) -> str:
    """Write shards of which one has most of the records."""
    return _written(folder / "giant", [GIANT, *[SMALL] * OTHERS], bytes_each=1_000, noise=1_000)


def _written(folder: Path, sizes: list[int], bytes_each: int, noise: int) -> str:
    """Write gzip-compressed files of records with a number and bytes, of which `noise` are random."""
    import numpy as np
    import pyarrow as pa

    from infeed.components.dataset import records
    from infeed.components.dataset.encode import encode_examples

    random = np.random.default_rng(0)
    for place, count in enumerate(sizes):
        texts = [random.bytes(noise) + bytes(bytes_each - noise) for _ in range(count)]
        batch = pa.record_batch([pa.array(np.zeros(count, np.float32)), pa.array(texts)], ["x", "text"])
        path = str(folder / f"data-train-{place:05d}-of-{len(sizes):05d}.tfrecord.gz")
        records.write_records(path, [records.frame_records(encode_examples(batch))], gzip_level=1)
    return str(folder)


_FAST, _SLOW = (("--model", f"{__file__}:{one.__name__}") for one in (fast_model, slow_model))
CAUSES = {
    one.name: one
    for one in (
        Cause("none: a slow step", this(fast_input), STEP, _SLOW),
        Cause("a step faster than any input", this(generating), "Python generator", _FAST),
        Cause("a source that waits", this(slow_source), "map (Python)"),
        Cause("decoding", this(decoding), "map"),
        Cause("augmentation", small_rows, "map_batches", ("--map-batches", f"{__file__}:augmented")),
        Cause("a giant shard", giant_shard, "decompress", (), "data-train-00000-of-00008.tfrecord.gz"),
        Cause("gzip on one reader", one_file, "decompress"),
        Cause("a Python generator", this(generating), "Python generator"),
        Cause("a slow function of batches", this(slow_batches), "map"),
    )
}

if __name__ == "__main__":
    main()
