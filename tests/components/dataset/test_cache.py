"""The cache keeps what is used, removes its own old entries alone, and says what they take on the disk."""

from __future__ import annotations

import json
import os
import pickle
import time
from pathlib import Path

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import cache, records
from infeed.components.dataset.cache import (
    Expected,
    WrongFileError,
    digest,
    keep_file,
    kept_file,
    kept_folder,
    remove_old,
    size_on_disk,
    verify,
)

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


@pytest.fixture(autouse=True)
def nothing_is_remembered_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_seen", set())


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose checksums were computed."""
    paths: list[str] = []
    checksum = records.file_crc32c

    def counted(path: str) -> str:
        paths.append(os.path.basename(path))
        return checksum(path)

    monkeypatch.setattr(records, "file_crc32c", counted)
    return paths


def written(path: Path, content: bytes = b"some bytes") -> Expected:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return Expected(str(path), len(content), records.file_crc32c(str(path)))


def another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_seen", set())


def test_a_file_is_read_once_for_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: list[str]
) -> None:
    expected = [written(tmp_path / "data" / name) for name in "ab"]
    read.clear()
    for _ in range(3):
        verify(expected, str(tmp_path / "cache"))
        another_process(monkeypatch)
    assert sorted(read) == ["a", "b"]


def test_where_nothing_can_be_kept_a_file_is_read_once_a_process(tmp_path: Path, read: list[str]) -> None:
    expected = written(tmp_path / "a")
    (tmp_path / "cache").write_text("no folder")
    read.clear()
    for _ in range(3):
        verify([expected], str(tmp_path / "cache"))
    assert read == ["a"]


@pytest.mark.parametrize("marks", [b"", b"{", b"[]", b"null", b'{"a": 1}'])
def test_damaged_notes_are_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: list[str], marks: bytes
) -> None:
    expected, cache = written(tmp_path / "data" / "a"), tmp_path / "cache"
    verify([expected], str(cache))
    (note,) = cache.iterdir()
    note.write_bytes(marks)
    read.clear()
    for _ in range(2):
        another_process(monkeypatch)
        verify([expected], str(cache))
    assert read == ["a"]


def test_a_change_is_found_even_where_size_and_time_stay(tmp_path: Path) -> None:
    expected = written(tmp_path / "a", b"old")
    verify([expected], str(tmp_path / "cache"))
    before = os.stat(expected.path)
    (tmp_path / "a").write_bytes(b"new")
    os.utime(expected.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(WrongFileError, match=r"(?s)checksum \w{8}, expected \w{8}\n.*where: .*/a\n.*do: "):
        verify([expected], str(tmp_path / "cache"))


def test_another_size_is_told_without_reading(tmp_path: Path, read: list[str]) -> None:
    expected = written(tmp_path / "a")
    os.truncate(expected.path, 3)
    read.clear()
    with pytest.raises(WrongFileError, match="3 bytes, expected 10"):
        verify([expected])
    assert not read


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(WrongFileError, match=r"(?s)missing\n.*where: .*/a\n"):
        verify([Expected(f"{tmp_path}/a", 1, "00000000")])


def test_notes_of_one_folder_are_kept_together(tmp_path: Path) -> None:
    expected = [written(tmp_path / "data" / name) for name in "abc"]
    for one in expected:
        verify([one], str(tmp_path / "cache"))
    (note,) = (tmp_path / "cache").iterdir()
    assert sorted(json.loads(note.read_text())) == [one.path for one in expected]


def test_the_error_survives_a_process_boundary() -> None:
    error = pickle.loads(pickle.dumps(WrongFileError("a", "another one")))
    assert (error.path, error.where, error.what) == ("a", "a", "another one")
