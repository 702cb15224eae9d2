from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.kubeflow import disk
from infeed.components.kubeflow.message import PathMap


def test_inputs_larger_than_the_limit_of_the_pod_are_an_error_with_their_sizes(tmp_path: Path) -> None:
    (tmp_path / "examples" / "Split-train").mkdir(parents=True)
    (tmp_path / "examples" / "Split-train" / "data").write_bytes(b"x" * 3_000)
    (tmp_path / "schema").write_bytes(b"x" * 500)
    inputs = [str(tmp_path / name) for name in ("examples", "schema", "none")]
    disk.check_inputs(inputs, None)
    disk.check_inputs(inputs, 3_500)
    with pytest.raises(InfeedError, match=r"3.5 kB(.|\n)*3.0 kB of 'examples'") as error:
        disk.check_inputs(inputs, 3_499, "deploy.resources.Trainer.ephemeral_storage", direct=True)
    assert error.value.where == "deploy.resources.Trainer.ephemeral_storage"
    assert "deploy.reading: direct" in error.value.do
    assert "deploy.reading" not in disk.remedy(direct=False)


def test_the_limit_is_that_of_the_step() -> None:
    assert disk.limit_of({disk.LIMIT_VARIABLE: "1024"}) == 1024
    assert disk.limit_of({}) is None


EXAMPLES = {"instanceSchema": "title: tfx.Examples\ntype: object\n"}
OURS, TFX = "infeed.components.trainer.executor.Executor", "tfx.components.statistics_gen.executor.Executor"
WRITER = "infeed.components.example_gen.executor.Executor"


def message_of(kind: str, uri: str, described: Any = EXAMPLES) -> Any:
    return {kind: {"artifacts": {"examples": {"artifacts": [{"uri": uri, "type": described}]}}}}


@pytest.fixture
def written(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The artifact of an ExampleGen, with its Examples in the store."""
    monkeypatch.setenv(disk.READING_VARIABLE, "direct")
    uri, path = f"{s3}/gen/1/examples", str(tmp_path / "examples")
    paths = disk.replaced(PathMap({uri: path}), message_of("outputs", uri), WRITER).paths
    files.write_bytes(f"{paths[uri]}/Split-train/data", b"rows")
    return SimpleNamespace(uri=uri, path=path, store=paths[uri])


def test_an_example_gen_writes_to_a_folder_that_the_launcher_does_not_download(written: SimpleNamespace) -> None:
    assert written.store.startswith("s3://")
    assert not written.store.startswith(written.uri)
    assert [file.name for file in Path(written.path).iterdir()] == [disk.POINTER]


def test_our_steps_read_from_the_store_and_others_from_a_copy(written: SimpleNamespace) -> None:
    given = PathMap({written.uri: written.path}), message_of("inputs", written.uri)
    assert disk.replaced(*given, OURS).paths == {written.uri: written.store}
    assert not Path(written.path, "Split-train").exists()
    assert disk.replaced(*given, TFX).paths == {written.uri: written.path}
    assert Path(written.path, "Split-train", "data").read_bytes() == b"rows"


def test_other_artifacts_and_other_writers_stay_local(written: SimpleNamespace) -> None:
    paths = PathMap({written.uri: written.path})
    model = {"instanceSchema": "title: tfx.Model\n"}
    assert disk.replaced(paths, message_of("outputs", written.uri, model), WRITER) == paths
    assert disk.replaced(paths, message_of("outputs", written.uri), OURS) == paths


def test_a_full_disk_is_an_error_before_the_download(written: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3))
    with pytest.raises(InfeedError, match="takes 4 B") as caught:
        disk.download(written.store, written.path)
    assert caught.value.where == written.store
