"""Kubeflow's launcher as a rehearsal plays it, on an S3 server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.pipelines.cluster.rehearse.executor_io import Artifact
from infeed.pipelines.cluster.rehearse.launcher import Pod, pod_below


def artifact(uri: str) -> Artifact:
    return Artifact("run/node/key", {"schemaTitle": "system.Artifact"}, uri)


def written(folder: str, **content: str) -> None:
    for name, text in content.items():
        Path(folder, "sub").mkdir(parents=True, exist_ok=True)
        Path(folder, "sub", name).write_text(text)


def test_a_step_finds_its_inputs_on_the_disk_of_its_pod(s3: str, tmp_path: Path) -> None:
    files.write_bytes(f"{s3}/model/sub/graph", b"graph")
    with pod_below(tmp_path / "pod") as pod:
        pod.download({"model": [artifact(f"{s3}/model")], "none": [artifact(f"{s3}/none")]})
        assert Path(pod.path(f"{s3}/model"), "sub", "graph").read_bytes() == b"graph"
        assert not Path(pod.path(f"{s3}/none")).exists()
        assert pod.path("/mnt/volume") == "/mnt/volume"
    assert not (tmp_path / "pod").exists()


@pytest.mark.parametrize("downloads_all", [False, True])
def test_the_artifacts_of_an_input_after_the_first_are_downloaded_since_2_14(
    s3: str, tmp_path: Path, downloads_all: bool
) -> None:
    for number in (1, 2):
        files.write_bytes(f"{s3}/{number}/data", b"rows")
    with pod_below(tmp_path / "pod", downloads_all=downloads_all) as pod:
        pod.download({"examples": [artifact(f"{s3}/1"), artifact(f"{s3}/2")]})
        assert Path(pod.path(f"{s3}/1")).is_dir()
        assert Path(pod.path(f"{s3}/2")).exists() == downloads_all


def test_outputs_reach_the_store_without_objects_for_folders(s3: str, tmp_path: Path) -> None:
    with pod_below(tmp_path / "pod") as pod:
        written(pod.path(f"{s3}/model"), graph="graph", index="index")
        pod.upload({"model": [artifact(f"{s3}/model")], "unwritten": [artifact(f"{s3}/unwritten")]})
    assert [file.path for file in files.list_files(s3, depth=9)] == [f"{s3}/model/sub/graph", f"{s3}/model/sub/index"]


def test_a_store_that_loses_a_part_is_noticed(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = files.copy

    def losing(source: str, target: str) -> None:
        copy(source, target)
        files.remove(f"{target}/sub/index")

    monkeypatch.setattr(files, "copy", losing)
    with pod_below(tmp_path / "pod") as pod:
        written(pod.path(f"{s3}/model"), graph="graph", index="index")
        with pytest.raises(InfeedError, match="sub/index") as error:
            pod.upload({"model": [artifact(f"{s3}/model")]})
    assert error.value.where == f"{s3}/model/sub/index"


def test_a_store_that_refuses_fails_the_step(s3: str, tmp_path: Path, s3_failing: Callable[[str, int], None]) -> None:
    files.write_bytes(f"{s3}/model/graph", b"graph")
    s3_failing(f"{s3}/model/graph", 9)
    with pod_below(tmp_path / "pod") as pod, pytest.raises(InfeedError, match="'model'") as error:
        pod.download({"model": [artifact(f"{s3}/model")]})
    assert error.value.where == f"{s3}/model"


def test_without_a_store_a_step_sees_the_artifacts_themselves(tmp_path: Path) -> None:
    with pod_below(None) as pod:
        assert pod == Pod()
        assert pod.path("s3://bucket/x") == "s3://bucket/x"
        outputs: Any = {"model": [artifact(str(tmp_path))]}
        pod.upload(outputs)
        assert pod.environment == {}
