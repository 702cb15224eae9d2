from __future__ import annotations

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest

from infeed.pipelines.console.nodes import NodeState
from infeed.pipelines.job.compiled import Task
from infeed.pipelines.submit.run import Step
from infeed.pipelines.submit.steps import kubeflow_steps, pods

NOON = datetime(2025, 3, 1, 12, tzinfo=timezone.utc)
NEVER = datetime(1970, 1, 1, tzinfo=timezone.utc)


def task(name: str, state: str | None, child: str | None = None, **fields: object) -> SimpleNamespace:
    """What kfp makes of a `V2beta1PipelineTaskDetail`."""
    children = [SimpleNamespace(pod_name=child, task_id=None)] if child else None
    given = {"start_time": NOON, "end_time": NOON + timedelta(seconds=30), "error": None, **fields}
    return SimpleNamespace(display_name=name, state=state, child_tasks=children, **given)


def planned(path: tuple[str, ...], retries: int | None = None) -> Task:
    spec = {} if retries is None else {"retryPolicy": {"maxRetryCount": retries}}
    return Task(path, path[-1], spec, component={}, executor={"container": {}})


def step(*tasks: SimpleNamespace) -> Step:
    [found] = kubeflow_steps([planned(("Trainer",))], tasks)
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
    found = step(task("Trainer-driver", "FAILED", "taxi-1-99"), task("Trainer", None))
    assert found.state is NodeState.FAILED
    assert [pod.rpartition("-")[0] for pod in found.jobs] == ["taxi-1-system-container-driver"]


@pytest.mark.parametrize(
    ("path", "pod"),
    [
        (("print-op",), "tutorial-control-flows-gbjpn-system-container-impl-1647980155"),
        (("exit-handler-1", "fail-op"), "tutorial-control-flows-gbjpn-system-container-impl-2018360503"),
    ],
)
def test_pods_have_the_names_that_they_have_in_a_cluster(path: tuple[str, ...], pod: str) -> None:
    """As listed in https://github.com/kubeflow/pipelines/issues/10036."""
    assert pods(planned(path), "tutorial-control-flows-gbjpn") == (pod,)


def test_a_step_that_may_be_retried_has_a_pod_for_each_attempt() -> None:
    assert pods(planned(("Trainer",), retries=2), "taxi-x7k2p") == (
        "taxi-x7k2p-retry-system-container-impl-2339449575",
        "taxi-x7k2p-retry-system-container-impl-4017358570",
        "taxi-x7k2p-retry-system-container-impl-125201225",
    )


def test_the_run_is_named_by_the_children_of_any_node() -> None:
    found = step(task("root", "RUNNING", "taxi-x7k2p-4"), task("Trainer", "RUNNING"))
    assert found.jobs == ("taxi-x7k2p-system-container-impl-2579989228",)
    assert step(task("Trainer", "RUNNING")).jobs == ()


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
