"""Datasets built from plans over real TFRecord files."""

import collections
import gzip
import itertools
import os

import pytest
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.feed.build import build, measure_records
from infeed.components.feed.capacity import Machine, RecordSizes
from infeed.components.feed.options import SINGLE_WORKER, FeedOptions, WorkerContext
from infeed.components.feed.plan import FeedSpec, plan
from infeed.components.feed.shards import ShardFile
from infeed.components.feed.stages.base import BatchFunctions

pytestmark = [pytest.mark.slow, pytest.mark.stack]

MACHINE = Machine(cpus=2, memory_bytes=1 << 30)
RECORDS = 100
STAGES = BatchFunctions(
    parse=lambda records: tf.strings.to_number(records, tf.int64),
    transform=lambda numbers: ({"number": numbers}, numbers % 2),
    augment=lambda batch, step, workers: (
        {"number": batch[0]["number"], "step": tf.fill([tf.size(batch[1])], step)},
        batch[1],
    ),
    normalise=lambda batch: batch,
    key="numbers",
)


def write_shards(folder, suffix=""):
    made = []
    for shard in range(4):
        path = str(folder / f"part-{shard}{suffix}")
        with tf.io.TFRecordWriter(path, "GZIP" if suffix else None) as writer:
            for number in range(shard, RECORDS, 4):
                writer.write(str(number).encode())
        made.append(ShardFile(path, RECORDS // 4, 100, split="old" if shard < 3 else "new"))
    return made


@pytest.fixture
def shards(tmp_path):
    return write_shards(tmp_path)


def dataset(
    shards,
    *,
    training,
    augmentation="",
    workers=SINGLE_WORKER,
    start_step=0,
    can_split=True,
    class_names=(),
    static_shapes=False,
    **options,
):
    sample = RecordSizes(record_bytes=2, feature_bytes=8, can_split=can_split)
    spec = FeedSpec(training, sample, augmentation, class_names=class_names, static_shapes=static_shapes)
    folder = os.path.join(os.path.dirname(shards[0].path), "cache")
    made = plan(shards, spec, FeedOptions(batch_size=16, cache_dir=folder, **options), MACHINE)
    return build(made, STAGES, workers=workers, start_step=start_step)


def batches(made, count):
    return [features["number"].numpy().tolist() for features, _ in made.take(count)]


def numbers(batches):
    return [number for features, _ in batches for number in features["number"].numpy().tolist()]


COLUMNS, DISK = {"tier": "columns"}, {"tier": "disk"}
CACHED, STREAM = ({"tier": "stream", "cache_records": cached} for cached in (True, False))
# Here one that draws rows by number, and one that reads windows. The image has the others.
IN_IMAGE = [pytest.param(tier, marks=pytest.mark.image) for tier in (DISK, CACHED)]
TIERS = pytest.mark.parametrize("tier", [COLUMNS, *IN_IMAGE, STREAM], ids=["columns", "disk", "cached", "stream"])
KEPT = pytest.mark.parametrize("tier", [COLUMNS, DISK, CACHED], ids=["columns", "disk", "cached"])


@pytest.mark.parametrize("window", [None, 30])
def test_a_stream_shows_every_record_as_often_as_any_other(shards, window):
    made = dataset(shards, training=True, shuffle_records=window, **STREAM)
    seen = collections.Counter(numbers(made.take(25)))  # 400 records, four times round
    assert seen == dict.fromkeys(range(RECORDS), 4)


def test_a_stream_shuffles_windows_of_records_that_are_about_as_long(shards):
    made = dataset(shards[:1], training=True, shuffle_records=10, **STREAM)  # 25 records: 9, 9 and 7 of them
    seen = [number // 4 for number in numbers(made.take(25))]  # sixteen times round, of 0 to 24
    for begin in range(0, 400, 25):
        epoch = seen[begin : begin + 25]
        assert [sorted(epoch[:9]), sorted(epoch[9:18]), sorted(epoch[18:])] == [
            list(range(9)), list(range(9, 18)), list(range(18, 25)),
        ]  # fmt: skip
    assert len({tuple(seen[begin : begin + 25]) for begin in range(0, 400, 25)}) == 16


def test_several_batches_made_in_one_call_are_the_batches_made_one_by_one(shards):
    alone = dataset(shards, training=True, can_split=False, **STREAM)
    assert numbers(alone.take(20)) == numbers(dataset(shards, training=True, **STREAM).take(20))


@KEPT
def test_an_epoch_shows_no_record_twice(shards, tier):
    made = dataset(shards, training=True, **tier)
    seen = numbers(made.take(12))  # two epochs of six full batches
    assert len(set(seen[:96])) == len(set(seen[96:])) == 96
    assert seen[:96] != seen[96:]


@KEPT
def test_what_an_epoch_leaves_out_differs_from_epoch_to_epoch(shards, tier):
    seen = numbers(dataset(shards, training=True, **tier).take(6 * 20))
    assert set(seen) == set(range(RECORDS))


def test_a_batch_larger_than_the_split_repeats_records(shards):
    spec = FeedSpec(True, RecordSizes(2, 8))  # of 25 records
    made = build(plan(shards[:1], spec, FeedOptions(batch_size=60, tier="columns"), MACHINE), STAGES)
    counts = collections.Counter(numbers(made.take(1)))
    assert sum(counts.values()) == 60
    assert set(counts.values()) == {2, 3}


@TIERS
def test_training_batches_are_full_and_of_static_shape(shards, tier):
    features, label = dataset(shards, training=True, **tier).element_spec
    assert features["number"].shape == [16]
    assert label.shape == [16]


@TIERS
def test_training_is_endless(shards, tier):
    made = dataset(shards, training=True, **tier)
    assert made.cardinality() == tf.data.INFINITE_CARDINALITY
    assert len(list(made.take(50))) == 50


@TIERS
def test_the_seed_decides_the_order(shards, tier):
    def order(seed):
        return numbers(dataset(shards, training=True, seed=seed, **tier).take(12))

    assert order(1) == order(1)
    assert order(1) != order(2)


@pytest.mark.parametrize("readers", [1, 2, 4])
def test_the_order_of_columns_does_not_depend_on_the_number_of_readers(shards, readers):
    first = numbers(dataset(shards, training=True, tier="columns", readers=3).take(12))
    assert numbers(dataset(shards, training=True, tier="columns", readers=readers).take(12)) == first


@TIERS
@pytest.mark.parametrize("readers", [1, 3])
def test_evaluation_keeps_the_order_of_the_files_and_the_last_short_batch(shards, tier, readers):
    made = dataset(shards, training=False, **tier, readers=readers)
    assert numbers(made) == [number for shard in range(4) for number in range(shard, RECORDS, 4)]
    assert made.cardinality() == 7
    assert numbers(made) == numbers(made)


@pytest.mark.parametrize(
    ("count", "training", "tier"),
    [
        pytest.param(2, True, COLUMNS, marks=pytest.mark.image),
        (4, True, DISK),
        (4, False, DISK),
        pytest.param(2, True, CACHED, marks=pytest.mark.image),
    ],
)
def test_the_workers_parts_of_a_step_are_one_workers_batch(shards, count, training, tier):
    alone = batches(dataset(shards, training=training, **tier), 8)
    parts = [
        batches(dataset(shards, training=training, workers=WorkerContext(index, count), **tier), 8)
        for index in range(count)
    ]
    assert [list(itertools.chain(*step)) for step in zip(*parts, strict=True)] == alone


@pytest.mark.parametrize(
    ("options", "workers"),
    [
        (COLUMNS, SINGLE_WORKER),
        (DISK, WorkerContext(1, 2)),
        (CACHED, WorkerContext(1, 2)),
        pytest.param(STREAM, SINGLE_WORKER, marks=pytest.mark.image),
        pytest.param({**STREAM, "shuffle_records": 30}, WorkerContext(1, 2), marks=pytest.mark.image),
        ({**STREAM, "shuffle_records": 20, "mix": {"old": 1, "new": 3}}, WorkerContext(1, 2)),
    ],
    ids=str,
)
def test_a_training_begun_at_any_step_goes_on_as_an_uninterrupted_one(shards, options, workers):
    whole = batches(dataset(shards, training=True, workers=workers, **options), 20)
    for start in (1, 13):  # six steps and a bit are an epoch
        assert (
            batches(dataset(shards, training=True, workers=workers, start_step=start, **options), 7)
            == (whole[start : start + 7])
        )


@pytest.mark.parametrize(("files", "count"), [(4, 2), (2, 4)])  # two files each, or a range each
def test_no_two_workers_stream_the_same_record(shards, files, count):
    workers = [WorkerContext(index, count) for index in range(count)]
    made = [dataset(shards[:files], training=True, workers=one, **STREAM) for one in workers]
    seen = [set(numbers(one.take(14))) for one in made]
    written = {number for number in range(RECORDS) if number % 4 < files}
    assert sum(map(len, seen)) == len(written)
    assert set.union(*seen) == written


def test_workers_stream_evaluation_data_once(shards):
    parts = [dataset(shards, training=False, tier="stream", workers=WorkerContext(index, 4)) for index in range(4)]
    assert len({len(list(part)) for part in parts}) == 1  # none waits for another at the end
    assert sorted(numbers(parts[0]) + [number for one in parts[1:] for number in numbers(one)]) == list(range(RECORDS))


def test_workers_that_cannot_share_a_batch_are_refused_with_the_numbers(shards):
    with pytest.raises(InfeedError, match=r"batch_size is 16, which 3 workers(.|\n)*multiple of 3"):
        dataset(shards, training=True, workers=WorkerContext(0, 3))


def test_disk_gives_the_batches_of_columns(shards):
    kept = batches(dataset(shards, training=True, tier="disk"), 20)
    assert kept == batches(dataset(shards, training=True, tier="columns"), 20)


def test_what_is_kept_on_disk_is_not_read_again(shards):
    first = batches(dataset(shards, training=True, tier="disk"), 7)
    for shard in shards:
        os.remove(shard.path)
    assert batches(dataset(shards, training=True, tier="disk"), 7) == first


@KEPT
def test_splits_are_mixed_by_share_batch_after_batch_of_all_epochs(shards, tier):
    made = numbers(dataset(shards, training=True, mix={"old": 1, "new": 1}, **tier).take(12))  # two epochs of 96
    assert [sum(number % 4 == 3 for number in made[begin : begin + 96]) for begin in (0, 96)] == [48, 48]
    assert set(made) == set(range(RECORDS))  # of 75 old ones 96 are drawn: all have come


def test_a_stream_mixes_splits_by_share_in_each_window(shards):
    made = dataset(shards, training=True, mix={"old": 1, "new": 3}, shuffle_records=20, **STREAM)
    seen = numbers(made.take(25))[:300]  # 15 windows
    assert [sum(number % 4 == 3 for number in seen[begin : begin + 20]) for begin in range(0, 300, 20)] == [15] * 15
    times = collections.Counter(seen)
    assert {times[number] for number in range(RECORDS) if number % 4 < 3} == {1}  # once round the old ones
    assert {times[number] for number in range(RECORDS) if number % 4 == 3} == {9}


def test_a_split_without_a_share_is_not_read(shards):
    made = dataset(shards, training=True, mix={"old": 0, "new": 1}, **STREAM)
    assert {number % 4 for number in numbers(made.take(7))} == {3}


def test_a_share_too_small_for_a_window_is_refused_with_its_size(shards):
    with pytest.raises(InfeedError, match=r"windows of 10 records contain none of the split 'new'(.|\n)*its share"):
        dataset(shards, training=True, mix={"old": 1, "new": 0.01}, shuffle_records=10, **STREAM)


@pytest.mark.parametrize("tier", [COLUMNS, DISK], ids=["columns", "disk"])
def test_classes_are_drawn_by_share(shards, tier):
    made = dataset(shards, training=True, class_names=("even", "odd"), class_shares={"odd": 3, "even": 1}, **tier)
    assert sum(number % 2 for number in numbers(made.take(6))) == 72  # of 96
    assert {number for number in numbers(made.take(12)) if number % 2} == set(range(1, RECORDS, 2))


@TIERS
def test_the_last_short_batch_of_evaluation_is_filled_up_with_rows_of_weight_0(shards, tier):
    made = dataset(shards, training=False, static_shapes=True, **tier)
    assert [spec.shape for spec in tf.nest.flatten(made.element_spec)] == [[16], [16], [16]]
    weights = [weight.numpy().tolist() for _, _, weight in made]
    assert weights == [[1.0] * 16] * 6 + [[1.0] * 4 + [0.0] * 12]


def test_what_has_no_static_shape_is_refused_by_name(shards):
    made = plan(
        shards,
        FeedSpec(False, RecordSizes(2, 8), static_shapes=True),
        FeedOptions(tier="stream", batch_size=16),
        MACHINE,
    )
    text = BatchFunctions(
        parse=lambda records: records, transform=lambda records: ({"words": records}, tf.size(records))
    )
    with pytest.raises(InfeedError, match=r"feature 'words'(.|\n)*vocabulary"):
        build(made, text)


def test_augmentation_is_given_the_number_of_the_step(shards):
    made = dataset(shards, training=True, augmentation="numbers the steps")
    assert [int(features["step"][0]) for features, _ in made.take(3)] == [0, 1, 2]
    later = dataset(shards, training=True, augmentation="numbers the steps", start_step=7)
    assert [int(features["step"][0]) for features, _ in later.take(2)] == [7, 8]


@TIERS
def test_compressed_files_give_the_same_batches(shards, tmp_path, tier):
    compressed = write_shards(tmp_path, ".gz")
    assert batches(dataset(compressed, training=True, **tier), 7) == (
        batches(dataset(shards, training=True, **tier), 7)
    )


@TIERS
@pytest.mark.parametrize("packed", [pytest.param(4, marks=pytest.mark.image), 1])
def test_files_of_gzip_need_no_gz_in_their_names_and_may_lie_beside_plain_ones(shards, tier, packed):
    expected = batches(dataset(shards, training=True, **tier), 7)
    for shard in shards[:packed]:
        with open(shard.path, "rb+") as file:
            compressed = gzip.compress(file.read())
            file.seek(0)
            file.truncate()
            file.write(compressed)
    assert batches(dataset(shards, training=True, **tier), 7) == expected


def test_a_wrong_count_in_the_manifest_is_an_error_not_a_shorter_epoch(shards):
    wrong = [ShardFile(shard.path, shard.records + 1, shard.bytes) for shard in shards]
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="expected to contain 26 elements but contained only 25"
    ):
        numbers(dataset(wrong, training=False, tier="stream"))


def test_a_sample_measures_bytes_a_record(shards):
    sample = measure_records(shards, STAGES)
    assert sample.record_bytes == pytest.approx(1.88, abs=0.01)  # "0", "4", "8" and 22 numbers of two digits
    assert sample.feature_bytes == 16  # two int64
    assert sample.can_split
