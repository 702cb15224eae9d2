"""Every tier gives the same batches: names, types, shapes, element spec and values, of every kind of feature."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from infeed.components.feed.build import build, measure_records
from infeed.components.feed.capacity import Machine
from infeed.components.feed.options import FeedOptions
from infeed.components.feed.plan import FeedSpec, plan
from infeed.components.feed.shards import ShardFile
from infeed.components.feed.stages.base import BatchFunctions

pytestmark = pytest.mark.slow

RECORDS, BATCH = 22, 4
TIERS = {
    "columns": {"tier": "columns"},
    "by rows": {"tier": "columns"},
    "disk": {"tier": "disk"},
    "cached": {"tier": "stream", "cache_records": True},
    "stream": {"tier": "stream", "cache_records": False},
}
RAW = {
    "number": tf.io.FixedLenFeature([], tf.int64),
    "pair": tf.io.FixedLenFeature([2], tf.float32),
    "text": tf.io.FixedLenFeature([], tf.string),
    "short": tf.io.RaggedFeature(tf.int64, "ids", row_splits_dtype=tf.int32),
    "long": tf.io.RaggedFeature(tf.int64, "more", row_splits_dtype=tf.int64),
    "words": tf.io.RaggedFeature(tf.string, "words"),
    "pairs": tf.io.RaggedFeature(
        tf.int64, "twice", partitions=[tf.io.RaggedFeature.UniformRowLength(2)], row_splits_dtype=tf.int32
    ),
    "list": tf.io.VarLenFeature(tf.int64),
    "names": tf.io.VarLenFeature(tf.string),
    "sized": tf.io.SparseFeature("at", "value", tf.float32, size=50),
}
DENSE = {
    "number": lambda raw: raw["number"],
    "pair": lambda raw: raw["pair"],
    "text": lambda raw: raw["text"],
    "flag": lambda raw: raw["number"] % 3 == 0,
    "picture": lambda raw: tf.cast(tf.reshape(tf.tile(raw["number"][:, tf.newaxis], [1, 4]), [-1, 2, 2, 1]), tf.uint8),
}
RAGGED = DENSE | {name: lambda raw, name=name: raw[name] for name in ("short", "long", "words", "pairs")}


def forgetful(sparse):
    """The same, and nobody knows beforehand how wide it is, as behind a graph that was saved."""
    shape = tf.raw_ops.PlaceholderWithDefault(input=sparse.dense_shape, shape=[2])
    return tf.SparseTensor(sparse.indices, sparse.values, shape)


NUMBER = {"number": DENSE["number"]}
SPARSE = NUMBER | {name: lambda raw, name=name: raw[name] for name in ("short", "list", "names", "sized")}
SPARSE |= {f"saved {name}": lambda raw, name=name: forgetful(raw[name]) for name in ("list", "sized")}
PADDED = NUMBER | {"padded": lambda raw: tf.sparse.to_dense(raw["list"], -1)}
PARSED = {  # beside the number
    "dense": ("pair", "text"),
    "ragged": ("pair", "text", "short", "long", "words", "pairs"),
    "sparse": ("short", "list", "names", "sized"),
    "padded": ("list",),
}
KINDS = {"dense": DENSE, "ragged": RAGGED, "sparse": SPARSE, "padded": PADDED}
OF_KINDS = [pytest.param("dense", marks=pytest.mark.image), *list(KINDS)[1:]]  # "ragged" has the dense features, too


def example(number):
    rng = np.random.default_rng(number)
    items = rng.integers(-1, 3, size=rng.integers(0, 6))  # of which many end in -1, as what they are padded with
    places = sorted(rng.choice(49, size=rng.integers(0, 4), replace=False).tolist())  # never the last place
    features = {
        "number": [number],
        "pair": [float(number), 0.5],
        "text": [b"t" * (number % 4)],
        "list": items.tolist(),
        "ids": items.tolist(),
        "more": items.tolist(),
        "twice": np.repeat(items, 2).tolist(),
        "words": [b"w%d" % item for item in items],
        "names": [b"n%d" % item for item in items[1:]],
        "at": places,
        "value": [float(place) for place in places],
    }
    return tf.train.Example(features=tf.train.Features(feature={k: feature(k, v) for k, v in features.items()}))


def feature(name, values):
    if name in ("pair", "value"):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    if name in ("text", "words", "names"):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """dataset(kinds, tier, training, bucket_by) -> batches, for a loop that takes row numbers too in `by rows`"""
    folder = tmp_path_factory.mktemp("tiers")
    shards = []
    for shard in range(2):
        path = str(folder / f"part-{shard}")
        numbers = range(shard, RECORDS, 2)
        with tf.io.TFRecordWriter(path) as writer:
            for number in numbers:
                writer.write(example(number).SerializeToString())
        shards.append(ShardFile(path, len(numbers), 100))

    @functools.cache
    def make(kinds, tier, training, bucket_by=None):
        chosen, raw_spec = KINDS[kinds], {name: RAW[name] for name in ("number", *PARSED[kinds])}
        functions = BatchFunctions(
            parse=lambda records: tf.io.parse_example(records, raw_spec),
            transform=lambda raw: ({name: of(raw) for name, of in chosen.items()}, raw["number"] % 2),
            key=kinds,
        )
        options = FeedOptions(batch_size=BATCH, cache_dir=str(folder / "cache"), bucket_by=bucket_by, **TIERS[tier])
        spec = FeedSpec(training, measure_records(shards, functions), devices=("CPU:0",) if tier == "by rows" else ())
        return build(plan(shards, spec, options, Machine(cpus=2, memory_bytes=1 << 30)), functions)

    return make


@pytest.fixture(scope="module")
def seen(dataset):
    """seen(kinds, tier, training, bucket_by) -> what can be seen of all batches of evaluation, or of two epochs"""

    @functools.cache
    def look(kinds, tier, training, bucket_by=None):
        made = dataset(kinds, tier, training, bucket_by)
        return list(map(plain, made.take(12) if training else made))

    return look


def plain(batch):
    """All that can be seen of a batch: of each tensor its type, its shape and its values, as text."""
    return [str((one.dtype, one.shape, one)) for one in tf.nest.flatten(batch, expand_composites=True)]


@pytest.mark.parametrize("kinds", OF_KINDS)
@pytest.mark.parametrize(
    ("tier", "training"), [("columns", True), ("disk", True), ("cached", True), ("columns", False), ("disk", False)]
)
def test_what_a_batch_is_does_not_depend_on_the_tier(dataset, kinds, tier, training):
    one, other = (dataset(kinds, which, training).element_spec for which in (tier, "stream"))
    assert list(map(str, tf.nest.flatten(one))) == list(map(str, tf.nest.flatten(other)))
    assert one == other


@pytest.mark.parametrize("tier", ["columns", "disk", "stream"])
def test_a_sparse_feature_of_a_size_has_it_in_every_batch(dataset, tier):
    batches = dataset("sparse", tier, False)
    features, _ = batches.element_spec
    assert features["saved list"].shape[1:] == [None]
    for name in ("sized", "saved sized"):
        assert features[name].shape[1:] == [50]
        assert {int(batch[name].dense_shape[1]) for batch, _ in batches} == {50}


@pytest.mark.parametrize("tier", ["columns", "disk"])
@pytest.mark.parametrize("kinds", OF_KINDS)
def test_evaluation_has_the_same_batches_in_every_tier(seen, kinds, tier):
    kept, streamed = (seen(kinds, one, False) for one in (tier, "stream"))
    assert len(kept) == -(-RECORDS // BATCH)
    assert kept == streamed


@pytest.mark.parametrize("tier", ["columns", "disk"])
@pytest.mark.parametrize("kinds", OF_KINDS)
def test_training_has_the_same_batches_wherever_rows_are_drawn_by_number(seen, kinds, tier):
    kept, cached = (seen(kinds, one, True) for one in (tier, "cached"))
    assert kept == cached


@pytest.mark.parametrize(
    ("kinds", "name"),
    [("ragged", "words"), pytest.param("sparse", "names", marks=pytest.mark.image), ("padded", "padded")],
)
def test_batches_of_similar_lengths_are_the_same_in_every_tier_and_differ_from_others(seen, kinds, name):
    made = [seen(kinds, tier, True, name) for tier in ("columns", "disk", "cached")]
    assert made[0] == made[1] == made[2]
    assert made[0] != seen(kinds, "columns", True)


def test_a_step_that_gathers_its_rows_has_the_same_batch(dataset, seen):
    made = dataset("dense", "by rows", True)
    assert made.element_spec == dataset("dense", "stream", True).element_spec
    take = tf.function(made.take)
    own = [take(numbers) for call in made.handed(3).take(8) for numbers in call.numbers]
    assert len(own) > 12
    assert list(map(plain, own[:12])) == seen("dense", "cached", True)


@pytest.mark.parametrize("kinds", ["ragged", "sparse", "padded"])
def test_features_that_are_not_dense_come_in_batches_to_every_loop(dataset, kinds):
    assert isinstance(dataset(kinds, "by rows", True), tf.data.Dataset)
