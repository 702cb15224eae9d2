from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from infeed.components.errors import InfeedError
from infeed.pipelines.job.compiled import STEP, CompiledJob, Parameter

GOLDEN = Path(__file__).parents[1] / "golden"
PARAMETERS = {
    "data": Parameter("STRING", "gs://bucket/data"),
    "epochs": Parameter("NUMBER_INTEGER", 5),
    "batch_size": Parameter("NUMBER_INTEGER", 32),
    "strategy": Parameter("STRING", "auto"),
}
SPEC = {"pipelineInfo": {"name": "taxi"}, "deploymentSpec": {}, "root": {"dag": {"tasks": {}}}}


@pytest.mark.parametrize(
    ("file", "schema"), [("kubeflow.yaml", "2.1.0"), ("vertex-2.1.json", "2.1.0"), ("vertex-2.0.json", "2.0.0")]
)
def test_both_formats_and_schemas_are_read_alike(file: str, schema: str) -> None:
    job = CompiledJob.read(GOLDEN / file)
    assert (job.name, job.schema_version) == ("golden-flowers", schema)
    assert job.images == ("registry.example/golden:1",)
    assert job.parameters == PARAMETERS


def test_the_second_document_of_a_yaml_is_the_platform_spec() -> None:
    platform = CompiledJob.read(GOLDEN / "kubeflow.yaml").platform
    assert platform is not None
    assert list(platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]) == ["Trainer_executor"]


def test_json_has_a_runtime_config_and_no_platform_spec() -> None:
    job = CompiledJob.read(GOLDEN / "vertex-2.1.json")
    assert job.platform is None
    assert job.runtime["gcsOutputDirectory"] == "gs://bucket/golden/artifacts"


def test_json_says_how_a_run_is_labeled_and_who_runs_it() -> None:
    run_metadata = CompiledJob.read(GOLDEN / "vertex-2.1.json").run_metadata
    assert run_metadata["serviceAccount"] == "trainer@flowers.iam.gserviceaccount.com"
    assert run_metadata["labels"]["team"] == "flora"


def test_it_names_the_runner_whose_workers_need_more_of_an_image() -> None:
    assert CompiledJob.read(GOLDEN / "vertex-2.1.json").beam_runner == "DataflowRunner"
    assert CompiledJob.read(GOLDEN / "kubeflow.yaml").beam_runner == ""


def test_a_bare_spec_in_json_will_do(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(json.dumps(SPEC))
    job = CompiledJob.read(tmp_path / "spec.json")
    assert (job.name, job.images, job.parameters, job.runtime) == ("taxi", (), {}, {})


def test_values_of_a_run_win_over_defaults_of_the_spec(tmp_path: Path) -> None:
    definition = {"parameterType": "NUMBER_INTEGER", "defaultValue": 5.0}
    spec = {**SPEC, "root": {"inputDefinitions": {"parameters": {"epochs": definition, "rate": dict(definition)}}}}
    job = {"pipelineSpec": spec, "runtimeConfig": {"parameterValues": {"epochs": 9.0}}}
    (tmp_path / "job.json").write_text(json.dumps(job))
    parameters = CompiledJob.read(tmp_path / "job.json").parameters
    assert {name: parameter.default for name, parameter in parameters.items()} == {"epochs": 9, "rate": 5}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", r"Expecting property name"),
        ("a: [", r"while parsing"),
        pytest.param("[" * 100_000, r"nest(ed|ing)", id="deep YAML"),
        pytest.param('{"a":' * 100_000, r"too deeply nested", id="deep JSON"),
        ("a: &a [1]\nb: [*a, *a]\n", r"line 2 holds an alias"),
        ("", r"it has no pipelineInfo"),
        ("hello", r"it has no pipelineInfo, deploymentSpec and root"),
        (yaml.safe_dump({"apiVersion": "argoproj.io/v1alpha1", "spec": {}}), r"it has no pipelineInfo"),
        (json.dumps({"pipelineSpec": {"root": {}}}), r"it has no pipelineInfo"),
    ],
)
def test_what_is_no_compiled_pipeline_is_told(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "job").write_text(text)
    with pytest.raises(InfeedError, match=rf"not a compiled pipeline: (.|\n)*{reason}(.|\n)*infeed compile"):
        CompiledJob.read(tmp_path / "job")


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match=r"none\.json"):
        CompiledJob.read(tmp_path / "none.json")


def job_on(root: str, *command: str) -> CompiledJob:
    executors = {"Trainer_executor": {"container": {"image": "i", "command": [*command]}}}
    spec = {"pipelineInfo": {"name": "taxi"}, "defaultPipelineRoot": root, "deploymentSpec": {"executors": executors}}
    return CompiledJob(spec)


def test_a_platform_opens_the_stores_that_it_knows() -> None:
    for target, root in (("kubeflow", "abfs://b/taxi"), ("vertex", "s3://b/taxi")):
        with pytest.raises(InfeedError, match=root.partition("//")[0]):
            job_on(root, *STEP).check_store(target)


def test_tfx_own_steps_cannot_open_s3() -> None:
    tfx = ("python", "-m", "tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor")
    job_on("gs://b/taxi", *tfx).check_store()
    job_on("s3://b/taxi", *STEP).check_store()
    job_on("runs/taxi", *tfx).check_store()
    for root in ("s3://b/taxi", "minio://b/taxi"):
        with pytest.raises(InfeedError, match="has no S3"):
            job_on(root, *tfx).check_store()
