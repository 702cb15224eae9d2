"""Overlap of input and training: a step that takes as long as its input, with naive input, our feed and constant data.

    python benchmarks/overlap.py --records 4000 --epochs 3
    python benchmarks/overlap.py --work decode

The records are PNG images in gzip-compressed TFRecords. The step sleeps as long as the naive input takes for a batch,
which is measured first. This emulates an accelerator that computes while the CPU is idle. By default, most of the
input's work sleeps too, equally on both sides, so that the benchmark measures concurrency rather than available CPU.
With `--work decode`, the input does not sleep and the images are larger, so that the CPU decodes.

The naive input processes single records and then batches them. TensorFlow's own optimizations are off for it, because
they would add the missing prefetch. Our side is the engine's `stream` tier, which also reads and decodes all records in
each epoch.

The benchmark compares CPU and wall seconds of an epoch with those of the naive input and of constant data, over the
epochs of all turns. It also reports the share of an epoch that each waited, and the cost of the meter: a loop over
constant batches with and without it.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import click
import numpy as np
import tensorflow as tf
from clock import Cost, Stopwatch
from feed import serialize
from harness import Result, Side, as_json, interleave, report

from infeed.components.feed.build import build, measure_records
from infeed.components.feed.capacity import Machine
from infeed.components.feed.meter import Meter
from infeed.components.feed.options import FeedOptions
from infeed.components.feed.plan import FeedSpec, plan
from infeed.components.feed.shards import ShardFile
from infeed.components.feed.stages.base import BatchFunctions

SHARDS, BATCH = 4, 64
SPEC = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
METER_STEPS = 20_000


@dataclass(frozen=True)
class Work:
    """Work of the input for a record: pixels per side of the image to decode, and seconds to sleep."""

    side: int
    sleep: float

    def decode(self, image: tf.Tensor) -> tf.Tensor:
        """Decode one PNG: string [] -> uint8 [side, side, 3]."""
        return tf.ensure_shape(tf.io.decode_png(image, channels=3), [self.side, self.side, 3])

    def wait_for(self, images: tf.Tensor) -> tf.Tensor:
        """Return images [..., height, width, channels] after the emulated work on their records."""
        if not self.sleep:
            return images
        records = tf.cast(tf.reduce_prod(tf.shape(images)[:-3]), tf.float32)
        with tf.control_dependencies([tf.numpy_function(sleep, [records * self.sleep], [])]):
            return tf.identity(images)


WORK = {"sleep": Work(side=16, sleep=0.0006), "decode": Work(side=64, sleep=0.0)}


@dataclass(frozen=True)
class Epoch:
    """Cost of an epoch, and the seconds that the step waited."""

    cost: Cost
    waited: float


@click.command()
@click.option("--records", default=4_000, show_default=True, help="Number of images.")
@click.option("--epochs", default=3, show_default=True, help="Epochs per turn. The first of each turn does not count.")
@click.option("--turns", default=2, show_default=True, help="Turns of each contender.")
@click.option("--work", type=click.Choice(list(WORK)), default="sleep", show_default=True, help="Work of the input.")
@as_json
def main(records: int, epochs: int, turns: int, work: str, as_json: bool) -> None:
    """Measure the share of the input's time that overlaps with the step."""
    with tempfile.TemporaryDirectory() as folder:
        shards = write_shards(Path(folder), records, WORK[work].side)
        steps = records // BATCH
        naive, ours = naive_input(shards, WORK[work]), our_input(shards, WORK[work])
        constant = tf.data.Dataset.from_tensors(next(iter(ours))).repeat()
        run_epoch(iter(naive), steps, 0.0)
        step_seconds = run_epoch(iter(naive), steps, 0.0).cost.wall / steps
        inputs = {"naive": naive, "infeed": ours, "constant data": constant}
        turn = partial(one_turn, epochs=epochs, steps=steps, step_seconds=step_seconds)
        took = interleave({name: partial(turn, dataset) for name, dataset in inputs.items()}, turns)
    sides = {name: side(name, list(chain(*some))) for name, some in took.items()}
    sides["infeed"] = replace(sides["infeed"], also={**sides["infeed"].also, **meter_costs(step_seconds)})
    case = f"{work}, {records:,} images, an epoch"
    report(
        (Result("overlap", case, sides["infeed"], sides[name], turns) for name in ("naive", "constant data")), as_json
    )


def one_turn(dataset: tf.data.Dataset, epochs: int, steps: int, step_seconds: float) -> list[Epoch]:
    """Return all epochs except the first."""
    iterator = iter(dataset)
    return [run_epoch(iterator, steps, step_seconds) for _ in range(epochs)][1:]


