"""Reading a table for training: our tiers, TFX's dataset and the naive loop, in turns in one process.

    python benchmarks/feed.py --rows 80000 --columns 20

The benchmark compares CPU and wall seconds of an epoch. It also compares first epochs, which include the set-up, with
those of TFX's dataset and of `stream`. All contenders read the same gzip-compressed TFRecord files, return batches of
the same size, and shuffle at least as far as TFX's buffer. The windows of `stream` move a record as far, in standard
deviations, as TFX's buffer does; `columns` and `disk` shuffle the whole split. One `tf.function` consumes an epoch, and
does nothing with the batches.
"""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import tensorflow as tf
from clock import Cost, Stopwatch, settle
from harness import Result, Side, as_json, interleave, missing, report

from infeed.components.dataset import names, records
from infeed.components.feed.build import build, measure_records
from infeed.components.feed.capacity import Machine
from infeed.components.feed.options import FeedOptions
from infeed.components.feed.plan import FeedSpec, plan
from infeed.components.feed.shards import ShardFile, shard_files
from infeed.components.feed.stages.base import BatchFunctions

SHARDS = 4
SHUFFLE = 10_000  # TFX's default
# A buffer of n records moves a record by a geometric number of places, with standard deviation n. A window of n moves
# it by the difference of two uniform numbers, with standard deviation n / sqrt(6).
WINDOW = round(SHUFFLE * 6**0.5)
Specs = dict[str, Any]


@click.command()
@click.option("--rows", default=80_000, show_default=True, help="Rows of the table.")
@click.option("--columns", default=20, show_default=True, help="Features of the table.")
@click.option("--batch-size", "batch_sizes", default=[1024, 128], show_default=True, multiple=True)
@click.option("--turns", default=3, show_default=True, help="Turns of each contender. The table shows medians.")
@click.option("--naive/--no-naive", default=True, show_default=True, help="Run the slow naive loop.")
@as_json
def main(rows: int, columns: int, batch_sizes: tuple[int, ...], turns: int, naive: bool, as_json: bool) -> None:
    """Measure feeding a table for training."""
    report(measured(rows, columns, batch_sizes, turns, naive), as_json)


def measured(rows: int, columns: int, batch_sizes: tuple[int, ...], turns: int, naive: bool) -> Iterator[Result]:
    """Measure both tables with each batch size."""
    absent = {"tfx": Side("tfx", absent=reason)} if (reason := missing("tfx")) else {}
    left_out = absent.keys() | (set() if naive else {"naive"})
    for kind, make in {"numbers": numbers, "numbers, text and a list": mixed}.items():
        with tempfile.TemporaryDirectory() as folder:
            spec = write_table(Path(folder), make(columns), rows)
            shards = shard_files([f"{folder}/Split-train/*"])
            for batch_size in batch_sizes:
                table = Table(folder, spec, rows, batch_size, shards)
                present = {name: one for name, one in contenders(table).items() if name not in left_out}
                case = f"{rows:,} rows x {columns} {kind}, batch {batch_size}, an epoch"
                yield from compared(case, absent | take_turns(present, rows // batch_size, turns), turns)


@dataclass(frozen=True)
class Table:
    """A table on disk, and the batch size. `shards` are those of the manifest that our ExampleGen would write."""

    folder: str
    spec: Specs
    rows: int
    batch_size: int
    shards: tuple[ShardFile, ...]

    @property
    def pattern(self) -> str:
        return f"{self.folder}/Split-train/*"


Makers = Mapping[str, tuple[Any, Callable[[np.random.Generator], list[Any]]]]


def numbers(columns: int) -> Makers:
    """Return makers of integers and floats in turn, one value per row."""
    whole = (tf.io.FixedLenFeature([1], tf.int64), lambda random: [int(random.integers(0, 10_000))])
    fraction = (tf.io.FixedLenFeature([1], tf.float32), lambda random: [float(random.normal())])
    return {f"column_{number:02}": (whole, fraction)[number % 2] for number in range(columns)}


def mixed(columns: int) -> Makers:
    """Return makers as in `numbers`, with text in every fourth feature, and lists of 0 to 8 numbers in the last."""
    text = (tf.io.FixedLenFeature([1], tf.string), lambda random: [b"label %d" % random.integers(0, 1_000)])
    many = tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
    made = {**numbers(columns), **{f"column_{number:02}": text for number in range(0, columns, 4)}}
    listed = (many, lambda random: random.integers(0, 100, random.integers(0, 9)).tolist())
    return {**made, f"column_{columns - 1:02}": listed}


def write_table(folder: Path, makers: Makers, rows: int) -> Specs:
    """Write the table as four gzip-compressed shards of an Examples artifact, and return its parsing spec."""
    random = np.random.default_rng(0)
    for shard in range(SHARDS):
        path = f"{folder}/Split-train/{names.shard_name(shard, SHARDS, gzip=True)}"
        payloads = [
            serialize({name: make(random) for name, (_, make) in makers.items()}) for _ in range(rows // SHARDS)
        ]
        records.write_records(path, [records.frame_records(pa.array(payloads, pa.large_binary()))], gzip_level=1)
    return {name: spec for name, (spec, _) in makers.items()}


def serialize(values: Mapping[str, list[Any]]) -> bytes:
    def feature(some: list[Any]) -> tf.train.Feature:
        if some and isinstance(some[0], bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=some))
        if some and isinstance(some[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=some))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=some))

    features = tf.train.Features(feature={name: feature(some) for name, some in values.items()})
    return bytes(tf.train.Example(features=features).SerializeToString())


