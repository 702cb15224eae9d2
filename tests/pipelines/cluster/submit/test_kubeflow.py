"""Runs on Kubeflow Pipelines, by kfp's own client against a server that checks what it is sent."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.cluster.job.compiled import CompiledJob
from infeed.pipelines.cluster.submit import run as submission
from infeed.pipelines.cluster.submit.run import RunState, SubmitRequest
from infeed.pipelines.console.exit_codes import LostError

if TYPE_CHECKING:
    pass

pytestmark = [pytest.mark.slow, pytest.mark.stack]  # importing kfp alone takes seconds


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("KF_PIPELINES_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(submission, "POLL_SECONDS", 0)


@pytest.fixture
def request_(jobs: ModuleType) -> SubmitRequest:
    return SubmitRequest(CompiledJob(jobs.spec()), "taxi 1", {"data": "gs://bucket/rides", "epochs": 7})


@pytest.fixture
def submit(kubeflow: ModuleType, request_: SubmitRequest) -> Callable[..., Any]:
    """submit(URL, ...): the run of `request_`, or of a job."""

    def submitted(host: str, job: CompiledJob | None = None, **given: Any) -> Any:
        asked = SubmitRequest(job, "taxi", {"data": "x"}) if job else request_
        return kubeflow.submit_kubeflow(asked, host=host, **given)

    return submitted


def test_a_run_is_started_with_all_that_was_asked_for(
    kubeflow: ModuleType, jobs: ModuleType, serve: Any, tmp_path: Path
) -> None:
    platform = {"platforms": {"kubernetes": {"deploymentSpec": {"executors": {"Trainer_executor": {}}}}}}
    job = CompiledJob.read(jobs.write_yaml(tmp_path / "job.yaml", jobs.spec(), platform))
    asked = SubmitRequest(job, "taxi 1", {"data": "gs://rides", "epochs": 7}, "weekly", "trainer", cache=False)
    server = serve(multi_user=True)
    run = kubeflow.submit_kubeflow(asked, host=server.url, namespace="alice")
    [sent] = server.bodies("POST", "/runs$")
    assert sent["display_name"] == "taxi 1"
    assert sent["service_account"] == "trainer"
    assert sent["runtime_config"] == {
        "parameters": {"data": "gs://rides", "epochs": 7},
        "pipeline_root": "gs://bucket/taxi",
    }
    assert sent["pipeline_spec"]["platform_spec"] == platform
    tasks = sent["pipeline_spec"]["pipeline_spec"]["components"]["condition"]["dag"]["tasks"]
    assert not tasks["Pusher"]["cachingOptions"].get("enableCache")
    [experiment] = server.bodies("POST", "/experiments$")
    assert experiment == {"display_name": "weekly", "namespace": "alice"}
    assert run.link == f"{server.url}/#/runs/details/{run.id}"


def test_an_experiment_is_made_once(submit: Any, serve: Any) -> None:
    server = serve()
    for _ in range(2):
        submit(server.url)
    assert [body["display_name"] for body in server.bodies("POST", "/experiments$")] == ["Default"]
    first, second = server.bodies("POST", "/runs$")
    assert first["experiment_id"] == second["experiment_id"]


def test_a_pipeline_job_in_json_is_submitted_as_the_spec_it_holds(
    submit: Any, jobs: ModuleType, serve: Any, tmp_path: Path
) -> None:
    job = CompiledJob.read(jobs.write_json(tmp_path / "job.json", jobs.spec(), gcsOutputDirectory="s3://other/root"))
    server = serve()
    submit(server.url, job)
    [sent] = server.bodies("POST", "/runs$")
    assert sent["pipeline_spec"]["pipelineInfo"] == {"name": "taxi"}
    assert sent["runtime_config"]["pipeline_root"] == "s3://other/root"


def test_what_infeed_compile_writes_is_taken(submit: Any, serve: Any) -> None:
    job = CompiledJob.read(Path(__file__).parents[2] / "golden" / "kubeflow.yaml")
    server = serve()
    submit(server.url, job)
    [sent] = server.bodies("POST", "/runs$")
    assert sent["pipeline_spec"]["platform_spec"] == job.platform


def test_a_run_is_followed_to_its_end(submit: Any, serve: Any) -> None:
    server = serve(
        {"state": "PENDING"},
        {"state": "RUNNING", "ExampleGen": "RUNNING"},
        {"state": "RUNNING", "ExampleGen": "SUCCEEDED", "Trainer": "RUNNING"},
        {"state": "SUCCEEDED", "ExampleGen": "SUCCEEDED", "Trainer": "SUCCEEDED", "Pusher": "SKIPPED"},
    )
    seen = list(submission.follow(submit(server.url)))
    assert [[step.state.value for step in status.steps] for status in seen] == [
        ["waiting", "waiting", "waiting"],
        ["running", "waiting", "waiting"],
        ["done", "running", "waiting"],
        ["done", "done", "skipped"],
    ]
    assert seen[-1].state is RunState.FINISHED
    assert seen[-1].steps[1].seconds == pytest.approx(90)


def test_a_failure_names_the_step_its_log_and_the_command_that_shows_the_cause(submit: Any, serve: Any) -> None:
    server = serve({"state": "FAILED", "error": "1 step failed", "Trainer": "FAILED"}, multi_user=True)
    status = submit(server.url, namespace="alice").status()
    assert (status.state, status.error) == (RunState.FAILED, "1 step failed")
    assert status.failed is not None
    assert status.failed.name == "Trainer"
    pods = "--namespace alice --selector pipeline/runid=run-0"
    assert status.look["log"].startswith(f"kubectl logs {pods} --container main")
    assert status.look["why"].startswith(f"kubectl get workflows {pods} -o 'jsonpath=")


def test_the_namespace_of_a_server_with_a_single_user_is_its_own(
    submit: Any, kubeflow: ModuleType, request_: SubmitRequest, serve: Any
) -> None:
    server = serve({"state": "FAILED", "Trainer": "FAILED"})
    run = submit(server.url, namespace="alice")
    assert "--namespace kubeflow" in run.status().look["why"]
    assert "alice" in run.warning
    assert "alice" in kubeflow.schedule_kubeflow(request_, "0 6 * * *", host=server.url, namespace="alice").warning
    assert submit(server.url).warning is None


def test_an_answer_that_was_lost_is_not_asked_for_again_and_not_called_a_refusal(submit: Any, serve: Any) -> None:
    from stand_in import BROKEN

    server = serve()
    for answer in (server.refusal(503, "no healthy upstream"), BROKEN):
        server.fail("POST", "/runs$", answer)
        with pytest.raises(LostError, match=r"may have started: (.|\n)*list of runs"):
            submit(server.url)
    assert len(server.bodies("POST", "/runs$")) == 2


@pytest.mark.parametrize(("method", "path"), [("GET", "healthz"), ("POST", "/runs$")])
def test_a_page_that_answers_is_told_from_the_api(method: str, path: str, submit: Any, serve: Any) -> None:
    from stand_in import PAGE

    server = serve()
    server.fail(method, path, PAGE)
    with pytest.raises(InfeedError, match="web page"):
        submit(server.url)


def test_a_redirect_to_a_login_elsewhere_is_named_without_what_it_carries(submit: Any, serve: Any) -> None:
    from stand_in import PAGE, Answer

    server, login = serve(), serve()
    elsewhere = login.url.replace("127.0.0.1", "localhost")
    server.fail("GET", "healthz", Answer("", 302, {"Location": f"{elsewhere}/dex/auth?state=secret"}))
    login.fail("GET", "/dex/auth", PAGE)
    with pytest.raises(InfeedError, match=rf"login at {elsewhere}/dex/auth\n") as raised:
        submit(server.url)
    assert "secret" not in str(raised.value)


def test_nobody_there(submit: Any) -> None:
    with pytest.raises(
        InfeedError, match=r"cannot reach the server: Connection refused\n  where: http://127.0.0.1:1\n"
    ):
        submit("http://user:secret@127.0.0.1:1")


def test_a_server_that_restarts_is_asked_again_for_some_minutes(
    submit: Any, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve({"state": "SUCCEEDED"})
    run = submit(server.url)
    server.fail("GET", "/runs/", server.refusal(500, "database is locked"), server.refusal(503, "restarts"))
    assert [status.state for status in submission.follow(run)] == [RunState.FINISHED]
    server.close()
    monkeypatch.setattr(submission, "PATIENCE_SECONDS", 0)
    with pytest.raises(InfeedError, match="cannot reach the server"):
        list(submission.follow(run))


def test_a_shared_installation_wants_a_namespace(submit: Any, serve: Any) -> None:
    with pytest.raises(InfeedError, match=r"needs a namespace(.|\n)*--namespace PROFILE"):
        submit(serve(multi_user=True).url)


def test_the_token_of_a_cluster_is_sent(
    submit: Any, serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("s3cret")
    monkeypatch.setenv("KF_PIPELINES_SA_TOKEN_PATH", str(tmp_path / "token"))
    server = serve({"state": "SUCCEEDED"}, token="s3cret")
    assert submit(server.url).status().state is RunState.FINISHED
    (tmp_path / "token").write_text("expired")
    with pytest.raises(InfeedError, match=r"no valid credentials: Request not authenticated") as raised:
        submit(server.url)
    assert "expired" not in str(raised.value)


def test_a_login_that_needs_a_terminal_is_asked_for_and_not_waited_for(
    submit: Any, serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KF_PIPELINES_IAP_OAUTH2_CLIENT_ID", "proxy")
    monkeypatch.setenv("KF_PIPELINES_APP_OAUTH2_CLIENT_ID", "application")
    monkeypatch.setattr("kfp.client.auth.LOCAL_KFP_CREDENTIAL", str(tmp_path / "credentials.json"))
    with pytest.raises(InfeedError, match=r"Identity-Aware Proxy(.|\n)*kfp --endpoint http://127"):
        submit(serve().url)


def test_a_job_for_another_platform_is_refused_before_anything_is_sent(
    submit: Any, jobs: ModuleType, serve: Any
) -> None:
    server = serve()

    def refused(spec: dict[str, Any]) -> None:
        submit(server.url, CompiledJob(spec))

    with pytest.raises(InfeedError, match=r"schema 2\.0\.0.*\n.*'taxi'\n.*--target"):
        refused(jobs.spec_2_0())
    for kind in ("resolver", "customJob"):
        with pytest.raises(InfeedError, match=rf"executors {kind}"):
            refused(jobs.spec(deploymentSpec={"executors": {"Trainer_executor": {kind: {}}}}))
    with pytest.raises(InfeedError, match=r"'runs/taxi'(.|\n)*s3://bucket/folder"):
        refused(jobs.spec(defaultPipelineRoot="runs/taxi"))
    with pytest.raises(InfeedError, match="hdfs://"):
        refused(jobs.spec(defaultPipelineRoot="hdfs://host/taxi"))
    with pytest.raises(InfeedError, match=r"accelerator is 'NVIDIA_L4'"):
        refused(jobs.spec(deploymentSpec=jobs.with_accelerator("NVIDIA_L4")))
    assert server.asked == []


def test_a_job_that_kfp_cannot_read_says_which_kfp(submit: Any, jobs: ModuleType, serve: Any) -> None:
    with pytest.raises(InfeedError, match=r"kfp 2\.\d+\.\d+ cannot read the job: .*newField"):
        submit(serve().url, CompiledJob(jobs.spec(newField=1)))


def test_a_schedule_is_a_recurring_run_with_seconds_before_the_minute(
    kubeflow: ModuleType, request_: SubmitRequest, serve: Any
) -> None:
    server = serve()
    schedule = kubeflow.schedule_kubeflow(request_, "0 6 * * 1-5", host=server.url)
    [sent] = server.bodies("POST", "/recurringruns$")
    assert sent["trigger"] == {"cron_schedule": {"cron": "0 0 6 * * 1-5"}}
    assert sent["runtime_config"]["parameters"] == {"data": "gs://bucket/rides", "epochs": 7}
    assert (sent["mode"], sent["max_concurrency"], sent["no_catchup"]) == ("ENABLE", 1, True)
    assert schedule.link == f"{server.url}/#/recurringrun/details/recurring-0"
