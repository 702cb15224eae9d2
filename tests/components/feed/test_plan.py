import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.feed.capacity import Machine, RecordSizes, Window
from infeed.components.feed.options import FeedOptions
from infeed.components.feed.plan import FeedSpec, plan
from infeed.components.feed.sampling import SamplingWeights
from infeed.components.feed.shards import ShardFile
from infeed.components.feed.stages.batches import SplitBatches
from infeed.components.feed.stages.columns import CacheColumns, GatherInOrder, GatherInStep, GatherShuffled
from infeed.components.feed.stages.reading import ListShards

MACHINE = Machine(cpus=4, memory_bytes=3_000_000)  # a third of it, 1 MB, is available
SAMPLE = RecordSizes(record_bytes=100, feature_bytes=400)
DECODE = ["verify", "shards", "read", "batch", "parse", "transform", "columns"]


def shards(count, records):
    return [ShardFile(f"Split-train/part-{i}.gz", records, records * 50) for i in range(count)]


def planned(*, training=True, count=2, records=1000, machine=MACHINE, **options):
    spec = FeedSpec(training, SAMPLE, augmentation="shifts" if training else "", normalization="normalizes")
    return plan(shards(count, records), spec, FeedOptions(**options), machine)


def names(made):
    return [step.name for step in made.stages]


def step(made, name):
    return next(step for step in made.stages if step.name == name)


def test_a_split_that_fits_decoded_is_held_as_columns():
    made = planned()
    assert made.tier == "columns"
    assert made.reason == "2,000 records take 800 kB decoded, and 1.0 MB of memory is available"
    assert names(made) == [*DECODE, "gather", "cut", "augment", "prefetch"]
    assert step(made, "gather") == GatherShuffled(size=128, batches=32, window=None, weights=None)


def test_columns_are_read_in_the_order_of_the_files_whatever_the_number_of_readers():
    made = planned(records=9000, tier="columns")
    read = step(made, "read")
    assert (read.readers, read.block, read.in_a_row) == (2, 4096, 3)


def test_small_batches_are_gathered_several_in_a_call_and_large_ones_alone():
    assert "32 batches in a call" in step(planned(), "gather").does
    assert step(planned(batch_size=1500), "cut") == SplitBatches(batches=2, size=1500)
    assert step(planned(batch_size=5000), "gather").batches == 1
    assert "cut" not in names(planned(batch_size=5000))


def test_batches_that_are_as_wide_as_their_values_need_are_made_one_by_one():
    sparse = FeedSpec(True, RecordSizes(100, 400, can_split=False))
    assert "cut" not in names(plan(shards(2, 1000), sparse, FeedOptions(tier="stream"), MACHINE))


def by_rows(*, sizes=SAMPLE, batch_size=128, tier="auto", **told):
    spec = FeedSpec(told.pop("training", True), sizes, devices=("CPU:0",), **told)
    return plan(shards(2, 1000), spec, FeedOptions(batch_size=batch_size, tier=tier), MACHINE)


def test_a_loop_that_takes_row_numbers_gathers_small_batches_in_its_steps():
    made = by_rows()
    assert names(made) == [*DECODE, "gather"]
    assert step(made, "gather") == GatherInStep(128)
    assert made.holds_rows
    assert step(made, "gather").does == (
        "passes the row numbers of all steps of a call, an exact shuffle, in an order computed from seed and epoch; "
        "the graph of the steps gathers their rows, 128 a step"
    )
    assert by_rows(training=False).stages == planned_like_evaluation().stages


def planned_like_evaluation():
    return plan(shards(2, 1000), FeedSpec(False, SAMPLE), FeedOptions(), MACHINE)


@pytest.mark.parametrize(
    "told",
    [
        {"batch_size": 5000},
        {"tier": "stream"},
        {"augmentation": "shifts"},
        {"normalization": "normalizes"},
        {"sizes": RecordSizes(100, 400, is_dense=False)},
        {"sizes": RecordSizes(10_000, 150_000), "tier": "columns"},
    ],
    ids=lambda told: next(iter(told)),
)
def test_what_takes_long_or_is_not_held_decoded_is_made_while_steps_run(told):
    stages = by_rows(**told).stages
    assert not any(isinstance(stage, GatherInStep) for stage in stages)
    assert stages[-1].name == "prefetch"


