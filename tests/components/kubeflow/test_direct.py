"""Examples that stay in the store: which steps get the store's path, and which get a copy."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.kubeflow import direct
from infeed.components.kubeflow.launcher_paths import PathMap

EXAMPLES = {"instanceSchema": "title: tfx.Examples\ntype: object\n"}
OURS, TFX = "infeed.components.trainer.executor.Executor", "tfx.components.statistics_gen.executor.Executor"
WRITER = "infeed.components.example_gen.executor.Executor"


def message(kind: str, uri: str, described: Any = EXAMPLES) -> Any:
    return {kind: {"artifacts": {"examples": {"artifacts": [{"uri": uri, "type": described}]}}}}


@pytest.fixture
def written(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The artifact of an ExampleGen, with its Examples in the store."""
    monkeypatch.setenv(direct.VARIABLE, "direct")
    uri, path = f"{s3}/gen/1/examples", str(tmp_path / "examples")
    paths = direct.replaced(PathMap({uri: path}), message("outputs", uri), WRITER).paths
    files.write_bytes(f"{paths[uri]}/Split-train/data", b"rows")
    return SimpleNamespace(uri=uri, path=path, store=paths[uri])


def test_an_example_gen_writes_to_a_folder_that_the_launcher_does_not_download(written: SimpleNamespace) -> None:
    assert written.store.startswith("s3://")
    assert not written.store.startswith(written.uri)
    assert [file.name for file in Path(written.path).iterdir()] == [direct.POINTER]


def test_our_steps_read_from_the_store_and_others_from_a_copy(written: SimpleNamespace) -> None:
    given = PathMap({written.uri: written.path}), message("inputs", written.uri)
    assert direct.replaced(*given, OURS).paths == {written.uri: written.store}
    assert not Path(written.path, "Split-train").exists()
    assert direct.replaced(*given, TFX).paths == {written.uri: written.path}
    assert Path(written.path, "Split-train", "data").read_bytes() == b"rows"


def test_other_artifacts_and_other_writers_stay_local(written: SimpleNamespace) -> None:
    paths = PathMap({written.uri: written.path})
    model = {"instanceSchema": "title: tfx.Model\n"}
    assert direct.replaced(paths, message("outputs", written.uri, model), WRITER) == paths
    assert direct.replaced(paths, message("outputs", written.uri), OURS) == paths


def test_a_full_disk_is_an_error_before_the_download(written: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3))
    with pytest.raises(InfeedError, match="takes 4 B") as caught:
        direct.download(written.store, written.path)
    assert caught.value.where == written.store
