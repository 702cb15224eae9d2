from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from infeed.components.engine.project_archive import VARIABLE, digest
from infeed.components.kubeflow import disk
from infeed.pipelines.cli import main
from infeed.pipelines.cluster.submit import run as submission

if TYPE_CHECKING:
    pass

Submit = Callable[..., tuple[int, str, str]]


@contextlib.contextmanager
def to_file_descriptors() -> Iterator[None]:
    """As outside of pytest, whose own stdout goes past the file descriptors that a quiet screen redirects."""
    with (
        open(1, "w", closefd=False) as out,
        open(2, "w", closefd=False) as error,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(error),
    ):
        yield


@pytest.fixture
def submit(
    compiled_jobs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Submit:
    """`infeed submit job.yaml --parameter data=x` and what else is given: exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KF_PIPELINES_ENDPOINT", raising=False)
    monkeypatch.setattr(submission, "POLL_SECONDS", 0)
    compiled_jobs.write_yaml(tmp_path / "job.yaml", compiled_jobs.spec())

    def submitted(*arguments: str, job: str = "job.yaml") -> tuple[int, str, str]:
        with to_file_descriptors(), pytest.raises(SystemExit) as ended:
            main(["submit", job, "--parameter", "data=x", *arguments])
        return ended.value.code, *capfd.readouterr()  # type: ignore[return-value]

    return submitted


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no --host, and no --project and --region\n  do:    set --host for Kubeflow, or --project and --region"),
        (["--project", "p"], "no --region"),
        (["--host", "h", "--project", "p"], "--project is for Vertex AI"),
        (["--project", "p", "--region", "r", "--namespace", "n"], "--namespace is for Kubeflow"),
        (["--host", "h", "--endpoint", "e"], "--endpoint is for Vertex AI"),
        (["--host", "h", "--parameter", "epoch=1"], "unknown parameter 'epoch'"),
    ],
)
def test_a_mistake_is_told_before_a_client_is_imported(arguments: list[str], said: str, submit: Submit) -> None:
    code, out, error = submit(*arguments)
    assert (code, out) == (2, "")
    assert error.startswith(f"error: {said}")


def test_a_mistake_as_json(submit: Submit) -> None:
    code, out, error = submit("--host", "h", "--json", job="other.yaml")
    assert (code, error) == (2, "")
    assert "other.yaml" in json.loads(out)["error"]["what"]


@pytest.mark.slow
def test_the_clients_are_not_imported_for_help() -> None:
    script = (
        "import sys; from click.testing import CliRunner; from infeed.pipelines.cli import main;"
        "assert CliRunner().invoke(main, ['submit', '--help']).exit_code == 0;"
        "sys.exit(', '.join({'kfp', 'google.cloud.aiplatform_v1', 'tfx'} & set(sys.modules)) or None)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.slow
def test_a_run_is_started_and_left_to_itself(submit: Submit, serve: Any) -> None:
    server = serve()
    assert submit("--host", server.url, "--name", "weekly", "--parameter", "epochs=2") == (
        0,
        f"run   weekly\npage  {server.url}/#/runs/details/run-0\n"
        "the run continues on the cluster; see its page for progress, or use --wait to follow a run\n",
        "",
    )
    assert server.bodies("POST", "/runs$")[0]["runtime_config"]["parameters"] == {"data": "x", "epochs": 2}


@pytest.mark.slow
def test_the_archive_of_the_project_is_uploaded_first_and_a_small_disk_is_a_warning(
    submit: Submit, serve: Any, compiled_jobs: ModuleType, tmp_path: Path
) -> None:
    place, spec = tmp_path / "root" / "project" / f"{digest(b'archive')}.tar.gz", compiled_jobs.spec()
    variable = {"name": VARIABLE, "value": str(place)}
    limit = {"name": disk.LIMIT_VARIABLE, "value": "1"}
    spec["deploymentSpec"]["executors"]["Trainer_executor"]["container"]["env"] = [variable, limit]
    examples = {"artifacts": {"examples": {"artifactType": {"schemaTitle": "system.Dataset"}}}}
    spec["components"]["Trainer"]["inputDefinitions"] = examples
    (tmp_path / "x").write_bytes(b"the data")
    compiled_jobs.write_yaml(tmp_path / "job.yaml", spec)
    server = serve()
    code, _, error = submit("--host", server.url)
    assert (code, server.bodies("POST", "/runs$")) == (2, [])
    assert "job.project.tar.gz" in error
    (tmp_path / "job.project.tar.gz").write_bytes(b"archive")
    code, _, error = submit("--host", server.url)
    assert (code, error.partition(":")[0]) == (0, "warning")
    assert "Trainer (1 B)" in error
    assert place.read_bytes() == b"archive"


@pytest.mark.slow
def test_the_host_is_found_where_kfp_finds_it(submit: Submit, serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", serve().url)
    assert submit()[0] == 0


@pytest.mark.slow
def test_waiting_shows_each_step_as_it_goes(submit: Submit, serve: Any) -> None:
    server = serve(
        {"state": "RUNNING", "ExampleGen": "RUNNING"},
        {"state": "SUCCEEDED", "ExampleGen": "SUCCEEDED", "Trainer": "SUCCEEDED", "Pusher": "SKIPPED"},
    )
    code, out, _ = submit("--host", server.url, "--wait")
    lines = [line.split()[:2] for line in out.splitlines()[2:]]
    assert lines == [
        ["ExampleGen", "running"], ["ExampleGen", "done"], ["Trainer", "done"], ["Pusher", "skipped"], ["finished"]
    ]  # fmt: skip
    assert code == 0


@pytest.mark.slow
def test_a_run_that_fails_ends_with_1_and_where_to_look(submit: Submit, serve: Any) -> None:
    server = serve({"state": "FAILED", "Trainer": "FAILED"})
    code, out, _ = submit("--host", server.url, "--wait")
    assert code == 1
    heads = [line.split()[0] for line in out.splitlines()]
    assert heads[-4:] == ["failed", "page", "log", "why"]
    code, out, _ = submit("--host", server.url, "--wait", "--json")
    found = json.loads(out)
    assert (code, found["state"]) == (1, "failed")
    assert found["look"]["why"].startswith("kubectl get workflows")


@pytest.mark.slow
def test_vertex_is_told_by_project_and_region(submit: Submit, google_account: None) -> None:
    from vertex_server import VertexServer

    server = VertexServer([{"state": "SUCCEEDED", "ExampleGen": "SUCCEEDED", "Trainer": "SKIPPED"}])
    target = ["--project", "p", "--region", "us-central1", "--endpoint", server.url]
    code, out, _ = submit(*target, "--wait", "--service-account", "trainer@p")
    server.close()
    assert code == 0
    assert "page  https://console.cloud.google.com/vertex-ai/locations/us-central1/pipelines/runs/taxi-" in out
    assert out.endswith("\nfinished\n")
    assert server.asked[0].body["serviceAccount"] == "trainer@p"


@pytest.mark.slow
def test_ctrl_c_stops_the_waiting_and_not_the_run(submit: Submit, serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def ctrl_c(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("infeed.pipelines.cluster.submit.run.time.sleep", ctrl_c)
    server = serve({"state": "RUNNING", "ExampleGen": "RUNNING"})
    code, out, _ = submit("--host", server.url, "--wait")
    assert code == 130
    assert "stopped waiting" in out
    assert {asked.method for asked in server.asked if "/runs/" in asked.path} == {"GET"}


@pytest.mark.slow
def test_a_server_that_cannot_be_asked_any_more_ends_with_4(submit: Submit, serve: Any) -> None:
    server = serve()
    server.fail("GET", "/runs/", server.refusal(401, "token expired"))
    code, out, _ = submit("--host", server.url, "--wait", "--json")
    found = json.loads(out)
    assert (code, found["state"], found["run"]["id"]) == (4, "unknown", "run-0")
    assert "no valid credentials: token expired" in found["error"]


@pytest.mark.slow
def test_a_refusal_of_the_server_ends_with_2(submit: Submit, serve: Any) -> None:
    server = serve()
    server.fail("POST", "/runs$", server.refusal(403, "not in this namespace"))
    code, out, error = submit("--host", server.url)
    assert (code, out) == (2, "")
    assert error.startswith("error: permission denied: not in this namespace\n  where: http://127.0.0.1")
