"""Datasets built from plans over real TFRecord files."""

import collections

import pytest
import tensorflow as tf

from infeed.components.feed.build import Stages, build
from infeed.components.feed.machine import Machine
from infeed.components.feed.options import FeedOptions
from infeed.components.feed.plan import FeedSpec, Sample, plan
from infeed.components.feed.sample import measure
from infeed.components.feed.shards import ShardFile

MACHINE = Machine(cpus=2, memory_bytes=1 << 30)
RECORDS = 100
STAGES = Stages(
    parse=lambda records: tf.strings.to_number(records, tf.int64),
    transform=lambda numbers: ({"number": numbers}, numbers % 2),
    augment=lambda batch, step: ({"number": batch[0]["number"], "step": tf.fill([tf.size(batch[1])], step)}, batch[1]),
    normalise=lambda batch: batch,
)


@pytest.fixture(params=["", ".gz"], ids=["plain", "gzip"])
def shards(tmp_path, request):
    made = []
    for shard in range(4):
        path = str(tmp_path / f"part-{shard}{request.param}")
        with tf.io.TFRecordWriter(path, "GZIP" if request.param else None) as writer:
            for number in range(shard, RECORDS, 4):
                writer.write(str(number).encode())
        made.append(ShardFile(path, RECORDS // 4, 100))
    return made


def dataset(shards, *, training, augmentation="", decodes_images=False, **options):
    sample = Sample(record_bytes=2, feature_bytes=8, decodes_images=decodes_images)
    spec = FeedSpec(training, sample, augmentation)
    return build(plan(shards, spec, FeedOptions(batch_size=16, **options), MACHINE), STAGES)


def numbers(batches):
    return [number for features, _ in batches for number in features["number"].numpy().tolist()]


@pytest.mark.parametrize("cache", ["features", "records", "none"])
def test_training_sees_every_record_as_often_as_any_other(shards, cache):
    made = dataset(shards, training=True, cache=cache)
    seen = collections.Counter(numbers(made.take(25)))  # 400 records, four times round
    assert seen == dict.fromkeys(range(RECORDS), 4)


def test_training_batches_are_full_and_of_static_shape(shards):
    features, label = dataset(shards, training=True).element_spec
    assert features["number"].shape == [16]
    assert label.shape == [16]


def test_training_is_endless(shards):
    assert dataset(shards, training=True).cardinality() == tf.data.INFINITE_CARDINALITY


def test_the_seed_decides_the_order(shards):
    def order(seed):
        return numbers(dataset(shards, training=True, seed=seed).take(12))

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_epochs_differ_in_order(shards):
    seen = numbers(dataset(shards, training=True).take(25))
    assert sorted(seen[:RECORDS]) == sorted(seen[RECORDS : 2 * RECORDS]) == list(range(RECORDS))
    assert seen[:RECORDS] != seen[RECORDS : 2 * RECORDS]


def test_evaluation_keeps_the_order_of_the_files_and_the_last_short_batch(shards):
    made = dataset(shards, training=False)
    assert numbers(made) == [number for shard in range(4) for number in range(shard, RECORDS, 4)]
    assert made.cardinality() == 7
    assert numbers(made) == numbers(made)


def test_augmentation_is_given_the_number_of_the_step(shards):
    made = dataset(shards, training=True, augmentation="numbers the steps")
    assert [int(features["step"][0]) for features, _ in made.take(3)] == [0, 1, 2]


def test_a_wrong_count_in_the_manifest_is_an_error_not_a_shorter_epoch(shards):
    wrong = [ShardFile(shard.path, shard.records + 1, shard.bytes) for shard in shards]
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="expected to contain 104 elements but contained only 100"
    ):
        numbers(dataset(wrong, training=False))


def test_a_sample_measures_bytes_a_record(shards):
    sample = measure(shards, STAGES)
    assert sample.record_bytes == pytest.approx(1.88, abs=0.01)  # "0", "4", "8" and 22 numbers of two digits
    assert sample.feature_bytes == 16  # two int64
    assert not sample.decodes_images
