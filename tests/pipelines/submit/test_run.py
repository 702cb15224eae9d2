from __future__ import annotations

from types import ModuleType

from infeed.pipelines.deploy.compiled import CompiledJob
from infeed.pipelines.submit.run import Planned, pipeline_root, planned_steps, without_cache


def test_steps_come_in_an_order_they_can_run_in_those_of_a_condition_where_it_stands(jobs: ModuleType) -> None:
    found = planned_steps(jobs.spec())
    assert [step.name for step in found] == ["ExampleGen", "Trainer", "Pusher"]
    assert found[2] == Planned(("condition", "Pusher"))


def test_a_step_is_started_once_more_than_it_is_retried(jobs: ModuleType) -> None:
    spec = jobs.spec()
    spec["root"]["dag"]["tasks"]["Trainer"]["retryPolicy"] = {"maxRetryCount": 2}
    assert [step.attempts for step in planned_steps(spec)] == [None, 3, None]


def test_no_cache_reaches_the_tasks_inside_a_condition_and_leaves_the_job_as_it_was(jobs: ModuleType) -> None:
    spec = jobs.spec()
    changed = without_cache(spec)
    tasks = [*changed["root"]["dag"]["tasks"].values(), *changed["components"]["condition"]["dag"]["tasks"].values()]
    assert [task["cachingOptions"] for task in tasks] == [{"enableCache": False}] * 4
    assert spec == jobs.spec()


def test_the_root_of_the_pipeline_is_that_of_the_job_before_that_of_its_spec(jobs: ModuleType) -> None:
    spec = jobs.spec()
    assert pipeline_root(CompiledJob(spec, runtime={"gcsOutputDirectory": "gs://other"})) == "gs://other"
    assert pipeline_root(CompiledJob(spec)) == "gs://bucket/taxi"
    del spec["defaultPipelineRoot"]
    assert pipeline_root(CompiledJob(spec)) == ""
