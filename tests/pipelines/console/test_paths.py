"""What a command refuses of a path before it looks at anything else."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from infeed.components.base.errors import InfeedError
from infeed.components.kubeflow import disk
from infeed.pipelines.console.exit_codes import Command
from infeed.pipelines.console.paths import InputFolder, InputPath, MappedFolder, OutputFile, OutputFolder, OutputPath


@click.command(cls=Command)
@click.option("--into", type=OutputFile(), multiple=True)
@click.option("--of", type=InputPath(), multiple=True)
@click.option("--data", type=InputPath(), expose_value=False)
@click.option("--by-default", type=OutputFile(), default="/proc/none/x")
@click.option("--json", "as_json", is_flag=True)
def writing(into: tuple[str, ...], of: tuple[str, ...], by_default: str, as_json: bool) -> None:
    click.echo("written")


def test_all_paths_that_are_given_are_checked_and_no_defaults(tmp_path: Path) -> None:
    assert CliRunner().invoke(writing, ["--into", str(tmp_path / "a"), "--into", str(tmp_path / "b")]).exit_code == 0
    done = CliRunner().invoke(writing, ["--into", str(tmp_path / "a"), "--into", str(tmp_path), "--json"])
    assert done.exit_code == 2
    assert json.loads(done.stdout)["error"]["where"] == f"--into {tmp_path}"
    assert list(tmp_path.iterdir()) == []


def test_inputs_that_a_pod_has_no_room_for_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [tmp_path / "dataset", tmp_path / "graph"]
    for folder in folders:
        folder.mkdir()
        (folder / "file").write_bytes(b"x" * 60)
    (tmp_path / "volume").write_bytes(b"x" * 60)
    given = [word for folder in folders for word in ("--of", str(folder))] + ["--of", "s3://not/asked"]
    given += ["--data", str(tmp_path / "volume")]
    for limit, code in (("120", 0), ("119", 2)):
        monkeypatch.setenv(disk.LIMIT_VARIABLE, limit)
        done = CliRunner().invoke(writing, [*given, "--json"])
        assert done.exit_code == code
    assert json.loads(done.stdout)["error"]["where"] == "deploy.resources"


def test_a_file_takes_the_place_of_a_file_and_of_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    OutputFile().check(str(tmp_path / "file"), "--into")
    OutputPath().check(str(tmp_path), "--into")
    for path, found in ((tmp_path, "a folder is there"), (Path("/dev/null"), "a device or a pipe is there")):
        with pytest.raises(InfeedError, match=found):
            OutputFile().check(str(path), "--into")


@pytest.mark.parametrize("uri", ["gs://bucket/data", "s3://bucket/data"])
def test_a_place_in_a_store_is_left_to_the_store(uri: str) -> None:
    for kind in (OutputPath(), OutputFile(), OutputFolder(), MappedFolder()):
        kind.check(uri, "--into")


def test_the_folder_of_a_map_is_what_follows_the_place(tmp_path: Path) -> None:
    MappedFolder().check(f"gs://bucket={tmp_path}", "--map")
    (tmp_path / "file").touch()
    with pytest.raises(InfeedError, match="is a file, not a folder"):
        MappedFolder().check(f"gs://bucket={tmp_path}/file", "--map")


def test_a_folder_to_read_is_there(tmp_path: Path) -> None:
    InputFolder().check(str(tmp_path), "--project")
    with pytest.raises(InfeedError, match="no such folder") as raised:
        InputFolder().check(str(tmp_path / "none"), "--project")
    assert raised.value.where == "--project"


def test_nul_is_in_no_path() -> None:
    with pytest.raises(InfeedError, match="NUL"):
        OutputFile().check("a\0b", "--into")


def test_a_mapped_folder_that_is_missing_is_refused(tmp_path: Path) -> None:
    MappedFolder().check("gs://bucket=gs://bucket", "--map")
    with pytest.raises(InfeedError, match="does not exist") as error:
        MappedFolder().check(f"gs://bucket={tmp_path}/missing", "--map gs://bucket")
    assert error.value.where == "--map gs://bucket"
