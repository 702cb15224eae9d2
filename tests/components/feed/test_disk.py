import os
import threading
import time

import pytest
import tensorflow as tf

from infeed.components.errors import InfeedError
from infeed.components.feed import disk


def counted(times):
    """Three batches; every reading of them is counted."""

    def batches():
        times.append(1)
        for number in range(3):
            yield [number * 2, number * 2 + 1]

    return tf.data.Dataset.from_generator(batches, output_signature=tf.TensorSpec([None], tf.int64))


def age(entry, seconds):
    os.utime(entry, (time.time() - seconds,) * 2)


def test_what_was_kept_is_not_read_a_second_time(tmp_path):
    times = []
    for _ in range(2):
        columns = disk.keep(counted(times), str(tmp_path), "key", 0)
        assert columns.take(tf.constant([5, 0], tf.int64)).numpy().tolist() == [5, 0]
    assert len(times) == 1


def test_another_key_is_another_entry(tmp_path):
    times = []
    for key in ("one", "two"):
        disk.keep(counted(times), str(tmp_path), key, 0)
    assert len(times) == 2


def test_nothing_half_written_is_left_or_read(tmp_path, monkeypatch):
    written = []

    def add(writer, column):
        written.append(column)
        if len(written) > 1:  # the second batch finds the disk full
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(disk._Writer, "add", add)
        with pytest.raises(InfeedError, match=r"cannot be kept on disk: No space left(.|\n)*tier='stream'"):
            disk.keep(counted([]), str(tmp_path), "key", 0)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    assert disk.keep(counted([]), str(tmp_path), "key", 0).rows == 6


def test_of_several_workers_on_one_host_one_writes(tmp_path):
    times = []
    workers = [threading.Thread(target=disk.keep, args=(counted(times), str(tmp_path), "key", 0)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(times) == 1


def test_entries_unused_for_a_month_are_removed_when_another_is_written(tmp_path):
    for key in ("old", "recent"):
        disk.keep(counted([]), str(tmp_path), key, 0)
    age(tmp_path / "old", 31 * 24 * 3600)
    age(tmp_path / "recent", 29 * 24 * 3600)
    disk.keep(counted([]), str(tmp_path), "new", 0)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["new", "recent"]


def test_where_room_is_needed_what_was_used_longest_ago_goes_first(tmp_path, monkeypatch):
    for seconds, key in enumerate(("newest", "middle", "oldest")):
        disk.keep(counted([]), str(tmp_path), key, 0)
        age(tmp_path / key, 100 * seconds)

    def usage(_):
        entries = [path for path in tmp_path.iterdir() if path.is_dir() and not path.name.startswith(".")]
        return type("Usage", (), {"free": 1000 - 200 * len(entries)})

    monkeypatch.setattr(disk.shutil, "disk_usage", usage)
    disk.keep(counted([]), str(tmp_path), "new", 700)  # 400 are free: two have to go
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["new", "newest"]


def test_columns_in_use_outlive_the_removal_of_their_entry(tmp_path):
    columns = disk.keep(counted([]), str(tmp_path), "key", 0)
    disk.shutil.rmtree(tmp_path / "key")
    assert columns.take(tf.constant([3], tf.int64)).numpy().tolist() == [3]
