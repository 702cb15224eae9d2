"""Recorded answers of real API servers, played to kfp's own client."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.cluster.job.compiled import CompiledJob
from infeed.pipelines.cluster.submit.run import RunState, RunStatus, SubmitRequest

if TYPE_CHECKING:
    from kfp_server import KfpServer
    from stand_in import Answer

pytestmark = pytest.mark.slow  # importing kfp alone takes seconds

ANSWERS = Path(__file__).parents[3] / "data" / "kubeflow" / "api"
VERSIONS = ["2.5.0", "7b70c7b9"]
STEPS = (
    "CsvExampleGen-input", "CsvExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator", "Transform", "Trainer",
    "Evaluator", "InputReport", "Pusher",
)  # fmt: skip


def recorded(version: str, name: str) -> Answer:
    from stand_in import Answer

    found = json.loads((ANSWERS / version / f"{name}.json").read_text())
    return Answer(found["body"], found["status"])


@pytest.fixture
def server(serve: Callable[..., KfpServer], monkeypatch: pytest.MonkeyPatch) -> KfpServer:
    monkeypatch.delenv("KF_PIPELINES_UI_ENDPOINT", raising=False)
    return serve()


@pytest.fixture
def status(kubeflow: ModuleType, jobs: ModuleType, server: KfpServer) -> Callable[..., RunStatus]:
    """The status of a run for an answer of the server."""

    def read(name: str, version: str = "7b70c7b9") -> RunStatus:
        server.fail("GET", "/healthz$", *[recorded(version, "healthz")] * 2)
        server.fail("POST", "/runs$", recorded(version, "run_create"))
        server.fail("GET", "/runs/", recorded(version, name))
        request = SubmitRequest(CompiledJob(jobs.of_steps(*STEPS)), "js", {})
        found: RunStatus = kubeflow.submit_kubeflow(request, host=server.url).status()
        return found

    return read


def states(status: RunStatus) -> str:
    """The first letter of the state of each step: waiting, running, done, failed, skipped."""
    return "".join(step.state.value[0] for step in status.steps)


@pytest.mark.parametrize(
    ("name", "state", "of_steps"),
    [
        ("run_get_running", RunState.RUNNING, "rwwwwwwwww"),
        ("run_get_canceling", RunState.RUNNING, "rwwwwwwwww"),
        ("run_get_after_cancel_failed", RunState.CANCELLED, "dswwwwwwww"),
        ("run_get_failed_after_retry", RunState.FAILED, "fwwwwwwwww"),
        ("run_get_failed_pod_invalid", RunState.FAILED, "fwwwwwwwww"),
        ("run_get_failed_argo_defaults_of_2.17.0", RunState.FAILED, "fwwwwwwwww"),
        ("run_get_running_argo_defaults_of_2.17.0", RunState.RUNNING, "dddddddddr"),
        ("run_get_succeeded_labels_annotations_retries", RunState.FINISHED, "dddddddddd"),
    ],
)
def test_the_states_of_a_run_and_its_steps(name: str, state: RunState, of_steps: str, status: Any) -> None:
    found = status(name)
    assert (found.state, states(found)) == (state, of_steps)
    assert bool(found.look) is (state is RunState.FAILED)


def test_a_run_that_waits_for_argo(status: Any) -> None:
    found = status("run_get_pending", "2.5.0")
    assert (found.state, states(found)) == (RunState.RUNNING, "w" * 10)


def test_without_a_pod_the_workflow_has_the_cause(status: Any) -> None:
    found = status("run_get_failed_pod_invalid")
    assert (found.failed.error, found.error) == (None, None)
    assert "pipeline/runid=" in found.look["why"]
    assert ".status.nodes.*" in found.look["why"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("name", "what"), [("run_terminate_400_already_terminated", "has ended"), ("run_terminate_404", "does not exist")]
)
def test_a_run_that_cannot_be_cancelled(
    version: str, name: str, what: str, kubeflow: ModuleType, server: KfpServer
) -> None:
    server.fail("POST", ":terminate$", recorded(version, name))
    with pytest.raises(InfeedError, match=f"the run js-1 {what}"):
        kubeflow.cancel_kubeflow("js-1", host=server.url)


def test_a_run_that_was_deleted(status: Any) -> None:
    with pytest.raises(InfeedError, match="no longer exists"):
        status("run_get_404")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_schedule_that_the_server_does_not_take(
    version: str, kubeflow: ModuleType, jobs: ModuleType, server: KfpServer
) -> None:
    server.fail("POST", "/recurringruns$", recorded(version, "recurring_run_create_400_day7"))
    request = SubmitRequest(CompiledJob(jobs.of_steps(*STEPS)), "js", {})
    with pytest.raises(InfeedError, match="above maximum") as error:
        kubeflow.schedule_kubeflow(request, "0 6 * * FRI-SUN", host=server.url)
    assert error.value.where == "--cron"
    kubeflow.schedule_kubeflow(request, "0 6 * * 7", host=server.url)
    assert server.bodies("POST", "/recurringruns$")[-1]["trigger"]["cron_schedule"]["cron"] == "0 0 6 * * 0"
