from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.cluster.job.compiled import Task
from infeed.pipelines.cluster.submit.run import (
    RunState,
    RunStatus,
    SubmissionOutcome,
    blames_image,
    check_cron,
    kubeflow_steps,
    sundays_as_0,
)
from infeed.pipelines.console.nodes import NodeReport, NodeState

LOOK = {"log": "kubectl logs", "why": "kubectl get workflows"}
ENDS = "page  http://host/#/runs/details/run-0\nlog   kubectl logs\nwhy   kubectl get workflows"
IMAGES = ("registry.example/taxi:1",)
TRAINER = NodeReport("Trainer", NodeState.FAILED, 90, error="main: Error (exit code 1)")


@dataclass
class Started:
    """As much of a `Run` as is told of."""

    id: str = "run-0"
    name: str = "taxi 1"
    link: str = "http://host/#/runs/details/run-0"
    warning: str | None = None


def failed(error: str | None = "1 step failed", step: NodeReport | None = TRAINER) -> SubmissionOutcome:
    steps = () if step is None else (NodeReport("ExampleGen", NodeState.DONE, 3), step)
    return SubmissionOutcome(Started(), "failed", RunStatus(RunState.FAILED, steps, error, LOOK))  # type: ignore[arg-type]


def text(outcome: SubmissionOutcome) -> str:
    return outcome.as_text(IMAGES).plain


@pytest.mark.parametrize(
    ("state", "code"), [("finished", 0), ("started", 0), ("failed", 1), ("cancelled", 1), ("unknown", 4), ("left", 130)]
)
def test_exit_codes_tell_the_ends_apart(state: str, code: int) -> None:
    assert SubmissionOutcome(Started(), state).exit_code == code  # type: ignore[arg-type]


def test_a_failure_is_told_with_step_error_and_where_to_look() -> None:
    assert text(failed()) == f"failed at Trainer\nmain: Error (exit code 1)\n{ENDS}"


def test_where_the_step_has_no_error_of_its_own_that_of_the_run_is_told() -> None:
    step = NodeReport("Trainer", NodeState.FAILED)
    assert text(failed(step=step)) == f"failed at Trainer\n1 step failed\n{ENDS}"
    assert text(failed(step=step, error=None)) == f"failed at Trainer\n{ENDS}"


def test_a_failure_of_no_step_is_told_in_the_platforms_words() -> None:
    assert text(failed("the pod quota is used up", None)) == f"failed\nthe pod quota is used up\n{ENDS}"


@pytest.mark.parametrize(
    "said",
    [
        "ModuleNotFoundError: No module named 'infeed'",
        "ImportError: cannot import name 'Examples' from 'tfx.types'",
        "Back-off pulling image: ImagePullBackOff",
        "exec: python: executable file not found in $PATH",
        "TypeError: __init__() got an unexpected keyword argument 'cache_dir'",
    ],
)
def test_where_the_image_is_to_blame_the_doctor_is_named(said: str) -> None:
    advice = "doctor --image registry.example/taxi:1"
    assert text(failed(said)).splitlines()[-1].endswith(advice)
    assert str(failed(said).as_json(IMAGES)["advice"]).endswith(advice)


def test_other_failures_send_nobody_to_the_doctor() -> None:
    assert not blames_image(["ValueError: no data", None, "OOMKilled"])
    assert failed("ValueError: no data").as_json(IMAGES)["advice"] is None


def test_waiting_that_ends_early_says_that_the_run_goes_on() -> None:
    for state in ("started", "left", "unknown"):
        assert "the cluster" in text(SubmissionOutcome(Started(), state))  # type: ignore[arg-type]
    lost = SubmissionOutcome(Started(), "unknown", reason="cannot reach the server")  # type: ignore[arg-type]
    assert text(lost).endswith("\ncannot reach the server")
    assert lost.as_json(IMAGES)["error"] == "cannot reach the server"


def test_the_same_for_programs() -> None:
    found: dict[str, Any] = json.loads(json.dumps(failed().as_json(IMAGES)))
    assert found["run"] == {"id": "run-0", "name": "taxi 1", "link": "http://host/#/runs/details/run-0"}
    assert (found["state"], found["error"], found["look"]) == ("failed", "1 step failed", LOOK)
    assert [(step["name"], step["state"]) for step in found["steps"]] == [("ExampleGen", "done"), ("Trainer", "failed")]


def test_a_warning_is_told_beside_the_rest() -> None:
    outcome = SubmissionOutcome(Started(warning="not listed under 'weekly'"), "finished")  # type: ignore[arg-type]
    assert text(outcome) == "finished\nnot listed under 'weekly'"
    assert outcome.as_json(IMAGES)["warning"] == "not listed under 'weekly'"


@pytest.mark.parametrize("expression", ["0 6 * * 1-5", "*/15 0-6 1,15 * MON", "  0 6  * * *"])
def test_five_fields_are_a_cron_expression(expression: str) -> None:
    assert check_cron(expression).split() == expression.split()


@pytest.mark.parametrize(
    "expression", ["", "0 6 * *", "0 0 6 * * *", "0 6 * * ;", "@daily", "0 25 * * *", "0 6 0 * 1-9"]
)
def test_anything_else_is_refused(expression: str) -> None:
    with pytest.raises(InfeedError) as error:
        check_cron(expression)
    assert error.value.where == "--cron"


@pytest.mark.parametrize(
    ("days", "without_7"),
    [
        ("7", "0"), ("1-7", "1,2,3,4,5,6,0"), ("5-7,2", "5,6,0,2"), ("1-7/3", "1,4,0"), ("0-7", "0,1,2,3,4,5,6"),
        ("2,7", "2,0"), ("*", "*"), ("*/7", "*/7"), ("1-5", "1-5"), ("MON-FRI", "MON-FRI"),
    ],
)  # fmt: skip
def test_sunday_is_day_0_for_kubeflow_and_other_fields_stay(days: str, without_7: str) -> None:
    assert sundays_as_0(f"7 7 7 7 {days}") == f"7 7 7 7 {without_7}"


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
