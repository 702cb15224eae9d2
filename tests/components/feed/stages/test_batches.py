"""Single stages; whole pipelines are built in `test_build.py`."""

import dataclasses

import pytest
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import SINGLE_WORKER, GlobalBatch, MapFunction, WorkerContext
from infeed.components.feed.shards import ShardFile
from infeed.components.feed.stages import batches
from infeed.components.feed.stages.base import BatchFunctions, BuildContext

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

FUNCTIONS = BatchFunctions(
    parse=lambda records: tf.strings.to_number(records, tf.int64),
    transform=lambda numbers: ({"number": numbers}, numbers % 2),
    augment=lambda batch, step, workers: ({"number": batch[0]["number"] + 100 * step}, batch[1]),
    normalise=lambda batch: ({"number": -batch[0]["number"]}, batch[1]),
)
SHARDS = (ShardFile("part-0", 10, 100),)
CONTEXT = BuildContext(SHARDS, GlobalBatch(4), True, FUNCTIONS, SINGLE_WORKER, start_step=0)


def blocks():
    return tf.data.Dataset.range(10).map(tf.strings.as_string).batch(3)


def labeled():
    return tf.data.Dataset.range(10).map(lambda number: ({"number": number}, number % 2)).batch(4)


def numbers(made):
    return [features["number"].numpy().tolist() for features, *_ in made]


def test_records_are_batched_across_blocks_and_the_last_short_batch_is_kept_or_dropped():
    kept = batches.BatchRecords(4, "").apply(blocks(), dataclasses.replace(CONTEXT, training=False))
    assert [len(batch) for batch in kept] == [4, 4, 2]
    dropped = batches.BatchRecords(4, "", drop_remainder=True).apply(blocks().repeat(), CONTEXT)
    assert dropped.cardinality() == tf.data.INFINITE_CARDINALITY
    assert [len(batch) for batch in dropped.take(5)] == [4] * 5


def test_a_worker_with_fewer_records_evaluates_an_empty_batch_more():
    two = WorkerContext(0, 2)  # of nine records: four and five
    context = dataclasses.replace(
        CONTEXT, shards=(ShardFile("part-0", 9, 100),), training=False, batch=GlobalBatch(4, workers=two), readers=two
    )
    of_four = tf.data.Dataset.range(4).map(tf.strings.as_string).batch(4)
    assert [len(batch) for batch in batches.BatchRecords(4, "").apply(of_four, context)] == [2, 2, 0]


def test_records_are_parsed_and_transformed_batch_by_batch():
    parsed = batches.ParseExamples().apply(blocks(), CONTEXT)
    assert numbers(batches.TransformFeatures().apply(parsed, CONTEXT)) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]


def test_what_was_made_in_one_call_is_split_into_batches():
    two = tf.data.Dataset.range(8).map(lambda number: ({"number": number}, number)).batch(8, drop_remainder=True)
    assert numbers(batches.SplitBatches(2, 4).apply(two, CONTEXT)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_augmentation_is_told_the_number_of_the_step():
    made = batches.AugmentImages("adds").apply(labeled(), dataclasses.replace(CONTEXT, start_step=7))
    assert numbers(made) == [[700, 701, 702, 703], [804, 805, 806, 807], [908, 909]]


def test_normalising_is_done_to_whole_batches():
    assert numbers(batches.NormaliseImages("negates").apply(labeled(), CONTEXT))[0] == [0, -1, -2, -3]


def test_the_last_short_batch_is_padded_with_rows_of_weight_0():
    *_, (features, label, weight) = batches.PadBatches(4).apply(labeled(), CONTEXT)
    assert features["number"].numpy().tolist() == [8, 9, 0, 0]
    assert label.numpy().tolist() == [0, 1, 0, 0]
    assert weight.numpy().tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("feature", [tf.constant(["a", "b"]), tf.RaggedTensor.from_row_lengths([1, 2, 3], [2, 1])])
def test_what_has_no_shape_for_a_device_is_not_padded(feature):
    given = tf.data.Dataset.from_tensors(({"words": feature}, tf.constant([0, 1])))
    with pytest.raises(InfeedError, match="feature 'words'"):
        batches.PadBatches(4).apply(given, CONTEXT)


def test_batches_are_handed_on_as_they_are():
    for stage in (batches.Prefetch(), batches.PrefetchToDevice(("GPU:0",)), batches.CallInputFunction("input.py:f")):
        assert numbers(stage.apply(labeled(), CONTEXT)) == numbers(labeled())


def test_the_words_name_devices_and_functions():
    assert batches.PrefetchToDevice(("GPU:0",)).does == "copies the next batch to GPU:0 while the step runs"
    assert batches.PrefetchToDevice(("GPU:0", "GPU:1")).does == (
        "distributes the next batch to GPU:0, GPU:1 while the step runs"
    )
    assert batches.CallInputFunction("input.py:f").does == "takes the batches of input.py:f"
    assert batches.BatchRecords(4096, "", batches=4).does == "gathers 4,096 records, 4 batches"


EXAMPLES, BATCHES = MapFunction("mine:a"), MapFunction("mine:b", "numpy", processes=3, evaluation=True)
