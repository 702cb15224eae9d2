import pytest

from infeed.components.errors import InfeedError
from infeed.components.feed.capacity import Sample, Window
from infeed.components.feed.machine import Machine
from infeed.components.feed.options import FeedOptions
from infeed.components.feed.plan import FeedSpec, plan
from infeed.components.feed.shards import ShardFile

MACHINE = Machine(cpus=4, memory_bytes=3_000_000)  # a third of it, 1 MB, may be used
SAMPLE = Sample(record_bytes=100, feature_bytes=400)
DECODE = ["shards", "read", "batch", "parse", "transform", "columns"]


def shards(count, records):
    return [ShardFile(f"Split-train/part-{i}.gz", records, records * 50) for i in range(count)]


def planned(*, training=True, count=2, records=1000, machine=MACHINE, **options):
    spec = FeedSpec(training, SAMPLE, augmentation="shifts" if training else "", normalisation="normalises")
    return plan(shards(count, records), spec, FeedOptions(**options), machine)


def names(made):
    return [step.name for step in made.steps]


def step(made, name):
    return next(step for step in made.steps if step.name == name)


def test_a_split_that_fits_decoded_is_held_as_columns():
    made = planned()
    assert made.tier == "columns"
    assert made.reason == "2,000 records take 800.0 KB decoded, and 1.0 MB of memory may be used"
    assert names(made) == [*DECODE, "gather", "augment", "prefetch"]
    assert step(made, "gather").settings == {"shuffle": True, "window": None, "batches": 32}


def test_columns_are_read_in_the_order_of_the_files_whatever_the_number_of_readers():
    assert step(planned(records=900), "read").settings == {"readers": 2, "block": 900}


def test_small_batches_are_gathered_several_in_a_call_and_large_ones_alone():
    assert "32 batches in a call" in step(planned(), "gather").does
    assert step(planned(batch_size=1500), "gather").settings["batches"] == 2
    assert step(planned(batch_size=5000), "gather").settings["batches"] == 1


def test_batches_of_pictures_are_gathered_as_few_in_a_call_as_memory_likes():
    pictures = Sample(record_bytes=10_000, feature_bytes=150_000)
    made = plan(shards(1, 1000), FeedSpec(True, pictures), FeedOptions(batch_size=16), Machine(4, 1 << 40))
    assert step(made, "gather").settings["batches"] == 1


def test_a_split_too_large_for_memory_is_kept_on_disk():
    made = planned(records=5000, machine=Machine(4, 3_000_000, disk_bytes=9_000_000))
    assert made.tier == "disk"
    assert made.reason == (
        "10,000 records take 4.0 MB decoded, only 1.0 MB of memory may be used, but 4.5 MB of disk may be used"
    )
    assert names(made) == [*DECODE[:-1], "disk", "gather", "augment", "prefetch"]
    assert step(made, "disk").settings == {"folder": "~/.cache/tfx-infeed", "bytes": 4_000_000}


def test_on_disk_as_many_blocks_of_rows_are_shuffled_together_as_memory_holds():
    gather = step(planned(records=5000, machine=Machine(4, 3_000_000, disk_bytes=9_000_000), batch_size=100), "gather")
    window = gather.settings["window"]
    assert window == Window(block=2600, blocks=1)  # about a megabyte, whole batches
    assert "blocks of 2,600 rows" in gather.does


def test_on_disk_all_rows_are_shuffled_together_where_memory_holds_them():
    assert step(planned(tier="disk"), "gather").settings["window"] is None


def test_a_split_too_large_decoded_is_streamed_from_cached_records():
    made = planned(records=2000)  # 4,000 x 400 bytes decoded, 4,000 x 100 as records
    assert made.tier == "stream"
    assert names(made) == [
        "shards", "read", "cache", "shuffle", "repeat", "batch", "parse", "transform", "augment", "prefetch",
    ]  # fmt: skip
    assert "they take 400.0 KB of the 1.0 MB that may be used" in step(made, "cache").reason
    assert step(made, "shuffle").settings == {"buffer": 4000}  # what is cached is shuffled in full


def test_nothing_is_cached_that_does_not_fit():
    made = planned(records=10_000)  # 20,000 x 100 bytes
    assert "cache" not in names(made)
    assert step(made, "shuffle").settings == {"buffer": 10_000}
    assert "20,000 records would not fit" in step(made, "shuffle").reason


def test_options_override_the_plan_and_are_named_as_the_reason():
    made = planned(tier="stream", cache_records=False, shuffle_records=7, readers=1)
    assert made.reason.startswith("asked for in FeedOptions.tier")
    assert "cache" not in names(made)
    assert step(made, "shuffle").settings == {"buffer": 7}
    assert step(made, "shuffle").reason.startswith("asked for in FeedOptions.shuffle_records")
    assert step(made, "read").settings["readers"] == 1


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
    assert step(made, "read").settings["readers"] == readers


@pytest.mark.parametrize("tier", ["columns", "disk", "stream"])
def test_evaluation_is_complete_in_order_and_never_augmented(tier):
    made = planned(training=False, batch_size=300, tier=tier)
    kept = [] if tier == "stream" else [tier, "gather"]
    assert names(made) == [*DECODE[:-1], *kept, "normalise", "prefetch"]
    assert not step(made, "shards").settings.get("permute")
    assert step(made, "read").settings["block"] == 1000  # one file after the other
    assert step(made, "batch").settings["drop_remainder"] is False
    assert made.steps_per_epoch == 7  # 2,000 records: six full batches and a short one


@pytest.mark.parametrize(("records", "batch", "steps"), [(1000, 128, 15), (10, 128, 1), (64, 128, 1)])
def test_a_training_epoch_is_the_batches_its_records_fill_and_at_least_one(records, batch, steps):
    assert planned(records=records, batch_size=batch).steps_per_epoch == steps


def test_every_step_gives_its_reason_and_the_last_is_a_prefetch():
    made = planned()
    assert all(step.does and step.reason for step in made.steps)
    assert names(made)[-1] == "prefetch"
    assert len(made.describe().splitlines()) == 1 + len(made.steps)
    assert made.to_dict()["steps"][0]["name"] == "shards"


def test_a_split_without_records_is_refused():
    with pytest.raises(InfeedError, match="there is no record to read"):
        planned(records=0)