GPU = "/job:localhost/replica:0/task:0/device:GPU:0"


def on_gpu(*, free=1 << 40, sizes=SAMPLE, **told):
    feed = FeedOptions(**told.pop("options", {}))
    spec = FeedSpec(told.pop("training", True), sizes, devices=(GPU,), **told)
    return plan(shards(2, 1000), spec, feed, Machine(4, 3_000_000, device_bytes=free))


def test_columns_that_fit_on_the_gpu_are_copied_there_and_only_row_numbers_travel():
    made = on_gpu()
    assert made.tier == "device"
    assert names(made) == [*DECODE, "gather", "device"]
    assert step(made, "gather") == GatherInStep(128)
    assert step(made, "device").does == "copies the columns once to GPU:0"
    assert on_gpu(options={"batch_size": 50_000}).stages[-2] == GatherInStep(50_000)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"sizes": RecordSizes(100, 400, is_numeric=False)}, "a feature is text, ragged or sparse"),
        ({"augmentation": "shifts"}, "the host augments and normalizes the images"),
        ({"normalization": "normalizes"}, "the host augments and normalizes the images"),
        ({"free": 1_000_000}, "only 250 kB of each device's memory is available"),
    ],
    ids=lambda told: next(iter(told)) if isinstance(told, dict) else "",
)
def test_a_gpu_that_cannot_hold_the_columns_gets_batches(told, why):
    made = on_gpu(**told)
    assert made.tier == "columns"
    assert made.reason.endswith(f"not on the devices: {why}")
    assert made.stages[-1].name == "prefetch"
    with pytest.raises(InfeedError, match=f"tier is 'device', but {why}"):
        on_gpu(options={"tier": "device"}, **told)


def test_evaluation_is_gathered_from_memory_in_its_order():
    made = on_gpu(training=False, options={"tier": "device"})
    assert made.tier == "columns"
    assert step(made, "gather") == GatherInOrder(128)


def test_a_loop_that_takes_batches_alone_cannot_have_columns_on_its_device():
    with pytest.raises(InfeedError, match="tier is 'device', but the training loop takes batches, not row numbers"):
        planned(tier="device")


def test_decoding_takes_as_many_records_at_a_time_as_memory_likes():
    assert step(planned(), "batch").size == 4096
    pictures = FeedSpec(True, RecordSizes(record_bytes=10_000, feature_bytes=150_000))
    made = plan(shards(1, 1000), pictures, FeedOptions(), Machine(4, 1 << 40))
    assert step(made, "batch").size == step(made, "read").block == 27


def test_batches_of_pictures_are_gathered_as_few_in_a_call_as_memory_likes():
    pictures = RecordSizes(record_bytes=10_000, feature_bytes=150_000)
    made = plan(shards(1, 1000), FeedSpec(True, pictures), FeedOptions(batch_size=16), Machine(4, 1 << 40))
    assert step(made, "gather").batches == 1


def test_a_split_too_large_for_memory_is_kept_on_disk():
    made = planned(records=5000, machine=Machine(4, 3_000_000, disk_bytes=9_000_000))
    assert made.tier == "disk"
    assert made.reason == (
        "10,000 records take 4.0 MB decoded, only 1.0 MB of memory is available, but 4.5 MB of disk is available"
    )
    assert names(made) == [*DECODE[:-1], "disk", "gather", "cut", "augment", "prefetch"]
    assert step(made, "disk") == CacheColumns(cache_dir="~/.cache/tfx-infeed", kept_bytes=4_000_000)


@pytest.mark.parametrize(("tier", "keeps"), [("columns", "cache"), ("disk", "disk")])
def test_features_that_are_padded_batch_by_batch_are_kept_as_records(tier, keeps):
    padded = FeedSpec(True, RecordSizes(100, 400, can_split=False, can_keep=False))
    made = plan(shards(2, 1000), padded, FeedOptions(tier=tier), MACHINE)
    assert names(made) == ["verify", "shards", "read", keeps, "gather", "parse", "transform", "prefetch"]
    assert "2,000 records take 200 kB serialized" in made.reason


