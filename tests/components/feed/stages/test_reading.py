"""Single stages; whole pipelines are built in `test_build.py`."""

import dataclasses
import itertools

import pytest
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import SINGLE_WORKER, GlobalBatch
from infeed.components.feed.sampling import SamplingWeights
from infeed.components.feed.shards import ShardFile
from infeed.components.feed.stages import reading
from infeed.components.feed.stages.base import BatchFunctions, BuildContext

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

WEIGHTS = SamplingWeights("split", ("old", "new"), (1.0, 3.0))


@pytest.fixture
def context(tmp_path):
    shards = []
    for number in range(3):
        path = str(tmp_path / f"part-{number}")
        with tf.io.TFRecordWriter(path) as writer:
            for record in range(5):
                writer.write(b"%d" % (10 * number + record))
        shards.append(ShardFile(path, 5, 100, split="new" if number else "old"))
    functions = BatchFunctions(parse=lambda records: records, transform=lambda features: features)
    return BuildContext(tuple(shards), GlobalBatch(5), True, functions, SINGLE_WORKER, start_step=0)


def of_records(context, count, **changes):
    return dataclasses.replace(context, shards=(ShardFile("part", count, 100),), **changes)


def records(blocks):
    return [[int(record) for record in block.numpy()] for block in blocks]


def test_a_file_that_is_missing_is_told_before_anything_is_read(context):
    missing = ShardFile("/nowhere/part-0", 5, 100, crc32c="00000000")
    with pytest.raises(InfeedError, match="the file is missing"):
        reading.VerifyFiles("").apply(None, dataclasses.replace(context, shards=(missing,)))


def test_files_are_read_in_order_block_after_block_whatever_the_number_of_readers(context):
    stage = reading.ReadShards(readers=3, block=2, longest=5, reason="")
    assert stage.in_a_row == 3  # two blocks of two and one of one
    blocks = stage.apply(reading.ListShards(3, "").apply(None, context), context)
    assert records(blocks) == [[0, 1], [2, 3], [4], [10, 11], [12, 13], [14], [20, 21], [22, 23], [24]]


def test_files_that_are_interleaved_take_turns_in_another_order_each_epoch(context):
    (reader,) = reading.InterleaveShards(3, "", block=2).apply(reading.PermuteShards(3).apply(None, context), context)
    epochs = [records(reader(tf.constant(epoch, tf.int64))) for epoch in range(6)]
    for blocks in epochs:
        assert len({block[0] // 10 for block in blocks[:3]}) == 3
        assert sorted(itertools.chain(*blocks)) == [*range(5), *range(10, 15), *range(20, 25)]
    assert len({tuple(block[0] for block in blocks[:3]) for blocks in epochs}) > 1


def test_each_split_that_is_mixed_has_a_reader(context):
    readers = reading.PermuteShards(3, WEIGHTS).apply(None, context)
    old, new = reading.InterleaveShards(2, "").apply(readers, context)
    zero = tf.constant(0, tf.int64)
    assert [sorted(itertools.chain(*records(split(zero)))) for split in (old, new)] == [
        list(range(5)), [*range(10, 15), *range(20, 25)],
    ]  # fmt: skip


def test_the_records_of_a_window_are_shuffled(context):
    blocks = tf.data.Dataset.range(12).map(tf.strings.as_string).batch(4)
    shuffled = reading.ShuffleWindows(15, "why").apply([lambda epoch: blocks], of_records(context, 12))
    (window,) = records(shuffled(tf.constant(0, tf.int64)))
    assert window != sorted(window) == list(range(12))


def test_what_was_taken_before_the_first_batch_is_left_out(context):
    blocks = tf.data.Dataset.range(12).map(tf.strings.as_string).batch(4)
    endless = reading.Repeat().apply(
        lambda epoch: blocks, of_records(context, 12, start_step=1)
    )  # five records are a step
    assert records(endless.take(4)) == [[], [5, 6, 7], [8, 9, 10, 11], [0, 1, 2, 3]]  # five records were a step


def test_a_window_holds_of_each_split_what_its_weight_comes_to(context):
    readers = reading.InterleaveShards(2, "").apply(reading.PermuteShards(3, WEIGHTS).apply(None, context), context)
    windows = records(reading.SampleSplits(8, WEIGHTS).apply(readers, context).take(5))
    assert [sum(record < 10 for record in window) for window in windows] == [2] * 5
    assert sorted(record for window in windows for record in window if record < 10) == sorted([*range(5)] * 2)


def test_the_words_count_shards_and_records():
    assert reading.ListShards(1, "").does == "lists 1 shard in order"
    assert reading.PermuteShards(2000, WEIGHTS).does.endswith("separately in each split")
    assert reading.InterleaveShards(2, "").does == "interleaves 2 shards at a time, in blocks of 256 records"
    assert reading.ShuffleWindows(10, "why").reason.startswith("why; before batching")
