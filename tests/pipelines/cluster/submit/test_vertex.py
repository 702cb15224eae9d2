"""Runs on Vertex AI, by Google's own client against a server that checks what it is sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
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
    from stand_in import Asked
    from vertex_server import VertexServer

pytestmark = [pytest.mark.slow, pytest.mark.stack]  # importing google-cloud-aiplatform alone takes seconds


@pytest.fixture(autouse=True)
def no_pauses(google_account: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "POLL_SECONDS", 0)


@pytest.fixture
def vertex() -> ModuleType:
    from infeed.pipelines.cluster.submit import vertex

    return vertex


@pytest.fixture
def serve() -> Iterator[Callable[..., VertexServer]]:
    from stand_in import serving
    from vertex_server import VertexServer

    with serving(VertexServer) as started:
        yield started


@pytest.fixture
def submit(vertex: ModuleType, jobs: ModuleType) -> Callable[..., Any]:
    def submitted(server: VertexServer, spec: dict[str, Any] | None = None, **changes: Any) -> Any:
        job = CompiledJob(spec or jobs.spec(), runtime=changes.pop("runtime", {}))
        asked = SubmitRequest(**{"job": job, "name": "taxi 1", "parameters": {"data": "gs://rides"}, **changes})
        return vertex.submit_vertex(asked, project="p", region="us-central1", endpoint=server.url)

    return submitted


def started(server: VertexServer) -> list[Asked]:
    return [asked for asked in server.asked if asked.method == "POST" and asked.path.endswith("/pipelineJobs")]


def test_a_run_is_started_with_all_that_was_asked_for(submit: Any, serve: Any) -> None:
    server = serve()
    run = submit(server, parameters={"data": "gs://rides", "epochs": 7}, service_account="t@p", cache=False)
    [sent] = started(server)
    assert sent.path == "/v1/projects/p/locations/us-central1/pipelineJobs"
    assert sent.headers["Authorization"].startswith("Bearer ")
    assert sent.body["displayName"] == "taxi 1"
    assert sent.body["serviceAccount"] == "t@p"
    assert sent.body["runtimeConfig"] == {
        "gcsOutputDirectory": "gs://bucket/taxi",
        "parameterValues": {"data": "gs://rides", "epochs": 7},
    }
    tasks = sent.body["pipelineSpec"]["components"]["condition"]["dag"]["tasks"]
    assert tasks["Pusher"]["cachingOptions"] == {"enableCache": False}
    job_id = sent.query["pipelineJobId"]
    assert job_id.startswith("taxi-")
    assert run.id == f"projects/p/locations/us-central1/pipelineJobs/{job_id}"
    assert run.link == (
        f"https://console.cloud.google.com/vertex-ai/locations/us-central1/pipelines/runs/{job_id}?project=p"
    )


def test_the_jobs_own_values_stay_where_none_is_given(submit: Any, serve: Any) -> None:
    server = serve()
    submit(server, runtime={"gcsOutputDirectory": "gs://other", "parameterValues": {"epochs": 9, "data": "gs://old"}})
    assert started(server)[0].body["runtimeConfig"] == {
        "gcsOutputDirectory": "gs://other",
        "parameterValues": {"epochs": 9, "data": "gs://rides"},
    }


def test_schema_2_0_gets_its_values_with_their_types(submit: Any, jobs: ModuleType, serve: Any) -> None:
    server = serve()
    submit(server, jobs.spec_2_0(), parameters={"data": "gs://rides", "epochs": 7})
    assert started(server)[0].body["runtimeConfig"]["parameters"] == {
        "data": {"stringValue": "gs://rides"},
        "epochs": {"intValue": "7"},
    }


@pytest.mark.parametrize("schema", ["2.0", "2.1"])
def test_what_infeed_compile_writes_is_taken(schema: str, submit: Any, serve: Any) -> None:
    job = CompiledJob.read(Path(__file__).parents[2] / "golden" / f"vertex-{schema}.json")
    server = serve({"state": "SUCCEEDED"})
    assert submit(server, job=job, parameters={"epochs": 2}).status().state is RunState.FINISHED
    sent = started(server)[0].body
    assert (sent["serviceAccount"], sent["labels"]["team"]) == ("trainer@flowers.iam.gserviceaccount.com", "flora")


def test_a_run_is_followed_to_its_end(submit: Any, serve: Any) -> None:
    server = serve(
        {"state": "PENDING"},
        {"state": "RUNNING", "ExampleGen": "RUNNING"},
        {"state": "RUNNING", "ExampleGen": "SKIPPED", "Trainer": "PENDING"},
        {"state": "SUCCEEDED", "ExampleGen": "SKIPPED", "Trainer": "SUCCEEDED", "Pusher": "NOT_TRIGGERED"},
    )
    seen = list(submission.follow(submit(server)))
    assert [[step.state.value for step in status.steps] for status in seen] == [
        ["waiting", "waiting", "waiting"],
        ["running", "waiting", "waiting"],
        ["cached", "waiting", "waiting"],  # "skipped due to cache hit", in Vertex AI's words
        ["cached", "done", "skipped"],
    ]
    assert seen[-1].state is RunState.FINISHED
    assert seen[-1].steps[1].seconds == 90.5


def test_a_failure_names_the_step_and_its_error(submit: Any, serve: Any) -> None:
    server = serve({"state": "FAILED", "error": "The DAG failed", "Trainer": ("FAILED", "exited with status 1")})
    status = submit(server).status()
    assert (status.state, status.error) == (RunState.FAILED, "The DAG failed")
    assert (status.failed.name, status.failed.error) == ("Trainer", "exited with status 1")


def test_a_cancelled_run_has_ended(submit: Any, serve: Any) -> None:
    assert submit(serve({"state": "CANCELLED"})).status().state is RunState.CANCELLED


def test_a_start_of_which_nobody_knows_is_not_called_a_refusal(submit: Any, serve: Any) -> None:
    from stand_in import BROKEN
    from vertex_server import error

    server = serve()
    for answer in (error(503, "UNAVAILABLE", "busy"), BROKEN):
        server.fail("POST", "pipelineJobs", answer)
        with pytest.raises(LostError, match=r"may have started: (.|\n)*list of runs"):
            submit(server)
        server.relent()


@pytest.mark.parametrize(
    ("code", "status", "message", "reason", "said"),
    [
        (403, "PERMISSION_DENIED", "off", "SERVICE_DISABLED", r"disabled(.|\n)*gcloud services enable"),
        (400, "INVALID_ARGUMENT", "bad spec", None, r"\(400\).*bad spec\n.*\n.*compile the job again"),
        (502, "", "<HTML>proxy</HTML>", None, r"may have started.*\(502\): .*web page"),
    ],
)
def test_a_refusal_is_told_with_googles_words_and_what_to_do(
    code: int, status: str, message: str, reason: str | None, said: str, submit: Any, serve: Any
) -> None:  # fmt: skip
    from vertex_server import error

    server = serve()
    server.fail("POST", "pipelineJobs", *[error(code, status, message, reason)] * 9)
    with pytest.raises(InfeedError, match=said):
        submit(server)


def test_nobody_there(submit: Any, serve: Any) -> None:
    server = serve()
    server.close()
    with pytest.raises(InfeedError, match=r"cannot reach Vertex AI: .*Connection refused\n.*\n.*--region.*HTTPS_PROXY"):
        submit(server)


def test_without_credentials(submit: Any, serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(
        InfeedError, match=r"no Google credentials: .*none\.json.*\n.*\n.*gcloud auth application-default"
    ):
        submit(serve())


def test_credentials_that_google_does_not_renew(
    submit: Any, serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stand_in import Answer

    server = serve()
    server.fail(
        "POST", "/token", Answer({"error": "invalid_grant", "error_description": "Token has been revoked."}, 400)
    )
    user = {"type": "authorized_user", "client_id": "c", "client_secret": "s3cret", "refresh_token": "s3cret"}
    (tmp_path / "user.json").write_text(json.dumps(user))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "user.json"))
    monkeypatch.setattr("google.oauth2.credentials._GOOGLE_OAUTH2_TOKEN_ENDPOINT", f"{server.url}/token")
    with pytest.raises(
        InfeedError, match=r"invalid_grant: Token has been revoked\.\n.*\n  do:    renew them"
    ) as raised:
        submit(server)
    assert "s3cret" not in str(raised.value)


def test_a_run_is_listed_under_its_experiment(submit: Any, serve: Any) -> None:
    server = serve({"state": "PENDING"}, {"state": "RUNNING"})
    for _ in range(2):
        assert submit(server, experiment="weekly").warning is None
    assert server.experiments == {
        "weekly": ["projects/p/locations/us-central1/metadataStores/default/contexts/run"] * 2
    }


def test_an_experiment_that_cannot_be_had_is_refused_before_the_run(submit: Any, serve: Any) -> None:
    from vertex_server import error

    server = serve({"state": "RUNNING"})
    server.fail("POST", "contexts", error(403, "PERMISSION_DENIED", "no metadata for you"))
    with pytest.raises(InfeedError, match="permission denied: no metadata for you"):
        submit(server, experiment="weekly")
    with pytest.raises(InfeedError, match=r"experiment is 'Weekly runs'"):
        submit(server, experiment="Weekly runs")
    assert started(server) == []


def test_a_run_that_cannot_be_listed_goes_on_with_a_warning(submit: Any, serve: Any) -> None:
    from vertex_server import error

    server = serve({"state": "RUNNING"}, {"state": "RUNNING"})
    server.fail("POST", "addContextChildren", error(403, "PERMISSION_DENIED", "no metadata for you"))
    run = submit(server, experiment="weekly")
    assert "'weekly'" in run.warning
    assert "no metadata for you" in run.warning


def test_a_job_for_another_platform_is_refused_before_anything_is_sent(
    vertex: ModuleType, jobs: ModuleType, submit: Any, serve: Any
) -> None:
    server = serve()
    kubernetes = CompiledJob(jobs.spec(), platform={"platforms": {"kubernetes": {}}})
    with pytest.raises(InfeedError, match=r"settings for Kubernetes.*\n.*'taxi'\n.*--target vertex"):
        submit(server, job=kubernetes)
    with pytest.raises(InfeedError, match=r"root is 's3://b'"):
        submit(server, jobs.spec(defaultPipelineRoot="s3://b"))
    with pytest.raises(InfeedError, match=r"accelerator is 'nvidia\.com/gpu'"):
        submit(server, jobs.spec(deploymentSpec=jobs.with_accelerator("nvidia.com/gpu")))
    without_tfx = {"executors": {"Trainer_executor": {"container": {"image": jobs.IMAGE, "command": ["infeed"]}}}}
    with pytest.raises(InfeedError, match="Kubeflow's launcher"):
        submit(server, jobs.spec(deploymentSpec=without_tfx))
    assert server.asked == []


def test_a_schedule_starts_the_job_by_a_cron_expression(vertex: ModuleType, jobs: ModuleType, serve: Any) -> None:
    server = serve()
    request = SubmitRequest(CompiledJob(jobs.spec()), "taxi 1", {"data": "gs://rides"}, service_account="t@p")
    schedule = vertex.schedule_vertex(request, "0 6 * * 1-5", project="p", region="us-central1", endpoint=server.url)
    [sent] = server.bodies("POST", "/schedules$")
    assert (sent["displayName"], sent["cron"], sent["maxConcurrentRunCount"]) == ("taxi 1", "0 6 * * 1-5", "1")
    start = sent["createPipelineJobRequest"]
    assert start["parent"] == "projects/p/locations/us-central1"
    assert start["pipelineJob"]["serviceAccount"] == "t@p"
    assert start["pipelineJob"]["runtimeConfig"]["parameterValues"] == {"data": "gs://rides"}
    assert schedule.id == "projects/p/locations/us-central1/schedules/7"


def test_a_run_is_cancelled_by_its_id_or_its_resource_name(vertex: ModuleType, submit: Any, serve: Any) -> None:
    server = serve({"state": "RUNNING"})
    run = submit(server)
    where = {"project": "p", "region": "us-central1", "endpoint": server.url}
    for name in (run.id, run.id.rpartition("/")[2]):
        vertex.cancel_vertex(name, **where)
    with pytest.raises(InfeedError, match="not found"):
        vertex.cancel_vertex("nothing", **where)
    assert [asked.path for asked in server.asked if asked.path.endswith(":cancel")][:2] == [f"/v1/{run.id}:cancel"] * 2