def test_on_disk_as_many_blocks_of_rows_are_shuffled_together_as_memory_holds():
    gather = step(planned(records=5000, machine=Machine(4, 3_000_000, disk_bytes=9_000_000), batch_size=100), "gather")
    window = gather.window
    assert window == Window(block=2600, blocks=1)  # about a megabyte, whole batches
    assert "blocks of 2,600 rows" in gather.does


def test_on_disk_all_rows_are_shuffled_together_where_memory_holds_them():
    assert step(planned(tier="disk"), "gather").window is None


def test_a_split_too_large_decoded_is_streamed_from_cached_records():
    made = planned(records=2000)  # 4,000 x 400 bytes decoded, 4,000 x 100 as records
    assert made.tier == "stream"
    assert names(made) == [
        "verify", "shards", "read", "cache", "gather", "parse", "transform", "cut", "augment", "prefetch",
    ]  # fmt: skip
    assert "they take 400 kB of the 1.0 MB available" in step(made, "cache").reason


def test_nothing_is_cached_that_does_not_fit():
    made = planned(records=10_000)  # 20,000 x 100 bytes
    assert names(made) == [
        "verify", "shards", "read", "shuffle", "repeat", "prefetch", "batch", "parse", "transform", "cut", "augment",
        "prefetch",
    ]  # fmt: skip
    assert step(made, "shuffle").window == 3333  # of 100 bytes, three windows at a time
    assert "20,000 records would not fit" in step(made, "shuffle").reason
    batch = step(made, "batch")
    assert (batch.size, batch.drop_remainder) == (4096, True)


def test_options_override_the_plan_and_are_named_as_the_reason():
    made = planned(tier="stream", cache_records=False, shuffle_records=7, readers=1)
    assert made.reason.startswith("set by FeedOptions.tier")
    assert "cache" not in names(made)
    assert step(made, "shuffle").window == 7
    assert step(made, "shuffle").reason.startswith("set by FeedOptions.shuffle_records")
    assert step(made, "read").readers == 1


@pytest.mark.parametrize(
    ("count", "cpus", "readers"),
    [
        (1, 4, 1),  # never more readers than shards
        (2, 4, 2),
        (40, 4, 4),
    ],
)
def test_one_reader_a_core_at_most_one_a_shard(count, cpus, readers):
    made = planned(count=count, machine=Machine(cpus, 3_000_000))
    assert step(made, "read").readers == readers


@pytest.mark.parametrize("tier", ["columns", "disk", "stream"])
def test_evaluation_is_complete_in_order_and_never_augmented(tier):
    made = planned(training=False, batch_size=300, tier=tier)
    kept = [] if tier == "stream" else [tier, "gather"]
    assert names(made) == [*DECODE[:-1], *kept, "normalise", "prefetch"]
    assert isinstance(step(made, "shards"), ListShards)
    assert step(made, "read").in_a_row == 1  # one file after the other
    assert step(made, "batch").drop_remainder is False
    assert made.steps_per_epoch == 7  # 2,000 records: six full batches and a short one


@pytest.mark.parametrize(("records", "batch", "steps"), [(1000, 128, 15), (10, 128, 1), (64, 128, 1)])
def test_a_training_epoch_is_the_batches_its_records_fill_and_at_least_one(records, batch, steps):
    assert planned(records=records, batch_size=batch).steps_per_epoch == steps


def test_every_step_gives_its_reason_and_the_last_is_a_prefetch():
    made = planned()
    assert all(step.does and step.reason for step in made.stages)
    assert names(made)[-1] == "prefetch"
    assert len(made.describe().splitlines()) == 1 + len(made.stages)
    assert made.summary().step_names[0] == "verify"


def test_a_split_without_records_is_refused():
    with pytest.raises(InfeedError, match="no records"):
        planned(records=0)


