from __future__ import annotations

import os
from pathlib import Path

import pytest

from infeed.components.dataset import files


def touch(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def found(root: Path, pattern: str) -> list[str]:
    return [files.relative(file.path, str(root)) for file in files.glob(str(root), pattern)]


def test_glob_matches_part_by_part_and_sorts(tmp_path: Path) -> None:
    touch(tmp_path, "b.csv", "a.csv", "a.txt", "deep/c.csv")
    assert found(tmp_path, "*.csv") == ["a.csv", "b.csv"]
    assert found(tmp_path, "*/*.csv") == ["deep/c.csv"]
    assert found(tmp_path, "deep/c.csv") == ["deep/c.csv"]


def test_glob_leaves_out_what_tools_leave_behind(tmp_path: Path) -> None:
    touch(tmp_path, "a.csv", ".DS_Store", "_SUCCESS", ".hidden/b.csv", "cat/1.png", "cat/.1.png.part")
    assert found(tmp_path, "*") == ["a.csv"]
    assert found(tmp_path, "*/*") == ["cat/1.png"]


def test_a_uri_names_the_same_file_as_a_path(tmp_path: Path) -> None:
    files.write_bytes(f"file://{tmp_path}/new/a", b"text")
    assert files.read_bytes(f"file://{tmp_path}/new/a") == files.read_bytes(f"{tmp_path}/new/a") == b"text"


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    def write_half() -> None:
        with files.open_output(f"{tmp_path}/a") as file:
            file.write(b"half")
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        write_half()
    assert os.listdir(tmp_path) == []


def test_remove_takes_files_folders_and_nothing(tmp_path: Path) -> None:
    touch(tmp_path, "file", "folder/file")
    for name in ("file", "folder", "never was"):
        files.remove(f"{tmp_path}/{name}")
    assert os.listdir(tmp_path) == []


def test_rename_makes_the_folder_and_replaces(tmp_path: Path) -> None:
    touch(tmp_path, "a")
    files.write_bytes(f"{tmp_path}/to/b", b"old")
    files.rename(f"{tmp_path}/a", f"{tmp_path}/to/b")
    assert files.read_bytes(f"{tmp_path}/to/b") == b"a"


def test_stat_of_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.stat(f"{tmp_path}/nothing")
    assert files.list_files(f"{tmp_path}/nothing") == []
