"""What a submission asks of a compiled job."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from infeed.pipelines.job.compiled import CompiledJob, leaves


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "submit"))
    return importlib.import_module("jobs")


def test_steps_come_in_an_order_they_can_run_in_those_of_a_condition_where_it_stands(jobs: ModuleType) -> None:
    found = list(leaves(CompiledJob(jobs.spec()).tasks))
    assert [step.name for step in found] == ["ExampleGen", "Trainer", "Pusher"]
    assert found[2].path == ("condition", "Pusher")


def test_a_job_that_says_nothing_of_retries_is_told_from_one_without(jobs: ModuleType) -> None:
    spec = jobs.spec()
    spec["root"]["dag"]["tasks"]["Trainer"]["retryPolicy"] = {"maxRetryCount": 2}
    assert [step.retries for step in leaves(CompiledJob(spec).tasks)] == [None, 2, None]


def test_no_cache_reaches_the_tasks_inside_a_condition_and_leaves_the_job_as_it_was(jobs: ModuleType) -> None:
    spec = jobs.spec()
    changed = CompiledJob(spec).without_cache()
    tasks = [*changed["root"]["dag"]["tasks"].values(), *changed["components"]["condition"]["dag"]["tasks"].values()]
    assert [task["cachingOptions"] for task in tasks] == [{"enableCache": False}] * 4
    assert spec == jobs.spec()


def test_the_root_of_the_pipeline_is_that_of_the_job_before_that_of_its_spec(jobs: ModuleType) -> None:
    spec = jobs.spec()
    assert CompiledJob(spec, runtime={"gcsOutputDirectory": "gs://other"}).root == "gs://other"
    assert CompiledJob(spec).root == "gs://bucket/taxi"
    del spec["defaultPipelineRoot"]
    assert CompiledJob(spec).root == ""


def test_accelerators_are_those_of_all_containers(jobs: ModuleType) -> None:
    assert CompiledJob(jobs.spec(deploymentSpec=jobs.with_accelerator("NVIDIA_L4"))).accelerators == {"NVIDIA_L4"}
    assert CompiledJob(jobs.spec()).accelerators == frozenset()
