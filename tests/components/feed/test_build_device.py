"""The tier `device` gives the batches of `columns`: in one order, from any step, to every worker, by any shares."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from infeed.components.feed.build import build, measure_records
from infeed.components.feed.capacity import Machine
from infeed.components.feed.options import FeedOptions, WorkerContext
from infeed.components.feed.plan import FeedSpec, plan
from infeed.components.feed.shards import ShardFile
from infeed.components.feed.stages.base import BatchFunctions

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

RECORDS, BATCH, EPOCHS = 46, 4, 3


def transform(values):
    """float32 [batch, 5], the first is the number of the row -> numbers of several types and shapes, and a label."""
    row = tf.cast(values[:, 0], tf.int64)
    features = {
        "one": values[:, 1],
        "pair": values[:, 2:4],
        "row": row[:, tf.newaxis],
        "small": tf.cast(row, tf.int32),
        "flag": row % 3 == 0,
        "picture": tf.cast(tf.reshape(tf.tile(row[:, tf.newaxis], [1, 4]), [-1, 2, 2, 1]), tf.uint8),
    }
    return features, row % 2


FUNCTIONS = BatchFunctions(lambda records: tf.ensure_shape(tf.io.decode_raw(records, tf.float32), [None, 5]), transform)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("numbers") / "part-0")
    rows = np.random.default_rng(0).random((RECORDS, 5), np.float32)
    rows[:, 0] = range(RECORDS)
    with tf.io.TFRecordWriter(path) as writer:
        for row in rows:
            writer.write(row.tobytes())
    return [ShardFile(path, RECORDS, 100)]


def batches(shards, tier, *, class_shares=None, **context):
    devices = ("/device:CPU:0",) if tier == "device" else ()
    spec = FeedSpec(True, measure_records(shards, FUNCTIONS), devices=devices, class_names=("even", "odd"))
    options = FeedOptions(batch_size=BATCH, tier=tier, class_shares=class_shares or {})
    return build(plan(shards, spec, options, Machine(2, 1 << 30)), FUNCTIONS, **context)


ALL, SHARES = {}, {"even": 0.25, "odd": 0.75}


@pytest.mark.parametrize(  # in the image every two of the values meet
    ("start_step", "workers", "class_shares"),
    [
        (0, WorkerContext(), ALL),
        (0, WorkerContext(0, 2), SHARES),
        pytest.param(0, WorkerContext(1, 2), SHARES, marks=pytest.mark.image),
        (5, WorkerContext(), SHARES),
        pytest.param(5, WorkerContext(0, 2), ALL, marks=pytest.mark.image),
        (5, WorkerContext(1, 2), ALL),
        pytest.param(27, WorkerContext(), ALL, marks=pytest.mark.image),
        pytest.param(27, WorkerContext(0, 2), ALL, marks=pytest.mark.image),
        (27, WorkerContext(1, 2), SHARES),
    ],
)
def test_a_step_gathers_on_its_device_what_the_host_would_hand_over(shards, start_step, workers, class_shares):
    told = {"workers": workers, "start_step": start_step, "class_shares": class_shares}
    placed, held = (batches(shards, tier, **told) for tier in ("device", "columns"))
    assert placed.element_spec == held.element_spec
    take = tf.function(placed.take)
    rows = itertools.chain.from_iterable(call.numbers for call in placed.handed(3))
    steps = RECORDS // BATCH * EPOCHS
    for ours, theirs in itertools.islice(zip(map(take, rows), held, strict=False), steps):
        for one, other in zip(tf.nest.flatten(ours), tf.nest.flatten(theirs), strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
