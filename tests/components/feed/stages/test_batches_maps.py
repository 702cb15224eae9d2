"""The stages of a user's functions in the plan. `test_user_maps.py` holds the batches that they make."""

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.feed.capacity import Machine, RecordSizes
from infeed.components.feed.options import FeedOptions, MapFunction
from infeed.components.feed.plan import FeedSpec, plan
from infeed.components.feed.shards import ShardFile
from infeed.components.feed.stages.batches import map_stages

EXAMPLES, BATCHES = MapFunction("mine:a"), MapFunction("mine:b", "numpy", processes=3, evaluation=True)


def names(devices=(), *, training=True, augmentation="", **options):
    spec = FeedSpec(training, RecordSizes(2, 8), augmentation, devices=devices)
    made = plan([ShardFile("a", 100, 100)], spec, FeedOptions(batch_size=10, **options), Machine(2, 1 << 30))
    return [stage.name for stage in made.stages]


def test_examples_come_before_batches_and_evaluation_takes_what_asks_for_it():
    options = FeedOptions(map_batches=BATCHES, map_examples=EXAMPLES)
    assert [stage.option for stage in map_stages(options, training=True)] == ["map_examples", "map_batches"]
    assert [stage.option for stage in map_stages(options, training=False)] == ["map_batches"]


def test_a_stage_names_its_function_its_processes_and_its_option():
    first, second = map_stages(FeedOptions(map_batches=BATCHES, map_examples=EXAMPLES), training=True)
    assert "mine:a" in first.does
    assert "3 other processes" in second.does
    assert "FeedOptions.map_batches" in second.reason


@pytest.mark.parametrize("tier", ["columns", "disk", "stream"])
def test_maps_come_after_what_is_kept_and_before_augmentation(tier):
    stages = names(tier=tier, augmentation="flips", map_batches="mine:b")
    place = stages.index("map_batches")
    assert stages[place + 1] == "augment"
    assert not {"columns", "disk", "cache", "gather", "cut", "transform"} & set(stages[place:])


def test_steps_call_a_function_where_their_rows_are_and_a_host_hands_over_whole_batches():
    assert names(("GPU:0",), tier="device", map_batches="mine:b")[-2:] == ["device", "map_batches"]
    assert names(("CPU:0",), map_batches="mine:b")[-1] == "prefetch"


@pytest.mark.parametrize(
    ("devices", "given", "word"), [(("GPU:0", "GPU:1"), EXAMPLES, "whole batches"), (("GPU:0",), BATCHES, "NumPy")]
)
def test_devices_refuse_what_the_host_has_to_call(devices, given, word):
    with pytest.raises(InfeedError, match=word):
        names(devices, tier="device", map_batches=given)
