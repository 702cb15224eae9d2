"""Columns in files: written once, whole or not at all, and removed where room is needed."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import cache
from infeed.components.dataset.column_files import CachedColumn, ColumnIndex, FileWriter, kept, mapped

HOLDS = """
import sys, time
from pathlib import Path
from infeed.components.base.locks import alone
with alone(Path(sys.argv[1]), doing="busy", where="there", do="wait"):
    print(flush=True)
    time.sleep(60)
"""


def writing(times, wait=lambda: None):
    """Writes a column of six numbers; every time is counted."""

    def write(folder):
        times.append(1)
        writer = FileWriter(f"{folder}/0.values")
        for number in range(3):
            writer.add(np.array([number * 2, number * 2 + 1]))
            wait()
        return ColumnIndex.of([CachedColumn("int64", False, (), writer.items, (), (writer.written(),))])

    return write


def opened(entry, index):
    return mapped(f"{entry}/0.values", index.columns[0].type, index.rows)


def keep(times, folder, key, takes=0):
    return kept(str(folder), key, writing(times), opened, takes)


def age(entry, seconds):
    os.utime(entry, (time.time() - seconds,) * 2)


def test_what_was_kept_is_not_read_a_second_time(tmp_path):
    times = []
    for _ in range(2):
        columns = keep(times, tmp_path, "key")
        assert columns[[5, 0]].tolist() == [5, 0]
    assert len(times) == 1


def test_another_key_is_another_entry(tmp_path):
    times = []
    for key in ("one", "two"):
        keep(times, tmp_path, key)
    assert len(times) == 2


def test_nothing_half_written_is_left_or_read(tmp_path, monkeypatch):
    written = []

    def add(writer, column):
        written.append(column)
        if len(written) > 1:  # the second array finds the disk full
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(FileWriter, "add", add)
        with pytest.raises(InfeedError, match=r"cache: No space left(.|\n)*cache_dir"):
            keep([], tmp_path, "key")
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    assert keep([], tmp_path, "key").tolist() == [0, 1, 2, 3, 4, 5]


def test_of_several_workers_on_one_host_one_writes(tmp_path):
    times = []
    workers = [threading.Thread(target=keep, args=(times, tmp_path, "key")) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(times) == 1


def test_entries_unused_for_a_month_are_removed_when_another_is_written(tmp_path):
    for key in ("old", "recent"):
        keep([], tmp_path, key)
    age(tmp_path / "old", 31 * 24 * 3600)
    age(tmp_path / "recent", 29 * 24 * 3600)
    keep([], tmp_path, "new")
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["new", "recent"]


def test_where_room_is_needed_what_was_used_longest_ago_goes_first(tmp_path, monkeypatch):
    for seconds, key in enumerate(("newest", "middle", "oldest")):
        keep([], tmp_path, key)
        age(tmp_path / key, 100 * seconds)

    def usage(_):
        entries = [path for path in tmp_path.iterdir() if path.is_dir() and not path.name.startswith(".")]
        return type("Usage", (), {"free": 1000 - 200 * len(entries)})

    monkeypatch.setattr(cache.shutil, "disk_usage", usage)
    keep([], tmp_path, "new", 700)  # 400 are free: two have to go
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["new", "newest"]


def test_columns_in_use_outlive_the_removal_of_their_entry(tmp_path):
    columns = keep([], tmp_path, "key")
    cache.shutil.rmtree(tmp_path / "key")
    assert columns.tolist() == [0, 1, 2, 3, 4, 5]


def test_what_a_killed_writer_left_is_removed_by_the_next_of_the_same_and_of_other_columns(tmp_path):
    for left, next_key in (("same", "same"), ("other", "another")):
        keep([], tmp_path, left)
        (tmp_path / left).rename(tmp_path / f".abc.{left}")  # as it lies there before it is whole
        keep([], tmp_path, next_key)
        assert not (tmp_path / f".abc.{left}").exists()


def test_what_a_living_writer_writes_stays(tmp_path):
    began, done = threading.Event(), threading.Event()

    def wait():
        began.set()
        done.wait(30)

    writer = threading.Thread(target=kept, args=(str(tmp_path), "slow", writing([], wait), opened, 0))
    writer.start()
    began.wait(30)
    keep([], tmp_path, "quick", 1e30)  # there is no room
    done.set()
    writer.join()
    assert (tmp_path / "slow").exists()


def test_the_lock_of_a_killed_writer_is_free(tmp_path):
    writer = subprocess.Popen([sys.executable, "-c", HOLDS, tmp_path / ".key.lock"], stdout=subprocess.PIPE)
    writer.stdout.readline()
    threading.Timer(0.5, writer.kill).start()
    assert keep([], tmp_path, "key").tolist() == [0, 1, 2, 3, 4, 5]
    writer.wait()


def test_other_folders_are_nobodys_to_remove(tmp_path):
    for name in ("photos", ".ssh", ".config.d"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "columns.json.txt").touch()
        age(tmp_path / name, 365 * 24 * 3600)
    keep([], tmp_path, "key", 1e30)
    assert {"photos", ".ssh", ".config.d"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("damaged", ["columns.json", "0.values"])
def test_an_entry_of_which_a_file_was_changed_is_written_again(tmp_path, damaged):
    times = []
    keep(times, tmp_path, "key")
    file = tmp_path / "key" / damaged
    file.write_bytes(file.read_bytes().replace(b'"values": 6', b'"values": 5').replace(b"\x05", b"\x06"))
    assert keep(times, tmp_path, "key").tolist() == [0, 1, 2, 3, 4, 5]
    assert len(times) == 2
