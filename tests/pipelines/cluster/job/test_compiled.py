from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from infeed.components.base.errors import InfeedError
from infeed.components.engine.project_archive import VARIABLE, digest
from infeed.pipelines.cluster.job.compiled import (
    STEP,
    CompiledJob,
    Parameter,
    archive_beside,
    in_order,
    leaves,
    publish,
    read_tasks,
)

GOLDEN = Path(__file__).parents[2] / "golden"
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


def test_steps_come_in_an_order_they_can_run_in_those_of_a_condition_where_it_stands(compiled_jobs: ModuleType) -> None:
    found = list(leaves(CompiledJob(compiled_jobs.spec()).tasks))
    assert [step.name for step in found] == ["ExampleGen", "Trainer", "Pusher"]
    assert found[2].path == ("condition", "Pusher")


def test_a_job_that_says_nothing_of_retries_is_told_from_one_without(compiled_jobs: ModuleType) -> None:
    spec = compiled_jobs.spec()
    spec["root"]["dag"]["tasks"]["Trainer"]["retryPolicy"] = {"maxRetryCount": 2}
    assert [step.retries for step in leaves(CompiledJob(spec).tasks)] == [None, 2, None]


def test_no_cache_reaches_the_tasks_inside_a_condition_and_leaves_the_job_as_it_was(compiled_jobs: ModuleType) -> None:
    spec = compiled_jobs.spec()
    changed = CompiledJob(spec).without_cache()
    tasks = [*changed["root"]["dag"]["tasks"].values(), *changed["components"]["condition"]["dag"]["tasks"].values()]
    assert [task["cachingOptions"] for task in tasks] == [{"enableCache": False}] * 4
    assert spec == compiled_jobs.spec()


def test_the_root_of_the_pipeline_is_that_of_the_job_before_that_of_its_spec(compiled_jobs: ModuleType) -> None:
    spec = compiled_jobs.spec()
    assert CompiledJob(spec, runtime={"gcsOutputDirectory": "gs://other"}).root == "gs://other"
    assert CompiledJob(spec).root == "gs://bucket/taxi"
    del spec["defaultPipelineRoot"]
    assert CompiledJob(spec).root == ""


def test_accelerators_are_those_of_all_containers(compiled_jobs: ModuleType) -> None:
    assert CompiledJob(compiled_jobs.spec(deploymentSpec=compiled_jobs.with_accelerator("NVIDIA_L4"))).accelerators == {
        "NVIDIA_L4"
    }
    assert CompiledJob(compiled_jobs.spec()).accelerators == frozenset()


def nodes(spec: Any) -> list[str]:
    return [task.node for task in leaves(read_tasks(spec))]


def nested(jobs: ModuleType, *names: str) -> Any:
    """A job of dags `first` and `second`, each with one step, under the given names."""
    job = jobs.job({name: jobs.step() for name in {*names}})
    tasks = job.spec["root"]["dag"]["tasks"]
    root = {}
    for dag, name in zip(("first", "second"), names, strict=True):
        job.spec["components"][f"comp-{dag}"] = {"dag": {"tasks": {name: tasks[name]}}}
        root[dag] = {"componentRef": {"name": f"comp-{dag}"}}
    job.spec["root"]["dag"]["tasks"] = root
    return job.spec


def test_steps_inside_of_dags_go_by_their_own_names_where_those_differ(jobs: ModuleType) -> None:
    assert nodes(nested(jobs, "load", "learn")) == ["load", "learn"]
    assert nodes(nested(jobs, "load", "load")) == ["first/load", "second/load"]


