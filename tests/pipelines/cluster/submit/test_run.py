from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from infeed.pipelines.cluster.submit.run import RunState, RunStatus, SubmissionOutcome, blames_image
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
