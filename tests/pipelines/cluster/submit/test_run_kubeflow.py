from __future__ import annotations

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest

from infeed.pipelines.cluster.job.compiled import Task
from infeed.pipelines.cluster.submit.run import kubeflow_steps
from infeed.pipelines.console.nodes import NodeReport, NodeState

NOON = datetime(2025, 3, 1, 12, tzinfo=timezone.utc)
NEVER = datetime(1970, 1, 1, tzinfo=timezone.utc)


def task(name: str, state: str | None, **fields: object) -> SimpleNamespace:
    """What kfp makes of a `V2beta1PipelineTaskDetail`."""
    given = {"start_time": NOON, "end_time": NOON + timedelta(seconds=30), "error": None, **fields}
    return SimpleNamespace(display_name=name, state=state, **given)


def step(*tasks: SimpleNamespace) -> NodeReport:
    [found] = kubeflow_steps([Task(("Trainer",), "Trainer", {}, component={}, executor={"container": {}})], tasks)
    return found


def test_a_step_waits_until_its_driver_is_there_and_runs_while_the_driver_does() -> None:
    assert step(task("root", "RUNNING")).state is NodeState.WAITING
    assert step(task("Trainer-driver", "RUNNING")).state is NodeState.RUNNING
    assert step(task("Trainer-driver", "SUCCEEDED")).state is NodeState.RUNNING


@pytest.mark.parametrize(
    ("own", "state"),
    [
        ("PENDING", NodeState.WAITING),
        ("RUNNING", NodeState.RUNNING),
        ("SUCCEEDED", NodeState.DONE),
        ("SKIPPED", NodeState.SKIPPED),
        ("FAILED", NodeState.FAILED),
        ("RUNTIME_STATE_UNSPECIFIED", NodeState.WAITING),  # "Omitted" to Argo: something before it failed
        (None, NodeState.WAITING),
    ],
)
def test_then_it_is_in_the_state_of_its_node(own: str | None, state: NodeState) -> None:
    assert step(task("Trainer-driver", "SUCCEEDED"), task("Trainer", own)).state is state


def test_a_driver_that_fails_is_the_failure_of_its_step() -> None:
    assert step(task("Trainer-driver", "FAILED"), task("Trainer", None)).state is NodeState.FAILED


def test_an_error_is_told_where_the_server_has_one() -> None:
    assert (
        step(task("Trainer", "FAILED", error=SimpleNamespace(message="no such artifact"))).error == "no such artifact"
    )
    assert step(task("Trainer", "FAILED")).error is None


def test_seconds_are_counted_from_the_start_to_the_end_or_to_now() -> None:
    now = datetime.now(timezone.utc)
    assert step(task("Trainer", "SUCCEEDED")).seconds == 30
    assert step(task("Trainer", "RUNNING", start_time=now - timedelta(seconds=10), end_time=NEVER)).seconds >= 10
    assert step(task("Trainer", "PENDING", start_time=NEVER, end_time=NEVER)).seconds == 0