def side(name: str, epochs: list[Epoch]) -> Side:
    """Return the medians over epochs, and the share of waiting."""
    made = Side.of(name, (epoch.cost for epoch in epochs))
    waited = statistics.median(epoch.waited for epoch in epochs)
    share = statistics.median(epoch.waited / epoch.cost.wall for epoch in epochs)
    return replace(made, also={"seconds waited an epoch": waited, "share of the epoch waited": share})


def write_shards(folder: Path, records: int, side: int) -> list[ShardFile]:
    """Write images of noise over a gradient, which are as expensive to decode as photographs."""
    random, shards = np.random.default_rng(0), []
    gradient = np.linspace(0, 200, side)[:, None, None]
    for shard in range(SHARDS):
        path = str(folder / f"part-{shard}.gz")
        with tf.io.TFRecordWriter(path, "GZIP") as writer:
            for label in range(records // SHARDS):
                pixels = (gradient + random.integers(0, 50, [side, side, 3])).astype(np.uint8)
                writer.write(serialize({"image": [tf.io.encode_png(pixels).numpy()], "label": [label]}))
        shards.append(ShardFile(path, records // SHARDS, Path(path).stat().st_size))
    return shards


def naive_input(shards: list[ShardFile], work: Work) -> tf.data.Dataset:
    """Return the naive input, which processes single records, without parallelism and prefetch."""

    def one(record: tf.Tensor) -> Any:
        parsed = tf.io.parse_single_example(record, SPEC)
        image = work.wait_for(work.decode(parsed["image"]))
        return tf.cast(image, tf.float32) / 255.0, parsed["label"]

    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    dataset = tf.data.TFRecordDataset([shard.path for shard in shards], "GZIP").shuffle(1_000, seed=0).repeat()
    return dataset.map(one).batch(BATCH, drop_remainder=True).with_options(options)


def our_input(shards: list[ShardFile], work: Work) -> tf.data.Dataset:
    """Return the input of the engine, which keeps no records between epochs."""

    def transform(parsed: Any) -> Any:
        images = tf.map_fn(work.decode, parsed["image"], fn_output_signature=tf.uint8)
        return {"image": work.wait_for(images)}, parsed["label"]

    def normalise(batch: Any) -> Any:
        return tf.cast(batch[0]["image"], tf.float32) / 255.0, batch[1]

    stages = BatchFunctions(lambda records: tf.io.parse_example(records, SPEC), transform, normalise=normalise)
    options = FeedOptions(batch_size=BATCH, tier="stream", cache_records=False, shuffle_records=1_000)
    spec = FeedSpec(training=True, sizes=measure_records(shards, stages), normalization="divides by 255")
    return build(plan(shards, spec, options, Machine.here()), stages)


def run_epoch(iterator: Any, steps: int, step_seconds: float) -> Epoch:
    """Run an epoch with a step that sleeps."""
    meter = Meter()
    loop = looping(meter.next, lambda: tf.numpy_function(sleep, [step_seconds], []))
    watch = Stopwatch()
    loop(iterator, steps)
    return Epoch(watch.cost, sum(meter.seconds))


def sleep(seconds: np.float32) -> None:
    """Sleep, to emulate work that does not use the CPU."""
    time.sleep(float(seconds))


def looping(take: Callable[[Any], Any], step: Callable[[], Any]) -> Callable[[Any, int], None]:
    """Return a graph of `steps` steps, each of which waits for its batch."""

    @tf.function
    def loop(iterator: Any, steps: tf.Tensor) -> None:
        for _ in tf.range(steps):
            tf.autograph.experimental.set_loop_options(parallel_iterations=1)  # each step waits for the previous one
            batch = take(iterator)
            with tf.control_dependencies(tf.nest.flatten(batch)):
                step()

    return lambda iterator, steps: loop(iterator, tf.constant(steps))


def meter_costs(step_seconds: float) -> dict[str, float]:
    """Return the cost that the meter adds to an empty step: the fastest of five turns with and without it."""
    iterator = iter(tf.data.Dataset.from_tensors(tf.zeros([8])).repeat())
    loops = {"with": looping(Meter().next, tf.no_op), "without": looping(next, tf.no_op)}
    runs = {name: partial(seconds_of, loop, iterator) for name, loop in loops.items()}
    interleave(runs, 1)  # traces the graphs before measuring
    quickest = {name: min(turns) for name, turns in interleave(runs, 5).items()}
    added = (quickest["with"] - quickest["without"]) / METER_STEPS
    return {"microseconds of the meter a step": added * 1e6, "share of the meter in this step": added / step_seconds}


def seconds_of(loop: Callable[[Any, int], None], iterator: Any) -> float:
    started = time.perf_counter()
    loop(iterator, METER_STEPS)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
