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


def dataset(shards, *, training, augmentation="", **options):
    sample = Sample(record_bytes=2, feature_bytes=8)
    spec = FeedSpec(training, sample, augmentation)
    return build(plan(shards, spec, FeedOptions(batch_size=16, **options), MACHINE), STAGES)


def numbers(batches):
    return [number for features, _ in batches for number in features["number"].numpy().tolist()]


TIERS = pytest.mark.parametrize("tier", ["columns", "stream"])


@pytest.mark.parametrize("cache", [True, False])
def test_a_stream_shows_every_record_as_often_as_any_other(shards, cache):
    made = dataset(shards, training=True, tier="stream", cache_records=cache)
    seen = collections.Counter(numbers(made.take(25)))  # 400 records, four times round
    assert seen == dict.fromkeys(range(RECORDS), 4)


def test_an_epoch_of_columns_shows_no_record_twice(shards):
    made = dataset(shards, training=True, tier="columns")
    seen = numbers(made.take(12))  # two epochs of six full batches
    assert len(set(seen[:96])) == len(set(seen[96:])) == 96
    assert seen[:96] != seen[96:]


def test_what_columns_leave_out_differs_from_epoch_to_epoch(shards):
    seen = numbers(dataset(shards, training=True, tier="columns").take(6 * 60))
    assert set(seen) == set(range(RECORDS))


def test_a_batch_larger_than_the_split_repeats_records(shards):
    spec = FeedSpec(True, Sample(2, 8))  # of 25 records
    made = build(plan(shards[:1], spec, FeedOptions(batch_size=60, tier="columns"), MACHINE), STAGES)
    counts = collections.Counter(numbers(made.take(1)))
    assert sum(counts.values()) == 60
    assert set(counts.values()) == {2, 3}


@TIERS
def test_training_batches_are_full_and_of_static_shape(shards, tier):
    features, label = dataset(shards, training=True, tier=tier).element_spec
    assert features["number"].shape == [16]
    assert label.shape == [16]


@TIERS
def test_training_is_endless(shards, tier):
    made = dataset(shards, training=True, tier=tier)
    assert made.cardinality() in (tf.data.INFINITE_CARDINALITY, tf.data.UNKNOWN_CARDINALITY)
    assert len(list(made.take(50))) == 50


@TIERS
def test_the_seed_decides_the_order(shards, tier):
    def order(seed):
        return numbers(dataset(shards, training=True, seed=seed, tier=tier).take(12))

    assert order(1) == order(1)
    assert order(1) != order(2)


@pytest.mark.parametrize("readers", [1, 2, 4])
def test_the_order_of_columns_does_not_depend_on_the_number_of_readers(shards, readers):
    first = numbers(dataset(shards, training=True, tier="columns", readers=3).take(12))
    assert numbers(dataset(shards, training=True, tier="columns", readers=readers).take(12)) == first


@TIERS
@pytest.mark.parametrize("readers", [1, 3])
def test_evaluation_keeps_the_order_of_the_files_and_the_last_short_batch(shards, tier, readers):
    made = dataset(shards, training=False, tier=tier, readers=readers)
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
        numbers(dataset(wrong, training=False, tier="stream"))


def test_a_sample_measures_bytes_a_record(shards):
    sample = measure(shards, STAGES)
    assert sample.record_bytes == pytest.approx(1.88, abs=0.01)  # "0", "4", "8" and 22 numbers of two digits
    assert sample.feature_bytes == 16  # two int64
