"""Experiments of a live server are in test_vertex.py."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.console.nodes import NodeReport, NodeState

pytestmark = pytest.mark.slow  # imports google-cloud-aiplatform

NOON = datetime(2025, 3, 1, 12, tzinfo=timezone.utc)


def step(**fields: Any) -> NodeReport:
    from google.cloud.aiplatform_v1.types import PipelineTaskDetail

    from infeed.pipelines.cluster.submit.run import vertex_steps

    [found] = vertex_steps(["Trainer"], [PipelineTaskDetail(task_name="Trainer", **fields)])
    return found


def test_a_task_that_is_not_listed_yet_waits() -> None:
    from infeed.pipelines.cluster.submit.run import vertex_steps

    assert vertex_steps(["Trainer", "Pusher"], []) == (NodeReport("Trainer"), NodeReport("Pusher"))


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


def test_seconds_are_counted_from_the_start_to_the_end_or_to_now() -> None:
    assert step(start_time=NOON, end_time=NOON + timedelta(seconds=30)).seconds == 30
    assert step(start_time=datetime.now(timezone.utc) - timedelta(seconds=10)).seconds >= 10
    assert step().seconds == 0


def test_an_error_is_told_where_there_is_one() -> None:
    assert step(state="FAILED", error={"message": "no data"}).error == "no data"
    assert step(state="FAILED").error is None


@pytest.mark.parametrize("name", ["Weekly", "-weekly", "", "w" * 129])
def test_an_experiment_has_a_name_that_vertex_ai_takes(name: str) -> None:
    from infeed.pipelines.cluster.submit.vertex import check_name

    check_name("weekly-1")
    with pytest.raises(InfeedError, match="experiment is"):
        check_name(name)
