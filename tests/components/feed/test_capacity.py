"""Sizes beside limits, and limits of this machine; the plans that follow from them are in `test_plan.py`."""

import shutil
from types import SimpleNamespace

import pytest

from infeed.components.feed.capacity import Capacity, Machine, RecordSizes, Window
from infeed.components.feed.options import FeedOptions

SIZES = RecordSizes(record_bytes=100, feature_bytes=400)


def capacity(records, *, memory=3_000_000, disk=0, epochs=None, sizes=SIZES, cpus=4, **options):
    return Capacity(records, sizes, FeedOptions(**options), Machine(cpus, memory, disk), epochs)


@pytest.mark.parametrize(
    ("records", "disk", "tier"),
    [(2500, 0, "columns"), (2501, 0, "stream"), (2501, 4_000_000, "disk"), (5001, 4_000_000, "stream")],
)
def test_the_first_tier_that_holds_the_decoded_split_is_taken(records, disk, tier):
    assert capacity(records, disk=disk).tier()[0] == tier  # a third of memory, half of the disk


def test_one_epoch_of_much_data_is_streamed_and_of_little_is_not():
    much = 64 * 2**20 // 400 + 1
    assert capacity(much, memory=1 << 40, epochs=1).tier()[0] == "stream"
    assert capacity(much - 1, memory=1 << 40, epochs=1).tier()[0] == "columns"
    assert capacity(much, memory=1 << 40, epochs=2).tier()[0] == "columns"


def test_serialized_records_are_cached_where_they_fit_and_are_read_again():
    assert capacity(10_000).cache()[0]
    assert not capacity(10_001).cache()[0]
    assert capacity(10_000, epochs=1).cache() == (False, "each record is read only once")
    assert capacity(10_001, cache_records=True).cache() == (True, "set by FeedOptions.cache_records")


def test_three_windows_of_a_shuffle_fit_and_none_is_larger_than_is_read_in_time():
    assert capacity(2000).shuffle()[0] == 2000
    assert capacity(20_000).shuffle()[0] == 3333
    assert capacity(200_000, memory=1 << 40).shuffle()[0] == 100_000
    assert capacity(50, shuffle_records=100).shuffle() == (50, "set by FeedOptions.shuffle_records")


def test_a_block_on_disk_is_whole_batches_of_about_a_megabyte():
    assert capacity(2500, batch_size=100).window() is None  # all rows fit
    assert capacity(10_000, batch_size=100, memory=9_000_000).window() == Window(block=2600, blocks=2)
    assert capacity(10_000, batch_size=5000).window() == Window(block=5000, blocks=1)


@pytest.mark.parametrize(
    ("shards", "cpus", "asked", "readers", "reason"),
    [
        (9, 4, None, 4, "one reader for each core"),
        (3, 4, None, 3, "one for each shard"),
        (9, 4, 6, 6, "set by FeedOptions.readers"),
        (3, 4, 6, 3, "one for each shard"),
    ],
)
def test_readers_are_one_a_core_or_as_many_as_asked_for_and_never_more_than_shards(
    shards, cpus, asked, readers, reason
):
    assert capacity(100, cpus=cpus, readers=asked).readers(shards) == (readers, reason)


def test_small_rows_are_made_many_in_a_call_and_pictures_few():
    assert capacity(100).rows_a_call() == 4096
    assert capacity(100).batches_a_call() == 32
    pictures = RecordSizes(10_000, 150_000)
    assert capacity(100, sizes=pictures).rows_a_call() == 27
    assert capacity(100, sizes=pictures).batches_a_call() == 1
    assert capacity(100, sizes=RecordSizes(100, 400, can_split=False)).batches_a_call() == 1


def write(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def test_a_cgroup_v2_quota_limits_the_cores(tmp_path):
    write(tmp_path, cpu_dot_max="50000 100000")
    assert Machine.here(tmp_path).cpus == 1


def test_a_cgroup_v2_memory_limit_counts_not_the_machines_memory(tmp_path):
    write(tmp_path, memory_dot_max="123456789")
    assert Machine.here(tmp_path).memory_bytes == 123456789


def test_cgroup_v1_limits_are_read_too(tmp_path):
    write(
        tmp_path,
        cpu__cpu_dot_cfs_quota_us="100000",
        cpu__cpu_dot_cfs_period_us="100000",
        memory__memory_dot_limit_in_bytes="987654321",
    )
    assert Machine.here(tmp_path) == Machine(cpus=1, memory_bytes=987654321)


def test_no_limit_means_the_whole_machine(tmp_path):
    unlimited = Machine.here(tmp_path)
    write(tmp_path, cpu_dot_max="max 100000", memory_dot_max="max")
    assert Machine.here(tmp_path) == unlimited
    assert unlimited.cpus >= 1
    assert unlimited.memory_bytes > 1 << 20


def test_free_disk_counts_what_our_own_files_take(tmp_path, monkeypatch):
    def usage(folder):  # of a disk on which nobody else writes meanwhile
        return SimpleNamespace(free=(1 << 30) - sum(f.stat().st_blocks * 512 for f in tmp_path.rglob("*.values")))

    monkeypatch.setattr(shutil, "disk_usage", usage)
    assert Machine.here(tmp_path).disk_bytes == 0  # no folder, no disk
    cache = tmp_path / "not" / "yet"
    before = Machine.here(tmp_path, str(cache)).disk_bytes
    assert before == 1 << 30
    (cache / "key").mkdir(parents=True)
    (cache / "key" / "0.values").write_bytes(bytes(1 << 16))
    assert Machine.here(tmp_path, str(cache)).disk_bytes == before


def test_what_others_keep_in_the_cache_folder_is_not_free_and_a_dangling_link_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1 << 30))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to("nowhere")
    (tmp_path / "data" / "large").write_bytes(bytes(1 << 20))
    assert Machine.here(tmp_path, str(tmp_path)).disk_bytes == 1 << 30
