"""A runner reaches every node that passes over data, of this package and of TFX, on both platforms."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.cluster.job.compiled import CompiledJob, leaves
from infeed.pipelines.deploy.options import Deploy, with_image

pytestmark = pytest.mark.tfx

IMAGE = "registry.example/infeed:1"
PLACE = ("--project=my-project", "--region=europe-west4", "--temp_location=gs://bucket/tmp")
DATAFLOW = ("--runner=DataflowRunner", *PLACE)
FLINK = ("--runner=FlinkRunner", "--job_endpoint=jobs:8099", "--parallelism=4")


def compiled(tmp_path: Path, pipeline: Any, target: Any, deploy: Deploy) -> dict[str, list[str]]:
    """Options of Beam by node."""
    from infeed.pipelines.cluster.compile.kubeflow import CompileOptions, compile_kubeflow

    path = compile_kubeflow(pipeline, CompileOptions(str(tmp_path / "job.json"), target), image=IMAGE, deploy=deploy)
    containers = {task.name: task.container for task in leaves(CompiledJob.read(path).tasks) if task.container}
    known = {option for beam in (DATAFLOW, FLINK) for option in with_image(beam, IMAGE)}
    return {name: [one for one in found.get("args", ()) if one in known] for name, found in containers.items()}


@pytest.mark.parametrize("beam", [DATAFLOW, FLINK], ids=["dataflow", "flink"])
@pytest.mark.parametrize("target", ["kubeflow", "vertex"])
def test_every_node_that_passes_over_data_gets_the_runner(
    trial: ModuleType, tmp_path: Path, target: str, beam: tuple[str, ...]
) -> None:
    deploy = Deploy(root="gs://bucket/trial", beam_pipeline_args=beam)
    found = compiled(tmp_path, trial.data_pipeline(tmp_path), target, deploy)
    data_nodes = {f"{prefix}{node}" for prefix in ("", "Tfx") for node in trial.DATA_NODES}
    assert {name for name, options in found.items() if options} == data_nodes
    for name in data_nodes:
        assert found[name] == with_image(beam, IMAGE)


def test_options_of_a_component_come_last_and_so_win(trial: ModuleType, tmp_path: Path) -> None:
    pipeline = trial.data_pipeline(tmp_path)
    node = next(node for node in pipeline.components if node.id == "Transform")
    node.with_beam_pipeline_args(["--parallelism=1"])
    compiled(tmp_path, pipeline, "kubeflow", Deploy(root="gs://bucket/trial", beam_pipeline_args=FLINK))
    job = CompiledJob.read(tmp_path / "job.json")
    args = next(task.container["args"] for task in leaves(job.tasks) if task.name == "Transform" and task.container)
    assert [one for one in args if one.startswith("--parallelism")] == ["--parallelism=4", "--parallelism=1"]


def test_a_root_that_workers_do_not_see_is_refused(trial: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match="FlinkRunner") as error:
        compiled(tmp_path, trial.csv_pipeline(tmp_path), "kubeflow", Deploy(beam_pipeline_args=FLINK))
    assert error.value.where == "deploy.root"
