"""Single stages; whole pipelines are built in `test_build.py`."""

import dataclasses

import pytest
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.feed.capacity import Window
from infeed.components.feed.options import SINGLE_WORKER, GlobalBatch, WorkerContext
from infeed.components.feed.sampling import SamplingWeights
from infeed.components.feed.shards import ShardFile
from infeed.components.feed.stages import columns
from infeed.components.feed.stages.base import BatchFunctions, BuildContext

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

FUNCTIONS = BatchFunctions(parse=lambda records: records, transform=lambda features: features, key="numbers")
SHARDS = (ShardFile("part-0", 6, 100, split="old"), ShardFile("part-1", 4, 100, split="new"))
CONTEXT = BuildContext(SHARDS, GlobalBatch(4), True, FUNCTIONS, SINGLE_WORKER, start_step=0)


def decoded():
    return tf.data.Dataset.range(10).map(lambda number: ({"number": number}, number % 2)).batch(4)


def numbers(batches):
    return [features["number"].numpy().tolist() for features, _ in batches]


def test_cached_records_are_gathered_like_columns():
    records = tf.data.Dataset.range(10).map(tf.strings.as_string).batch(4)
    kept = columns.CacheRecords("they fit").apply(records, CONTEXT)
    assert kept.take(tf.constant([9, 0], tf.int64)).numpy().tolist() == [b"9", b"0"]


@pytest.mark.parametrize("kept", ["memory", "disk"])
def test_rows_come_in_order_with_the_last_short_batch_or_shuffled_and_full(kept, tmp_path):
    stage = columns.LoadColumns() if kept == "memory" else columns.CacheColumns(str(tmp_path), 1000)
    rows = stage.apply(decoded(), CONTEXT)
    assert numbers(columns.GatherInOrder(4).apply(rows, CONTEXT)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    first, second, *_ = numbers(columns.GatherShuffled(4).apply(rows, CONTEXT).take(3))
    assert len({*first, *second}) == 8


def test_columns_on_disk_are_found_by_what_they_were_made_of(tmp_path):
    def entries():
        return sorted(path.name for path in tmp_path.iterdir() if path.is_dir())

    stage = columns.CacheColumns(str(tmp_path), 1000)
    stage.apply(decoded(), CONTEXT)
    (first,) = entries()
    stage.apply(decoded(), dataclasses.replace(CONTEXT, batch=GlobalBatch(4, 1, WorkerContext(1, 2))))
    assert entries() == [first]
    stage.apply(decoded(), dataclasses.replace(CONTEXT, functions=dataclasses.replace(FUNCTIONS, key="other")))
    stage.apply(decoded(), dataclasses.replace(CONTEXT, shards=SHARDS[::-1]))
    assert len(entries()) == 3


def test_several_batches_of_a_call_are_those_of_single_calls():
    rows = columns.LoadColumns().apply(decoded(), CONTEXT)
    alone = numbers(columns.GatherShuffled(4).apply(rows, CONTEXT).take(4))
    assert numbers(columns.GatherShuffled(4, batches=2).apply(rows, CONTEXT).take(2)) == [
        alone[0] + alone[1], alone[2] + alone[3],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("weights", "is_new"),
    [
        (SamplingWeights("split", ("old", "new"), (1.0, 1.0)), lambda number: number >= 6),
        (SamplingWeights("class", ("even", "odd"), (1.0, 1.0)), lambda number: number % 2),
    ],
)
def test_rows_are_sampled_by_split_or_by_label(weights, is_new):
    rows = columns.LoadColumns().apply(decoded(), CONTEXT)
    first, second = numbers(columns.GatherShuffled(4, weights=weights).apply(rows, CONTEXT).take(2))
    assert sum(bool(is_new(number)) for number in (*first, *second)) == 4


def test_the_words_say_how_rows_are_ordered():
    weights = SamplingWeights("class", ("no", "yes"), (1.0, 1.0))
    assert columns.GatherShuffled(4, 3).does == (
        "gathers 4 rows at a time, in a permutation of all rows by seed and epoch, 3 batches in a call"
    )
    assert columns.GatherShuffled(4, window=Window(8, 2)).does == (
        "permutes blocks of 8 rows and shuffles the rows of 2 blocks together, by seed and epoch; "
        "gathers 4 rows at a time"
    )
    assert columns.GatherShuffled(4, window=Window(8, 2)).reason.startswith("16 rows fit in memory")
    assert columns.GatherShuffled(4, weights=weights).reason.startswith("set by FeedOptions.class_shares")
    assert (
        columns.CacheColumns("here", 1).does
        == "keeps every feature as one column in files under here, mapped into memory"
    )


def words():
    return tf.data.Dataset.range(10).map(lambda n: ({"number": n, "words": tf.range(n % 5)}, n % 2)).ragged_batch(4)


def test_a_batch_has_rows_of_similar_length():
    rows = columns.LoadColumns().apply(words(), CONTEXT)
    context = dataclasses.replace(CONTEXT, batch=GlobalBatch(5))
    stage = columns.GatherShuffled(5, bucket_by="words")
    made = [features["words"].row_lengths().numpy() for features, _ in stage.apply(rows, context).take(2)]
    assert sorted(sorted(lengths.tolist()) for lengths in made) == [[0, 0, 1, 1, 2], [2, 3, 3, 4, 4]]
    assert stage.does.endswith("each batch of similar lengths of 'words'")


def test_rows_that_are_decoded_batch_by_batch_are_padded_to_the_longest_of_their_batch():
    def padded(numbers):
        return {"ones": tf.sequence_mask(numbers % 5, dtype=tf.int64)}, numbers

    functions = BatchFunctions(parse=lambda records: tf.strings.to_number(records, tf.int64), transform=padded)
    context = dataclasses.replace(CONTEXT, functions=functions, batch=GlobalBatch(5))
    records = tf.data.Dataset.range(10).map(tf.strings.as_string).batch(4)
    rows = columns.CacheRecords("they fit").apply(records, context)
    made = (
        columns.GatherShuffled(5, bucket_by="ones").apply(rows, context).map(lambda some: padded(functions.parse(some)))
    )
    assert sorted(features["ones"].shape[1] for features, _ in made.take(2)) == [2, 4]


@pytest.mark.parametrize(("name", "value"), [("wrods", "did you mean 'words'"), ("number", "same length")])
def test_lengths_that_do_not_exist_or_do_not_differ_are_an_error(name, value):
    rows = columns.LoadColumns().apply(words(), CONTEXT)
    with pytest.raises(InfeedError, match=value) as raised:
        columns.GatherShuffled(4, bucket_by=name).apply(rows, CONTEXT)
    assert raised.value.where == "FeedOptions.bucket_by"
