"""The cache keeps what is used, removes its own old entries alone, and says what they take on the disk."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import cache
from infeed.components.dataset.cache import digest, keep_file, kept_file, kept_folder, remove_old, size_on_disk

DAY = 24 * 3600
KINDS = ("counted", "look", "sample", "shapes", "statistics", "verified")
FOREIGN = ("statistics.json", "photo-1.json", "sample-1.csv", "notes-12.json", "sample-1.arrow.bak")


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_PAUSE_SECONDS", 0.0)


def age(path: Path, days: float) -> None:
    os.utime(path, (time.time() - days * DAY,) * 2)


def test_a_small_file_is_kept_until_it_is_unused_for_a_month(tmp_path: Path) -> None:
    for kind in KINDS:
        keep_file(str(tmp_path), f"{kind}-1.json", kind.encode())
    for kind in KINDS:
        age(tmp_path / f"{kind}-1.json", 29 if kind == "look" else 31)
    assert kept_file(str(tmp_path), "sample-1.json") == b"sample"  # used now
    keep_file(str(tmp_path), "sample-2.arrow", b"")
    assert sorted(os.listdir(tmp_path)) == ["look-1.json", "sample-1.json", "sample-2.arrow"]


def test_beyond_their_bound_the_small_files_used_longest_ago_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in range(1, 5):
        keep_file(str(tmp_path), f"sample-{day}.arrow", b"x" * 4096)
    for day in range(1, 5):
        age(tmp_path / f"sample-{day}.arrow", day)
    monkeypatch.setattr(cache, "_MAX_FILE_BYTES", 3 * 4096)
    remove_old(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["sample-1.arrow", "sample-2.arrow", "sample-3.arrow"]


def test_what_others_have_put_there_stays_and_counts_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.jpg").write_bytes(bytes(1 << 20))
    (tmp_path / "empty").mkdir()
    for name in FOREIGN:
        (tmp_path / name).write_bytes(bytes(1 << 16))
    os.symlink("nowhere", tmp_path / "statistics-1.json")
    os.symlink("photos", tmp_path / f"7-{'0' * 16}")
    there = sorted(os.listdir(tmp_path))
    for name in there:
        os.utime(tmp_path / name, (0, 0), follow_symlinks=False)
    remove_old(tmp_path, 1e30)
    assert sorted(os.listdir(tmp_path)) == there
    assert size_on_disk(str(tmp_path)) == 0


def test_the_size_is_that_of_our_entries(tmp_path: Path) -> None:
    keep_file(str(tmp_path), "sample-1.arrow", b"x" * 8192)
    kept_folder(str(tmp_path), "key", lambda entry: (entry / "0.values").write_bytes(bytes(4096)), str, 0, "do")
    assert 12288 <= size_on_disk(str(tmp_path)) <= 16384
    assert size_on_disk(str(tmp_path / "none")) == 0


def test_an_entry_that_vanishes_meanwhile_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_file(str(tmp_path), "sample-1.arrow", b"x")
    real = cache._is_ours
    monkeypatch.setattr(cache, "_is_ours", lambda entry: real(entry) and (entry.unlink() or True))
    assert size_on_disk(str(tmp_path)) == 0


def test_leftovers_of_killed_writers_go_and_spans_of_a_month_ago(tmp_path: Path) -> None:
    for name in (f"7-{'a' * 16}", f"8-{'b' * 16}", f".9-{'c' * 16}.unfinished", "7-data"):
        (tmp_path / name / "Split-train").mkdir(parents=True)
        age(tmp_path / name, 29 if name.startswith("8") else 31)
    remove_old(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["7-data", f"8-{'b' * 16}"]


def test_a_folder_that_cannot_be_written_keeps_nothing_and_is_no_error_for_small_files(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    keep_file(f"{tmp_path}/file", "sample-1.arrow", b"")
    assert kept_file(f"{tmp_path}/file", "sample-1.arrow") is None
    with pytest.raises(InfeedError) as raised:
        kept_folder(f"{tmp_path}/file", "key", lambda entry: None, lambda entry: None, 0, "name another")
    assert (raised.value.where, raised.value.do) == (f"{tmp_path}/file", "name another")


def test_keys_are_digests_of_lines() -> None:
    assert digest(["a", "b"]) == digest(iter("ab")) != digest(["ab"])
    assert len(digest(["\udcff"])) == 32