SPLITS = [ShardFile(f"Split-{split}/part-0", 1000, 50_000, split=split) for split in ("old", "new")]


def mixed(*, epochs=None, training=True, machine=MACHINE, sizes=SAMPLE, devices=(), **options):
    spec = FeedSpec(training, sizes, class_names=("no", "yes"), epochs=epochs, devices=devices)
    return plan(SPLITS, spec, FeedOptions(**options), machine)


@pytest.mark.parametrize("tier", ["columns", "disk"])
def test_rows_drawn_by_share_are_drawn_from_all_of_the_split(tier):
    gather = step(mixed(tier=tier, mix={"old": 1, "new": 3}, machine=Machine(4, 1000)), "gather")
    assert gather.weights == SamplingWeights("split", ("old", "new"), (1.0, 3.0))
    assert gather.window is None
    assert "sampled by share and shuffled by seed and epoch: 25 % of 'old', 75 % of 'new'" in gather.does
    assert gather.reason.startswith("set by FeedOptions.mix")


def test_evaluation_data_is_never_drawn_by_share():
    assert step(mixed(training=False, class_shares="equal"), "gather") == GatherInOrder(size=128)


@pytest.mark.parametrize("cached", [True, False])
def test_a_stream_says_why_it_cannot_draw_classes_by_share(cached):
    with pytest.raises(InfeedError, match=r"tier stream(.|\n)*class_weight"):
        mixed(tier="stream", class_shares="equal", cache_records=cached)


def test_batches_of_similar_lengths_are_gathered_by_the_host_from_kept_rows():
    ragged = RecordSizes(100, 400, is_dense=False, is_numeric=False)
    for options in ({"tier": "columns"}, {"tier": "disk"}, {"tier": "stream", "cache_records": True}):
        made = mixed(sizes=ragged, bucket_by="words", devices=("CPU:0",), **options)
        assert step(made, "gather").bucket_by == "words"
    with pytest.raises(InfeedError) as raised:
        mixed(sizes=ragged, bucket_by="words", tier="stream", cache_records=False)
    assert raised.value.where == "FeedOptions.bucket_by"
    with pytest.raises(InfeedError, match="by the length of a feature"):
        mixed(bucket_by="words", tier="device", devices=("GPU:0",))


def test_a_stream_mixes_splits_window_by_window():
    made = mixed(tier="stream", cache_records=False, mix={"old": 1, "new": 1}, shuffle_records=100)
    assert names(made)[1:6] == ["shards", "read", "mix", "prefetch", "batch"]
    assert "windows of 100 records by share" in step(made, "mix").does


def test_a_stream_that_holds_its_records_mixes_splits():
    made = mixed(tier="stream", cache_records=True, mix={"old": 1, "new": 1})
    assert step(made, "gather").weights.by == "split"


def test_what_is_read_once_is_not_kept_unless_that_is_cheap():
    large = [ShardFile("Split-train/part-0", 1_000_000, 50_000_000)]
    made = plan(large, FeedSpec(True, SAMPLE, epochs=1), FeedOptions(), Machine(4, 1 << 40))
    assert made.tier == "stream"
    assert made.reason == (
        "1,000,000 records take 400 MB decoded, and a single epoch does not benefit from a decoded cache"
    )
    assert "cache" not in names(made)
    assert plan(large, FeedSpec(True, SAMPLE, epochs=2), FeedOptions(), Machine(4, 1 << 40)).tier == "columns"
    assert mixed(epochs=1).tier == "columns"


@pytest.mark.parametrize("tier", ["columns", "disk", "stream"])
def test_evaluation_batches_of_one_shape_are_filled_up_before_the_last_prefetch(tier):
    spec = FeedSpec(False, SAMPLE, static_shapes=True)
    made = plan(shards(1, 1000), spec, FeedOptions(batch_size=300, tier=tier), MACHINE)
    assert names(made)[-2:] == ["fill", "prefetch"]
    assert "fill" not in names(
        plan(shards(1, 1000), FeedSpec(True, SAMPLE, static_shapes=True), FeedOptions(), MACHINE)
    )
