"""The cause of a slow pipeline is planted, and the measurement names its stage."""

import itertools
import random
import time
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from infeed.components.feed.build import measure_records
from infeed.components.feed.capacity import Machine
from infeed.components.feed.measure import COPY, HAND_OVER, Cut, dataset_cuts, measure, plan_cuts, rival_cut
from infeed.components.feed.options import FeedOptions
from infeed.components.feed.plan import FeedSpec, plan
from infeed.components.feed.shards import ShardFile
from infeed.components.feed.stages.base import BatchFunctions

pytestmark = [pytest.mark.slow, pytest.mark.stack]

SECONDS, OF_A_FEED = 2.0, 4.0  # of a measurement. A feed has more stages, and takes longer to start
SLEEP = 0.01  # far above what other stages take for a batch, on any machine
FUNCTIONS = BatchFunctions(
    lambda records: records,
    lambda records: ({"bytes": records}, tf.strings.length(records, unit="BYTE")),
    key="bytes",
)
SLOW = f"""
import time
import tensorflow as tf

def slow(features):
    def sleep(value):
        time.sleep({SLEEP})
        return value
    value = features["bytes"]
    return {{"bytes": tf.ensure_shape(tf.numpy_function(sleep, [value], value.dtype), value.shape)}}
"""


def sleep(value):
    time.sleep(SLEEP)
    return value


def cuts(path, *, gzip=False, records=512, size=100, tier="stream", **options):
    with tf.io.TFRecordWriter(str(path), "GZIP" if gzip else None) as writer:
        for _ in range(records):
            writer.write(b"a" * size)
    shards = [ShardFile(str(path), records, 100)]
    streams = {"cache_records": False, "shuffle_records": 16} if tier == "stream" else {}
    sizes = replace(measure_records(shards, FUNCTIONS), can_split=False)
    feed = FeedOptions(batch_size=8, tier=tier, **streams, **options)
    planned = plan(shards, FeedSpec(True, sizes), feed, Machine(2, 1 << 30))
    return plan_cuts(planned, FUNCTIONS)


def measured(cuts, planted, seconds=SECONDS):
    """Measure up to six times, as long as other work on the machine hides which stage is slow."""
    for _ in range(6):
        found = measure(cuts, seconds=seconds)
        if found.bound_by == planted:
            break
    assert found.bound_by == planted
    return found


@pytest.mark.alone
def test_a_slow_map_of_the_feed_is_named_in_each_tier(tmp_path):
    (tmp_path / "mine.py").write_text(SLOW)
    for tier in ("stream", "columns"):
        slow = cuts(tmp_path / "part", tier=tier, map_batches=f"{tmp_path}/mine.py:slow")
        found = measured(slow, "map_batches", OF_A_FEED)
    assert [one.name for one in found.stages if one.once] == ["read", "records", "batch", "parse", "transform"]


@pytest.mark.alone
def test_gzip_on_one_reader_is_named(tmp_path):
    measured(cuts(tmp_path / "part.gz", gzip=True, records=32, size=100_000), "decompress", OF_A_FEED)


def test_a_slow_map_of_a_user_is_named():
    records = tf.data.Dataset.range(1000).shuffle(10)
    mapped = records.map(lambda x: tf.ensure_shape(tf.numpy_function(sleep, [x], tf.int64), []))
    found = measured(dataset_cuts(mapped.batch(4).prefetch(2)), "map (Python)")
    names = ["range", "shuffle", "map (Python)", "batch", "prefetch", HAND_OVER]
    assert [one.name for one in found.stages if not one.beside] == names


def test_a_python_generator_is_named():
    def rows():
        for number in itertools.count():
            yield sleep(np.int64(number))

    made = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec([], tf.int64))
    measured(dataset_cuts(made.map(lambda x: {"x": x}).batch(4)), "Python generator")


@pytest.mark.alone
def test_a_function_of_batches_is_named_though_the_loop_takes_longer_for_a_row_than_the_function():
    def slow(x):  # about 50 µs a row: the loop takes 100 and more, a chunk of the measurement below 10
        return tf.ensure_shape(tf.numpy_function(lambda one: time.sleep(0.003) or one, [x], x.dtype), x.shape)

    batches = tf.data.Dataset.range(100_000).batch(64).map(slow)
    measured(dataset_cuts(batches.prefetch(2)), "map (Python)")


def test_examples_are_counted_before_and_after_a_batch():
    made = dataset_cuts(tf.data.Dataset.range(8).batch(4).map(lambda x: (x, tf.ones([2, 2]), x)).unbatch().batch(2))
    counts = [one.stages[0].bytes_per_example for one in (measure([cut], seconds=0.1, turns=2) for cut in made[:3])]
    assert counts == [8, 8, 20]  # of four rows, the map makes 80 bytes


def test_a_cost_below_its_spread_is_hidden_and_nothing_sets_the_pace():
    drawn, seen = random.Random(0), [0.0]

    def now():
        seen[0] += drawn.uniform(1, 3)
        return seen[0], 0.0

    same = tf.data.Dataset.range(4).repeat()
    first = Cut("first", "", same, is_batched=False, is_first=True)
    found = measure([first, Cut("second", "", same, is_batched=False)], seconds=100, turns=6, now=now)
    assert found.stages[1].hidden


def test_a_slow_cut_before_rows_are_kept_takes_no_longer_than_the_others():
    made = {"slow": 0, "fast": 0}

    def counted(name):
        def count(x):
            made[name] += 1
            return x

        rows = tf.data.Dataset.range(1_000).repeat()
        return rows.map(lambda x: tf.ensure_shape(tf.numpy_function(count, [x], tf.int64), []))

    def now():  # an example of the slow cut takes a hundred times as long
        return made["slow"] * 1e-1 + made["fast"] * 1e-3, 0.0

    cuts = [Cut(name, "", counted(name), is_batched=False, is_first=True) for name in ("slow", "fast")]
    measure([replace(cuts[0], once=True), cuts[1]], seconds=10, now=now)
    assert now()[0] < 20


def test_another_pipeline_is_measured_beside_and_never_sets_the_pace():
    own = tf.data.Dataset.range(1000).batch(10)
    other = own.map(lambda x: tf.ensure_shape(tf.numpy_function(sleep, [x], tf.int64), [None]))
    found = measure([*dataset_cuts(own), rival_cut(dataset_cuts(other))], seconds=SECONDS)
    assert found.stages[-1].examples_per_second < found.stages[-2].examples_per_second


def test_the_copy_to_the_device_is_measured_and_on_the_host_training_does_without():
    large = tf.data.Dataset.from_tensors(tf.zeros([8, 1 << 20])).repeat()
    copy = measure(dataset_cuts(large), seconds=0.5, turns=3).stages[-1]
    assert copy.name.startswith(COPY)
    assert copy.beside == (not tf.config.list_logical_devices("GPU"))
    assert copy.microseconds > 50  # 4 MB an example: at most 80 GB a second
    text = tf.data.Dataset.from_tensors(["a", "b"]).repeat()
    assert dataset_cuts(text)[-1].name == HAND_OVER


@pytest.mark.alone
def test_a_shuffle_needs_the_memory_of_its_window():
    rows = tf.data.Dataset.range(10_000).map(lambda x: tf.fill([10_000], tf.cast(x, tf.float32))).repeat()
    found = measure(dataset_cuts(rows.shuffle(4500).batch(1)), seconds=0.5, turns=2)
    (memory,) = (one.memory_bytes for one in found.stages if one.name == "shuffle")
    assert memory is None or 90e6 < memory < 540e6  # 180 MB; what earlier tests have freed is used first
