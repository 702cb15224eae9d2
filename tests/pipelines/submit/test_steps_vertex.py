"""Experiments of a live server are in test_vertex.py."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.console.nodes import NodeState
from infeed.pipelines.submit.run import Step

pytestmark = pytest.mark.slow  # imports google-cloud-aiplatform

NOON = datetime(2025, 3, 1, 12, tzinfo=timezone.utc)
JOB = "projects/p/locations/r/customJobs/{}"


def step(**fields: Any) -> Step:
    from google.cloud.aiplatform_v1.types import PipelineTaskDetail

    from infeed.pipelines.submit.steps import vertex_steps

    [found] = vertex_steps(["Trainer"], [PipelineTaskDetail(task_name="Trainer", **fields)], "p")
    return found


def test_a_task_that_is_not_listed_yet_waits() -> None:
    from infeed.pipelines.submit.steps import vertex_steps

    assert vertex_steps(["Trainer", "Pusher"], [], "p") == (Step("Trainer"), Step("Pusher"))


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("PENDING", NodeState.WAITING),
        ("RUNNING", NodeState.RUNNING),
        ("CANCEL_PENDING", NodeState.RUNNING),
        ("SUCCEEDED", NodeState.DONE),
        ("SKIPPED", NodeState.CACHED),
        ("NOT_TRIGGERED", NodeState.SKIPPED),
        ("CANCELLED", NodeState.SKIPPED),
        ("FAILED", NodeState.FAILED),
    ],
)
def test_a_step_is_in_the_state_of_its_task(state: str, expected: NodeState) -> None:
    assert step(state=state).state is expected


def test_earlier_attempts_come_first_and_the_log_is_of_the_last() -> None:
    container = {"main_job": JOB.format(3), "failed_main_jobs": [JOB.format(1), JOB.format(2)]}
    found = step(state="RUNNING", executor_detail={"container_detail": container})
    assert found.jobs == (JOB.format(1), JOB.format(2), JOB.format(3))
    assert found.log is not None
    assert "job_id%3D%223%22" in found.log
    assert found.log.endswith("?project=p")


def test_until_there_is_a_job_that_of_the_cache_is_the_one() -> None:
    container = {"pre_caching_check_job": JOB.format(7)}
    assert step(state="RUNNING", executor_detail={"container_detail": container}).jobs == (JOB.format(7),)
    assert step(state="RUNNING").jobs == ()
    assert step(state="RUNNING").log is None


def test_seconds_are_counted_from_the_start_to_the_end_or_to_now() -> None:
    assert step(start_time=NOON, end_time=NOON + timedelta(seconds=30)).seconds == 30
    assert step(start_time=datetime.now(timezone.utc) - timedelta(seconds=10)).seconds >= 10
    assert step().seconds == 0


def test_an_error_is_told_where_there_is_one() -> None:
    assert step(state="FAILED", error={"message": "no data"}).error == "no data"
    assert step(state="FAILED").error is None


def test_the_entries_of_one_job_are_asked_for() -> None:
    from infeed.pipelines.submit.steps import log_filter

    assert log_filter(JOB.format(5)) == 'resource.type="ml_job" AND resource.labels.job_id="5"'


@pytest.mark.parametrize("name", ["Weekly", "-weekly", "", "w" * 129])
def test_an_experiment_has_a_name_that_vertex_ai_takes(name: str) -> None:
    from infeed.pipelines.submit.vertex import check_name

    check_name("weekly-1")
    with pytest.raises(InfeedError, match="experiment is"):
        check_name(name)
