from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from infeed.components.dataset import files
from infeed.components.example_gen import local
from infeed.components.example_gen.local import clean


def fill(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def found(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


@pytest.fixture(params=["exchange", "renames"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways, whatever this machine's file system can."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.EINVAL, "cannot")

    if request.param == "renames":
        monkeypatch.setattr(local, "_exchange", refuse)
    return str(request.param)


def test_a_folder_takes_the_place_of_another(tmp_path: Path, by: str) -> None:
    fill(tmp_path, "new/a", "old/b", "old.replaced/mine")
    local.put_folder(f"{tmp_path}/new", f"{tmp_path}/old")
    assert found(tmp_path) == {"old/a": "new/a", "old.replaced/mine": "old.replaced/mine"}


def test_a_folder_takes_a_free_name_or_that_of_an_empty_folder(tmp_path: Path, by: str) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("free", "empty"):
        fill(tmp_path, "new/a")
        local.put_folder(f"{tmp_path}/new", f"{tmp_path}/{name}")
    assert found(tmp_path) == {"free/a": "new/a", "empty/a": "new/a"}


def test_content_and_new_name_are_on_the_disk_before_the_old_folder_goes(
    tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, "new/a", "old/b")
    done: list[tuple[str, dict[str, str]]] = []

    def follow(name: str) -> None:
        real = getattr(files, name)
        monkeypatch.setattr(files, name, lambda path: (done.append((name, found(tmp_path))), real(path)))

    for name in ("sync", "sync_names", "remove"):
        follow(name)
    local.put_folder(f"{tmp_path}/new", f"{tmp_path}/old")
    before, after = {"new/a": "new/a", "old/b": "old/b"}, {"old/a": "new/a", "new/b": "old/b"}
    assert done[0] == ("sync", before)
    assert done[-2:] == [("sync_names", after), ("remove", after)]


def test_where_it_fails_what_was_there_is_there(tmp_path: Path, by: str) -> None:
    fill(tmp_path, "old/b")
    with pytest.raises(FileNotFoundError):
        local.put_folder(f"{tmp_path}/missing", f"{tmp_path}/old")
    assert found(tmp_path) == {"old/b": "old/b"}


@pytest.mark.parametrize(
    ("left", "mended"),
    [
        (["new/a", ".old.replaced/b"], {"new/a": "new/a", "old/b": ".old.replaced/b"}),  # killed after one rename
        (["old/a", ".old.replaced/b"], {"old/a": "old/a"}),  # after two
        (["old/a"], {"old/a": "old/a"}),
        ([], {}),
    ],
)
def test_the_next_start_mends_what_a_killed_process_left(
    tmp_path: Path, left: list[str], mended: dict[str, str]
) -> None:
    fill(tmp_path, *left)
    local.mend(f"{tmp_path}/old")
    assert found(tmp_path) == mended


def test_while_two_names_are_exchanged_neither_is_ever_missing(tmp_path: Path) -> None:
    fill(tmp_path, "one/a", "two/b")
    try:
        local._exchange(f"{tmp_path}/one", f"{tmp_path}/two")
    except OSError as error:
        pytest.skip(f"this file system cannot: {error}")
    assert found(tmp_path) == {"one/b": "two/b", "two/a": "one/a"}
    seen = os.fork()
    if not seen:  # exchanges as long as it lives
        while True:
            local._exchange(f"{tmp_path}/one", f"{tmp_path}/two")
    try:
        assert all(os.path.exists(tmp_path / "one") for _ in range(20_000))
    finally:
        os.kill(seen, 9)
        os.waitpid(seen, 0)


def test_clean_removes_what_a_killed_process_left_and_nothing_else(tmp_path: Path) -> None:
    for folder in (tmp_path / ".out.unfinished" / ".ingest" / "level-0", tmp_path / "out" / "Split-train"):
        folder.mkdir(parents=True)
    assert clean(str(tmp_path / "out")) == [str(tmp_path / ".out.unfinished")]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert clean(str(tmp_path / "out")) == []


def test_clean_keeps_a_whole_dataset_on_a_store_and_removes_half_of_one(s3: str) -> None:
    for name in (
        "half/Split-train/a",
        "half/.ingest/b",
        "whole/Split-train/a",
        "whole/.ingest/b",
        "whole/manifest.json",
    ):
        files.write_bytes(f"{s3}/{name}", b"x")
    assert sorted(clean(f"{s3}/half")) == [f"{s3}/half/.ingest", f"{s3}/half/Split-train"]
    assert clean(f"{s3}/whole") == [f"{s3}/whole/.ingest"]
    assert files.exists(f"{s3}/whole/Split-train/a")
