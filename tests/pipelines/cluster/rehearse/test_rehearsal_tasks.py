from __future__ import annotations

import dataclasses
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.engine.project_archive import VARIABLE, digest
from infeed.pipelines.cluster.job.compiled import CompiledJob, read_tasks
from infeed.pipelines.cluster.rehearse.rehearsal import PathMapping, check_tasks
from infeed.pipelines.cluster.rehearse.step import ENTRY_POINT

RESOLVER = {"resolver": {"outputArtifactQueries": {}}}


def test_resolvers_are_for_vertex_alone(jobs: ModuleType) -> None:
    tasks = read_tasks(jobs.job({"latest": {**jobs.step(), "executor": RESOLVER}}).spec)
    check_tasks(tasks, "vertex")
    with pytest.raises(InfeedError, match="latest"):
        check_tasks(tasks, "kubeflow")


@pytest.mark.parametrize(
    ("words", "service"),
    [
        (["tfx.extensions.google_cloud_ai_platform.trainer.executor.GenericExecutor"], "Vertex AI"),
        (["tfx.extensions.google_cloud_ai_platform.pusher.executor.Executor"], "Vertex AI"),
        (["-m", "google_cloud_pipeline_components.container.v1.custom_job.launcher"], "Google Cloud"),
        (["--runner=DataflowRunner", "--project=p"], "Dataflow"),
        (["--runner", "DataflowRunner"], "Dataflow"),
    ],
)
def test_a_step_that_would_start_something_elsewhere_is_refused(
    jobs: ModuleType, words: list[str], service: str
) -> None:
    step = jobs.step()
    step["executor"]["container"]["args"] += words
    with pytest.raises(InfeedError, match=f"Trainer would start work on {service}"):
        check_tasks(read_tasks(jobs.job({"Trainer": step}).spec), "vertex")


def test_a_trainer_of_a_custom_job_trains_in_its_step_and_starts_nothing_else(jobs: ModuleType) -> None:
    step = jobs.step()
    container = step["executor"]["container"]
    container["command"] = ["python", "-m", ENTRY_POINT]
    container["args"] += ["--executor_class_path", "infeed.components.trainer.vertex_executor.VertexExecutor"]
    check_tasks(read_tasks(jobs.job({"Trainer": step}).spec), "vertex")
    container["args"] += ["--runner=DataflowRunner"]
    with pytest.raises(InfeedError, match="Trainer would start work on Dataflow"):
        check_tasks(read_tasks(jobs.job({"Trainer": step}).spec), "vertex")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parameterIterator": {"itemInput": "x"}}, "a loop over items cannot be rehearsed\n.*task a"),
        ({"inputs": {"parameters": {"x": {"parameterExpressionSelector": "a"}}}}, "a loop over items"),
        ({}, "executor 'customJob' cannot be rehearsed\n.*task a"),
    ],
)
def test_what_cannot_be_rehearsed_is_refused(jobs: ModuleType, change: Any, message: str) -> None:
    step = {**jobs.step(**change), "executor": {"customJob": {}}}
    with pytest.raises(InfeedError, match=message):
        check_tasks(read_tasks(jobs.job({"a": step}).spec), "vertex")


@pytest.mark.slow
def test_kubeflow_runs_no_drivers(jobs: ModuleType, tmp_path: Path) -> None:
    ingest = jobs.step("write('examples', '')", gives=["examples"], driver="sys.exit('the driver ran')")
    compiled = jobs.job({"ingest": ingest})
    assert jobs.states(jobs.run(compiled, tmp_path, target="kubeflow")) == {"ingest": "done"}
    assert jobs.states(jobs.run(compiled, tmp_path, target="vertex")) == {"ingest": "failed"}


ARCHIVE = b"archive"


@pytest.fixture
def compiled(jobs: ModuleType, tmp_path: Path) -> CompiledJob:
    made = jobs.step("write('model', open(os.environ['INFEED_PROJECT']).read())", gives=["model"])
    place = f"gs://b/taxi/project/{digest(ARCHIVE)}.tar.gz"
    made["executor"]["container"]["env"] = [{"name": VARIABLE, "value": place}]
    return dataclasses.replace(jobs.job({"Trainer": made}), file=str(tmp_path / "taxi.json"))


def test_the_steps_find_the_archive_in_the_mapped_place(
    jobs: ModuleType, compiled: CompiledJob, tmp_path: Path
) -> None:
    (tmp_path / "taxi.project.tar.gz").write_bytes(ARCHIVE)
    ended = jobs.run(compiled, tmp_path / "root", maps=(PathMapping.parse(f"gs://b={tmp_path}/b"),))
    assert jobs.text(ended, "Trainer", "model") == "archive"
    assert len(list((tmp_path / "b" / "taxi" / "project").iterdir())) == 1


def test_without_the_archive_no_step_starts(jobs: ModuleType, compiled: CompiledJob, tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match="missing"):
        jobs.run(compiled, tmp_path / "root", maps=(PathMapping.parse(f"gs://b={tmp_path}/b"),))
    assert not (tmp_path / "root" / "logs").exists()
