from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.resolve import Overrides, resolve

pytestmark = [pytest.mark.tfx, pytest.mark.stack]

IMAGE = "registry.example/infeed:1"
RUNNER = "tfx.orchestration.kubeflow.v2.kubeflow_v2_dag_runner"


def compile_to(output: Path, pipeline: Any) -> Path:
    from infeed.pipelines.cluster.compile.kubeflow import CompileOptions, compile_kubeflow

    assert compile_kubeflow(pipeline, CompileOptions(str(output)), image=IMAGE) == str(output)
    return output


def test_json_is_a_pipeline_job_that_names_every_node(trial: ModuleType, tmp_path: Path) -> None:
    from google.protobuf import json_format
    from kfp.pipeline_spec import pipeline_spec_pb2

    text = compile_to(tmp_path / "new" / "job.json", trial.csv_pipeline(tmp_path)).read_text()
    job = json_format.Parse(text, pipeline_spec_pb2.PipelineJob())
    spec = json_format.ParseDict(json.loads(text)["pipelineSpec"], pipeline_spec_pb2.PipelineSpec())
    assert job.display_name == spec.pipeline_info.name == "trial"
    assert set(spec.root.dag.tasks) == {"CsvExampleGen-input", "CsvExampleGen", "StatisticsGen", "SchemaGen"}
    assert list(spec.root.dag.tasks["SchemaGen"].dependent_tasks) == ["StatisticsGen"]
    executors = json.loads(text)["pipelineSpec"]["deploymentSpec"]["executors"].values()
    assert {executor["container"]["image"] for executor in executors} == {IMAGE}


def test_an_output_of_unknown_format_is_refused(trial: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match=r"output is '.*job\.tar'") as caught:
        compile_to(tmp_path / "job.tar", trial.csv_pipeline(tmp_path))
    assert caught.value.do == "name the output *.json or *.yaml"


def test_without_kfp_the_error_says_what_to_install(
    trial: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_to(tmp_path / "job.json", trial.csv_pipeline(tmp_path))  # the runner is imported now, and is forgotten next
    monkeypatch.delitem(sys.modules, RUNNER)
    monkeypatch.delattr(RUNNER)
    monkeypatch.setitem(sys.modules, "kfp.pipeline_spec", None)  # as if it were not installed
    with pytest.raises(InfeedError, match=r"cannot compile for Kubeflow: .*kfp") as caught:
        compile_to(tmp_path / "job.json", trial.csv_pipeline(tmp_path))
    assert caught.value.do.startswith("install kfp")


PROJECT = Path(__file__).parents[2] / "golden" / "project"


def config(tmp_path: Path, there: str | None) -> PipelineConfig:
    given = Overrides(data=str(PROJECT / "flowers.csv"), root=str(tmp_path))
    resolved = resolve(read_project(str(PROJECT)), given)
    return dataclasses.replace(resolved, deploy=dataclasses.replace(resolved.deploy, data=there))


def test_the_defaults_are_the_configs_own_values(tmp_path: Path) -> None:
    from infeed.pipelines.cluster.compile.kubeflow import runtime_parameters

    parameters = runtime_parameters(config(tmp_path, None))
    assert {name: (parameter.ptype, parameter.default) for name, parameter in parameters.items()} == {
        "data": (str, str(PROJECT)),
        "epochs": (int, 5),
        "batch_size": (int, 32),
        "strategy": (str, "auto"),
    }


def test_a_file_is_looked_for_in_its_folder_there(tmp_path: Path) -> None:
    from infeed.pipelines.cluster.compile.kubeflow import runtime_parameters

    assert runtime_parameters(config(tmp_path, "gs://bucket/data/flowers.csv"))["data"].default == "gs://bucket/data"


def test_and_must_have_the_same_name(tmp_path: Path) -> None:
    from infeed.pipelines.cluster.compile.kubeflow import runtime_parameters

    with pytest.raises(InfeedError, match=r"trees\.csv(.|\n)*deploy\.data"):
        runtime_parameters(config(tmp_path, "gs://bucket/data/trees.csv"))


def test_a_run_here_takes_the_defaults(tmp_path: Path, trial: ModuleType) -> None:
    from tfx.components.example_gen import utils
    from tfx.orchestration.data_types import RuntimeParameter

    from infeed.components import CsvExampleGen
    from infeed.pipelines.local.runner import run_local

    data = RuntimeParameter("data", ptype=str, default=str(PROJECT))
    examples = CsvExampleGen(data, utils.make_default_input_config("flowers.csv"))
    report = run_local(trial.pipeline(tmp_path, [examples]), on_change=lambda nodes: None)
    assert report.succeeded
    assert list((tmp_path / "artifacts" / "CsvExampleGen").glob("examples/*/Split-train/*"))
