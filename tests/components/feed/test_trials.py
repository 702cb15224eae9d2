"""A change of the options that helps is found, and one that does not is said to be useless."""

import time
from dataclasses import replace
from functools import partial

import pytest
import tensorflow as tf

from infeed.components.dataset.input_profile import StageCost
from infeed.components.feed.build import measure_records
from infeed.components.feed.capacity import Machine
from infeed.components.feed.measure import plan_cuts, rival_cut
from infeed.components.feed.options import FeedOptions, MapFunction
from infeed.components.feed.plan import FeedSpec, plan
from infeed.components.feed.shards import ShardFile
from infeed.components.feed.stages.base import BatchFunctions
from infeed.components.feed.trials import changes_for, try_changes

pytestmark = pytest.mark.slow


def slow_parse(records):
    """Sleeps for ten milliseconds a batch, whose length no other work changes."""

    def sleep(one):
        time.sleep(0.01)
        return one

    return tf.ensure_shape(tf.numpy_function(sleep, [records], tf.string), records.shape)


def feed(tmp_path, parse=tf.identity, records=640):
    """Returns the functions of a split of two gzipped shards, and how options are planned."""
    shards = [ShardFile(str(tmp_path / f"{i}.gz"), records, 100) for i in range(2)]
    for shard in shards:
        with tf.io.TFRecordWriter(shard.path, "GZIP") as writer:
            for _ in range(records):
                writer.write(b"a" * 100)
    functions = BatchFunctions(parse, lambda one: ({"bytes": one}, tf.strings.length(one)), key="bytes")
    sizes = replace(measure_records(shards, functions), can_split=False)
    return functions, partial(plan, shards, FeedSpec(True, sizes), machine=Machine(2, 1 << 30))


def options(**given):
    streams = {"batch_size": 8, "tier": "stream", "cache_records": False, "shuffle_records": 16}
    return FeedOptions(**{**streams, **given})


def test_columns_spare_a_slow_parse(tmp_path):
    functions, replan = feed(tmp_path, slow_parse)
    given = options(readers=1)
    base = replace(rival_cut(plan_cuts(replan(given), functions)), rival=False)
    stages = [StageCost("decompress", "", 1.0, 0.1, 0.0, 1e6, 8.0, hidden=False, once=False)]
    for _ in range(3):  # other work on the machine may hide the gain
        columns, readers = try_changes(stages, base, given, replan, functions, seconds=0.5, turns=4)
        if columns.helps:
            break
    assert (columns.change, readers.change) == ("tier=columns", "readers=2")
    assert columns.helps


@pytest.mark.parametrize(
    ("stage", "given", "changes"),
    [
        ("decompress", {"readers": 1}, {"tier=columns", "readers=2"}),
        ("decompress", {"readers": 2}, {"tier=columns"}),
        ("parse", {"memory_fraction": 1e-9}, set()),  # columns do not fit
        ("shuffle", {"shuffle_records": 64}, {"tier=columns", "shuffle_records=16"}),
        ("hand-over", {}, {"batch_size=32"}),
        ("copy to GPU:0", {}, {"batch_size=32"}),
        ("gather", {"batch_size": 64}, set()),  # an epoch would have too few steps
        ("map_batches", {"map_batches": MapFunction("m:f", "numpy")}, {"map_batches.processes=2"}),
        ("map_batches", {"map_batches": MapFunction("m:f")}, set()),
        ("augment", {}, set()),
        ("", {}, set()),
    ],
)
def test_each_stage_has_its_changes(tmp_path, stage, given, changes, monkeypatch):
    monkeypatch.setattr("infeed.components.base.machine.cpus", lambda: 2)
    _, replan = feed(tmp_path)
    assert {change for change, _ in changes_for(stage, options(**given), replan)} == changes
