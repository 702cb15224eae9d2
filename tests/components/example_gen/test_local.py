"""`infeed.ingest`: the command as a function."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.dataset.manifest import Manifest
from infeed.components.dataset.options import IngestOptions, ShardOptions
from infeed.components.example_gen import local
from infeed.components.example_gen.local import clean, ingest


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b\n" + "".join(f"{row},x\n" for row in range(30)))
    return str(path)


def test_a_file_becomes_a_dataset(table, tmp_path):
    output = str(tmp_path / "out")
    options = IngestOptions(shards=ShardOptions(count=2))
    written = ingest(table, output, splits={"all": 1}, options=options, source_options={"header": True}, workers=1)
    assert written == Manifest.read(output)
    assert [column.name for column in written.schema] == ["a", "b"]
    assert (written.splits["all"].records, len(written.splits["all"].shards)) == (30, 2)


def test_by_default_two_rows_of_three_are_for_training(table, tmp_path):
    assert list(ingest(table, str(tmp_path / "out")).splits) == ["train", "eval"]


def test_rows_without_a_label_are_accounted_for_as_filtered(tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n1,\n2,p\n3,q\n,p\n,\n6,\n")
    options = IngestOptions(labeled=("y",), required=("a",), on_bad_row="reject")
    written = ingest(tmp_path / "t.csv", tmp_path / "out", splits={"all": 1}, options=options)
    assert (written.rows_read, written.filtered, written.rejected.rows) == (6, 3, 1)
    assert written.splits["all"].records == 2


@pytest.mark.parametrize("pattern", ["*.parquet", "empty.parquet"])
def test_an_input_without_rows_is_named(tmp_path, pattern):
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "empty.parquet")
    with pytest.raises(InfeedError, match="no rows in the input") as raised:
        ingest(tmp_path / pattern, tmp_path / "out")
    assert raised.value.where == str(tmp_path / pattern)


def test_source_and_output_may_be_paths(table, tmp_path):
    assert ingest(Path(table), tmp_path / "out") == Manifest.read(str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"source": None}, r"type NoneType(.|\n)*source \(NoneType\)"),
        ({"output": ["a"]}, r"output is of the type list(.|\n)*infeed.ingest, output\n"),
        ({"splits": ["train"]}, r"splits is \['train'\](.|\n)*names and shares"),
        ({"options": {"level": 3}}, r"options is {'level': 3}(.|\n)*give IngestOptions"),
        ({"source_options": "a"}, r"source_options is 'a'(.|\n)*names and values"),
        ({"workers": "two"}, r"workers is 'two'(.|\n)*a number of processes"),
        ({"workers": -1}, r"workers is -1(.|\n)*1 or more"),
        ({"format": "cvs"}, r"format is 'cvs'(.|\n)*table.csv\n(.|\n)*use one of csv"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(table, tmp_path, given, said):
    with pytest.raises(InfeedError, match=said):
        ingest(**{"source": table, "output": str(tmp_path / "out"), **given})
    assert not (tmp_path / "out").exists()


def test_what_is_there_stays_unless_it_may_be_replaced(table, tmp_path):
    output = str(tmp_path / "out")
    first = ingest(table, output)
    with pytest.raises(InfeedError, match="OUTPUT exists"):
        ingest(table, output)
    assert ingest(table, output, overwrite=True).splits == first.splits
    with pytest.raises(InfeedError, match="source_options"):
        ingest(table, str(tmp_path / "other"), source_options={"delimeter": ";"})


@pytest.mark.parametrize(("source_bytes", "place"), [(1 << 20, "in this process"), (1 << 40, "on 3 processes")])
def test_more_processes_only_where_they_pay(
    source_bytes: int, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from infeed.components.base import machine
    from infeed.components.engine.choice import choose
    from infeed.components.example_gen.formats import open_source
    from infeed.components.example_gen.local import work_of

    for number in range(3):
        (tmp_path / f"{number}.csv").write_text("a\n1\n")
    opened = open_source(str(tmp_path), "csv", IngestOptions(), {}, "")
    opened = replace(opened, provenance=replace(opened.provenance, bytes=source_bytes))
    monkeypatch.setattr(machine, "cpus", lambda: 8)
    assert choose(work_of(opened)).place == place


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
