"""The tier `device`: where columns lie on the devices that train, where not and why, and how much room there is."""

import sys
from types import SimpleNamespace

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.feed.capacity import Capacity, Machine, RecordSizes, accelerators
from infeed.components.feed.options import FeedOptions

SIZES = RecordSizes(record_bytes=100, feature_bytes=400)
GPUS = ("/job:worker/replica:0/task:0/device:GPU:0", "/job:worker/replica:0/task:0/device:GPU:1")
CPUS = ("/device:CPU:0", "/device:CPU:1")


def capacity(records, *, devices=GPUS, free=4_000_000, memory=3_000_000, epochs=None, why="", **options):
    return Capacity(
        records, SIZES, FeedOptions(**options), Machine(4, memory, 0, free), epochs, devices=devices, host_only=why
    )


def test_columns_that_fit_in_a_quarter_of_each_accelerator_lie_there():
    reason = "2,500 records take 1.0 MB decoded, and 1.0 MB of each device's memory is available"
    assert capacity(2500).tier() == ("device", reason)
    assert capacity(2500, free=2_000_000, device_fraction=0.5).tier()[0] == "device"


@pytest.mark.parametrize(
    ("records", "told", "tier", "why"),
    [
        (2500, {"free": 3_999_999}, "columns", "only 1.0 MB of each device's memory is available"),
        (2501, {}, "stream", "only 1.0 MB of each device's memory is available"),
        (2500, {"free": None}, "columns", "the devices do not report their memory"),
        (2500, {"why": "a feature is text, ragged or sparse"}, "columns", "a feature is text, ragged or sparse"),
    ],
)
def test_what_does_not_lie_there_says_why_beside_what_is_done_instead(records, told, tier, why):
    made, reason = capacity(records, **told).tier()
    assert made == tier
    assert reason.endswith(f"; not on the devices: {why}")


def test_one_epoch_of_much_data_is_streamed_to_accelerators_too():
    assert capacity(1_000_000, free=1 << 50, epochs=1).tier()[0] == "stream"
    assert capacity(1_000_000, free=1 << 50, epochs=2).tier()[0] == "device"


def test_where_cpus_train_nothing_is_placed_unless_it_is_asked_for():
    made = capacity(2500, devices=CPUS, free=None).tier()
    assert made == ("columns", "2,500 records take 1.0 MB decoded, and 1.0 MB of memory is available")


def test_cpus_share_the_memory_of_the_machine_for_a_copy_each():
    assert capacity(1250, devices=CPUS, free=None, tier="device").tier() == (
        "device",
        "set by FeedOptions.tier; 1,250 records take 500 kB decoded, and 500 kB of each device's memory is available",
    )
    with pytest.raises(InfeedError, match="tier is 'device', but only 500 kB of each device's memory is available"):
        capacity(1251, devices=CPUS, free=None, tier="device").tier()


def test_a_device_that_does_not_tell_is_given_what_was_asked_for():
    _, reason = capacity(2500, free=None, tier="device").tier()
    assert reason.endswith("the devices do not report their memory")


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"free": 3_999_999}, r"only 1\.0 MB of each device's memory is available; 2,500 records take 1\.0 MB decoded"),
        ({"why": "a feature is text, ragged or sparse"}, "a feature is text, ragged or sparse; 2,500 records take"),
    ],
)
def test_what_is_asked_for_and_cannot_be_is_refused(told, message):
    with pytest.raises(InfeedError, match=rf"tier is 'device', but {message}(.|\n)*FeedOptions\.tier(.|\n)*columns"):
        capacity(2500, tier="device", **told).tier()


def tensorflow(monkeypatch, limits, used):
    """As on a machine whose devices, by name, have so many bytes and have given away so many."""

    def get_memory_info(name):
        if name not in used:
            raise ValueError(f"{name} does not tell")
        return {"current": used[name]}

    config = SimpleNamespace(experimental=SimpleNamespace(get_memory_info=get_memory_info))
    told = [SimpleNamespace(name=f"/device:{name}", memory_limit=limit) for name, limit in limits.items()]
    device_lib = SimpleNamespace(list_local_devices=lambda: told)
    client = SimpleNamespace(device_lib=device_lib)
    errors = SimpleNamespace(OpError=OSError)
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(config=config, errors=errors))
    monkeypatch.setitem(sys.modules, "tensorflow.python.client", client)
    monkeypatch.setitem(sys.modules, "tensorflow.python.client.device_lib", device_lib)


def test_the_accelerator_with_the_least_free_memory_counts(monkeypatch):
    assert accelerators((*CPUS, *GPUS)) == GPUS
    tensorflow(monkeypatch, {"CPU:0": 256, "GPU:0": 1000, "GPU:1": 900}, {"GPU:0": 10, "GPU:1": 0})
    assert Machine.here(devices=GPUS).device_bytes == 900
    tensorflow(monkeypatch, {"CPU:0": 256, "GPU:0": 1000, "GPU:1": 900}, {"GPU:0": 110, "GPU:1": 0})
    assert Machine.here(devices=GPUS).device_bytes == 890


def test_nothing_is_known_of_cpus_and_of_devices_that_do_not_tell(monkeypatch):
    tensorflow(monkeypatch, {"CPU:0": 256, "GPU:0": 1000}, {"GPU:0": 10})
    assert Machine.here().device_bytes is None
    assert Machine.here(devices=CPUS).device_bytes is None
    assert Machine.here(devices=GPUS).device_bytes is None  # the second is not there
