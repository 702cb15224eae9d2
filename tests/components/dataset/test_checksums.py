from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest

from infeed.components.dataset import checksums, records
from infeed.components.dataset.checksums import Expected, WrongFileError, verify


@pytest.fixture(autouse=True)
def nothing_is_remembered_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "_seen", set())


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
    monkeypatch.setattr(checksums, "_seen", set())


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