@pytest.mark.slow
@pytest.mark.parametrize("schema", ["", "legacy"], ids=["2.1", "2.0"])
@pytest.mark.parametrize(
    ("golden", "order"),
    [
        ("two_step_pipeline_with_exit_handler", ["BigQueryExampleGen", "StatisticsGen", "ExitHandlerComponent"]),
        ("two_step_pipeline_with_task_only_dependency", ["Step 1", "Step 2"]),
        ("pipeline_with_one_container_spec_component", ["my_importer", "DummyContainerSpecComponent"]),
        ("consume_primitive_artifacts_by_value_pipeline", ["ProducePrimitives", "ConsumeByValue"]),
    ],
)
def test_the_jobs_of_tfxs_own_tests_are_read(golden: str, order: list[str], schema: str) -> None:
    from google.protobuf import json_format, text_format
    from kfp.pipeline_spec import pipeline_spec_pb2

    tfx = find_spec("tfx")
    assert tfx
    assert tfx.submodule_search_locations
    folder = Path(tfx.submodule_search_locations[0], "orchestration", "kubeflow", "v2", "testdata", schema)
    text = (folder / f"expected_{golden}.pbtxt").read_text()
    spec = text_format.Parse(text, pipeline_spec_pb2.PipelineSpec())
    assert nodes(json_format.MessageToDict(spec)) == order


def takes(producer: str) -> dict[str, Any]:
    """A task that takes an artifact of another one."""
    return {"inputs": {"artifacts": {"x": {"taskOutputArtifact": {"producerTask": producer}}}}}


def test_tasks_come_after_what_they_need_and_else_by_name() -> None:
    tasks = {
        "b": takes("c"),
        "a": {"inputs": {"parameters": {"x": {"taskFinalStatus": {"producerTask": "d"}}}}},
        "e": {"inputs": {"parameters": {"x": {"taskOutputParameter": {"producerTask": "b"}}}}},
        "c": {"dependentTasks": ["d"]},
        "d": {"inputs": {"parameters": {"x": {"runtimeValue": {"constant": 3}}}}},
    }
    assert in_order(tasks) == ["d", "a", "c", "b", "e"]


def test_a_producer_that_is_not_there_is_named() -> None:
    with pytest.raises(InfeedError, match=r"'c'\n.*task dag/b\n.*a, b"):
        in_order({"a": {}, "b": takes("c")}, where="dag/")


def test_a_circle_is_told_round() -> None:
    with pytest.raises(InfeedError, match=r"cycle: (a -> b -> a|b -> a -> b)"):
        in_order({"a": takes("b"), "b": takes("a")})


ARCHIVE = b"archive"


def job(folder: Path, root: str) -> CompiledJob:
    env = [{"name": VARIABLE, "value": f"{root}/project/{digest(ARCHIVE)}.tar.gz"}]
    spec = {
        "pipelineInfo": {"name": "taxi"},
        "root": {"dag": {"tasks": {"Trainer": {"componentRef": {"name": "Trainer"}}}}},
        "components": {"Trainer": {"executorLabel": "trainer"}},
        "deploymentSpec": {"executors": {"trainer": {"container": {"image": "i", "env": env}}}},
    }
    (folder / "taxi.json").write_text(json.dumps(spec))
    return CompiledJob.read(folder / "taxi.json")


def test_the_archive_goes_to_where_the_steps_look(tmp_path: Path, s3: str) -> None:
    for root in (str(tmp_path / "root"), s3):
        read = job(tmp_path, root)
        archive_beside(read.file).write_bytes(ARCHIVE)
        publish(read)
        archive_beside(read.file).unlink()
        publish(read)  # it is there


@pytest.mark.parametrize(("content", "value"), [(None, "missing"), (b"other", "another compilation")])
def test_without_the_archive_of_the_job_nothing_starts(tmp_path: Path, content: bytes | None, value: str) -> None:
    read = job(tmp_path, str(tmp_path / "root"))
    if content:
        (tmp_path / "taxi.project.tar.gz").write_bytes(content)
    with pytest.raises(InfeedError, match=value) as error:
        publish(read)
    assert error.value.where == str(tmp_path / "taxi.json")
    assert not (tmp_path / "root").exists()


def test_a_job_without_an_archive_has_nothing_to_upload(tmp_path: Path) -> None:
    publish(CompiledJob({"deploymentSpec": {}, "root": {"dag": {"tasks": {}}}}))


def test_a_store_that_refuses_the_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("no folder")
    read = job(tmp_path, str(tmp_path / "root"))
    archive_beside(read.file).write_bytes(ARCHIVE)
    with pytest.raises(InfeedError, match="cannot upload the project") as error:
        publish(read)
    assert error.value.where == read.project_archive