Epoch = Callable[[int], None]  # consumes this many batches


def contenders(table: Table) -> dict[str, Callable[[], Epoch]]:
    """Return, by name, functions that set a contender up and return its epochs. Only the first epoch counts set-up."""
    cache = tempfile.mkdtemp(dir=table.folder)
    return {
        "tfx": lambda: consume(theirs(table)),
        "stream": lambda: consume(ours(table, tier="stream", cache_records=False, shuffle_records=WINDOW)),
        "columns": lambda: consume(ours(table, tier="columns")),
        "disk": lambda: consume(ours(table, tier="disk", cache_dir=cache)),
        "naive": lambda: consume(loop(table)),
    }


def ours(table: Table, **options: Any) -> tf.data.Dataset:
    """Return the batches of the feed engine, without a transform graph."""
    stages = BatchFunctions(lambda some: tf.io.parse_example(some, table.spec), lambda features: features, key="parse")
    feed = FeedOptions(batch_size=table.batch_size, **options)
    planned = plan(
        table.shards,
        FeedSpec(True, measure_records(table.shards, stages)),
        feed,
        Machine.here(cache_dir=feed.cache_dir),
    )
    return build(planned, stages)


def theirs(table: Table) -> tf.data.Dataset:
    """Return the batches that TFX's Trainer gives a `run_fn`: `FnArgs.data_accessor.tf_dataset_factory`."""
    from tensorflow_transform.tf_metadata import schema_utils
    from tfx.components.util import tfxio_utils
    from tfx.types import standard_artifacts
    from tfx_bsl.public import tfxio

    ragged = {name: one for name, one in table.spec.items() if isinstance(one, tf.io.RaggedFeature)}
    dense = {name: one for name, one in table.spec.items() if name not in ragged}
    schema = schema_utils.schema_from_feature_spec(dense)
    for name, one in ragged.items():
        schema.MergeFrom(schema_utils.schema_from_feature_spec({name: tf.io.VarLenFeature(one.dtype)}))
    artifact = standard_artifacts.Examples()
    artifact.uri, artifact.split_names = table.folder, '["train"]'
    factory = tfxio_utils.get_tf_dataset_factory_from_artifact([artifact], [])
    options = tfxio.TensorFlowDatasetOptions(batch_size=table.batch_size, shuffle=True, shuffle_buffer_size=SHUFFLE)
    return factory([table.pattern], options, schema)


def loop(table: Table) -> tf.data.Dataset:
    """Return the batches of a typical tutorial, which reads one file and one record after the other."""
    paths = tf.data.Dataset.list_files(table.pattern, shuffle=False)
    dataset = tf.data.TFRecordDataset(paths, compression_type="GZIP").shuffle(SHUFFLE)
    parsed = dataset.map(lambda record: tf.io.parse_single_example(record, table.spec))
    if any(isinstance(one, tf.io.RaggedFeature) for one in table.spec.values()):
        return parsed.ragged_batch(table.batch_size, drop_remainder=True).repeat()
    return parsed.batch(table.batch_size, drop_remainder=True).repeat()


def consume(dataset: tf.data.Dataset) -> Epoch:
    """Return a function that takes batches inside one `tf.function`, as training at no cost would."""
    iterator = iter(dataset)

    @tf.function
    def take(count: tf.Tensor) -> None:
        for _ in tf.range(count):
            next(iterator)

    return lambda count: take(tf.constant(count))


def take_turns(made: dict[str, Callable[[], Epoch]], steps: int, turns: int) -> dict[str, Side]:
    """Measure the first epoch of each contender with its set-up, and then later epochs in turns."""
    sides, epochs = {}, {}
    for name, make in made.items():
        watch = Stopwatch()
        epochs[name] = make()
        epochs[name](steps)
        sides[first(name)] = Side.of(first(name), [watch.cost])
        settle()
    later = interleave({name: partial(one_turn, epoch, steps) for name, epoch in epochs.items()}, turns)
    return {**sides, **{name: Side.of(name, costs) for name, costs in later.items()}}


def one_turn(epoch: Epoch, steps: int) -> Cost:
    """Return the cost of an epoch, averaged over at least half a second.

    Buffers are full at the start. CPU time counts until they are full again, so that it covers exactly as many batches
    as were taken, and no contender works during another's turn.
    """
    watch, count = Stopwatch(), 0
    while not count or watch.wall < 0.5:
        epoch(steps)
        count += 1
    wall = watch.wall
    settle()
    return Cost(wall, watch.cpu) / count


def first(name: str) -> str:
    return f"{name}, first epoch"


def compared(case: str, sides: dict[str, Side], turns: int) -> Iterator[Result]:
    """Yield the results of our tiers beside the others, and of the first epochs, which run once."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    sides["columns"] = replace(sides["columns"], also={"peak memory of the process so far, MB": peak})
    pairs = [(name, other, turns) for other in ("tfx", "naive") for name in ("stream", "columns", "disk")]
    firsts = (("stream", "tfx"), ("columns", "stream"))
    pairs += [(first(name), first(other), 1) for name, other in firsts]
    for name, other, count in pairs:
        if name in sides and other in sides:
            yield Result("feed", case, sides[name], sides[other], count)


if __name__ == "__main__":
    main()
