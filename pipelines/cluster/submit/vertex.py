"""Submits a compiled job to Vertex AI with `google.cloud.aiplatform.PipelineJob`, and follows the run."""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

import google.auth
import requests
import urllib3
from google.api_core import exceptions
from google.auth import exceptions as auth
from google.cloud import aiplatform
from google.protobuf import json_format

from infeed.components.base.errors import InfeedError
from infeed.pipelines.cluster.job.compiled import CompiledJob, leaves
from infeed.pipelines.cluster.submit.run import (
    RunSchedule,
    RunState,
    RunStatus,
    SilentError,
    SubmitRequest,
    last_words,
    starting,
    vertex_steps,
)

_LOGIN = "gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS to a key file"
_REQUEST = re.compile(r"^[A-Z]+ https?://\S+: ")  # google-api-core's prefix of the server's message
_LONGEST = 600  # characters of a message
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_SECONDS = 60.0  # timeout of the request that starts a run
_RUN_STATES = {
    "PIPELINE_STATE_SUCCEEDED": RunState.FINISHED,
    "PIPELINE_STATE_FAILED": RunState.FAILED,
    "PIPELINE_STATE_CANCELLED": RunState.CANCELLED,
}
_COMPILE = "compile it for Vertex AI: infeed compile PROJECT --target vertex --output job.json"
_NAME = re.compile("[a-z0-9][a-z0-9-]{0,127}")


@contextlib.contextmanager
def translate_errors(endpoint: str) -> Iterator[None]:
    """Convert errors of Google's libraries to InfeedErrors."""
    try:
        yield
    except auth.DefaultCredentialsError as error:
        raise InfeedError(f"no Google credentials: {_short(error)}", where=endpoint, do=f"run {_LOGIN}") from error
    except auth.RefreshError as error:
        what = f"Google rejected the credentials: {_short(error.args[0])}"
        raise InfeedError(what, where=endpoint, do=f"renew them: {_LOGIN}") from error
    except exceptions.RetryError as error:
        raise _refused(error.cause, endpoint) from error
    except (exceptions.GoogleAPICallError, requests.RequestException, auth.TransportError) as error:
        raise _refused(error, endpoint) from error
    except (json_format.ParseError, RuntimeError, ValueError) as error:
        do = "check --region and --endpoint, and compile the job again in this environment"
        raise InfeedError(f"Vertex AI's client reports: {_short(error)}", where=endpoint, do=do) from error


def may_have_begun(error: BaseException | None) -> bool:
    """Report whether Google may have started the run: an internal error, or a broken connection."""
    cause = error.cause if isinstance(error, exceptions.RetryError) else error
    inner = cause.args[0] if isinstance(cause, requests.ConnectionError) and cause.args else None
    broke_off = isinstance(inner, urllib3.exceptions.ProtocolError)
    return broke_off or isinstance(cause, (exceptions.ServerError, requests.ReadTimeout))


def _refused(error: Exception | None, endpoint: str) -> InfeedError:
    if not isinstance(error, exceptions.GoogleAPICallError):
        do = "check --region, such as us-central1, and HTTPS_PROXY if you use a proxy"
        return SilentError(f"cannot reach Vertex AI: {last_words(error)}", where=endpoint, do=do)
    what, do = _advice(error, _short(_REQUEST.sub("", error.message)))
    later = isinstance(error, (exceptions.ServerError, exceptions.TooManyRequests))
    return (SilentError if later else InfeedError)(what, where=endpoint, do=do)


def _advice(error: exceptions.GoogleAPICallError, said: str) -> tuple[str, str]:
    if any(isinstance(detail, dict) and detail.get("reason") == "SERVICE_DISABLED" for detail in error.details):
        return f"Vertex AI is disabled in this project: {said}", "gcloud services enable aiplatform.googleapis.com"
    if isinstance(error, exceptions.Unauthorized):
        return f"Google rejected the credentials: {said}", f"renew them: {_LOGIN}"
    if isinstance(error, exceptions.Forbidden):
        do = "request the role roles/aiplatform.user, and roles/iam.serviceAccountUser on the --service-account"
        return f"permission denied: {said}", do
    if isinstance(error, exceptions.TooManyRequests):
        do = "wait for other runs, use another --region, or raise the quota: Google Cloud console, IAM & Admin, Quotas"
        return f"the run exceeds the project's quota: {said}", do
    if isinstance(error, exceptions.NotFound):
        return f"not found: {said}", "check --project, --region and the resources that the job names"
    if isinstance(error, exceptions.ServerError):
        return f"Vertex AI is unavailable ({error.code}): {said}", "try again later"
    do = "compile the job again for Vertex AI, and check that the region has its machine types"
    return f"Vertex AI rejected the run ({error.code}): {said}", do


def _short(text: object) -> str:
    """Shorten a message to one line, and omit a web page of a proxy."""
    said = " ".join(str(text).split())
    return "a proxy returned a web page" if "<html" in said.lower() else said[:_LONGEST]


class VertexRun:
    """A run on Vertex AI; a `submit.run.Run`."""

    def __init__(self, job: aiplatform.PipelineJob, endpoint: str, steps: Sequence[str], warning: str | None) -> None:
        self.id = str(job.resource_name)
        self.name = str(job.display_name)
        self.link = _page(f"locations/{job.location}/pipelines/runs/{job.name}", str(job.project))
        self.warning = warning
        self._job, self._endpoint, self._steps = job, endpoint, steps

    def status(self) -> RunStatus:
        with translate_errors(self._endpoint):
            state = self._job.state  # this property requests the run from Google
        found = self._job.gca_resource
        steps = vertex_steps(self._steps, found.job_detail.task_details)
        return RunStatus(_RUN_STATES.get(state.name, RunState.RUNNING), steps, found.error.message or None)


def submit_vertex(request: SubmitRequest, *, project: str, region: str, endpoint: str | None = None) -> VertexRun:
    """Start a run on Vertex AI with Google's default credentials; `endpoint` is a private address of the API.

    Raises:
      InfeedError: the job was not compiled for Vertex AI, or Google is not available or rejects the run.
      LostError: the run may have started, but the answer was lost.
    """
    _check(request.job)
    steps = [task.name for task in leaves(request.job.tasks)]
    # The client lists a run under its experiment after the start, so refuse a wrong name before it.
    if request.experiment is not None:
        check_name(request.experiment)
    endpoint, warning = endpoint or _endpoint(region), None
    job = _pipeline_job(request, project, region, endpoint)
    with translate_errors(endpoint):
        listed = request.experiment and aiplatform.Experiment.get_or_create(request.experiment)
    with starting(translate_errors(endpoint), may_have_begun):
        try:
            job.submit(**_rights(request), experiment=listed, create_request_timeout=_SECONDS)
        except Exception as error:
            # The run may have started, and only its entry in the experiment have failed.
            if not _has_started(job):
                raise
            why = _short(error.__cause__ or error)
            warning = f"the run is not listed under the experiment {request.experiment!r}: {why}"
    return VertexRun(job, endpoint, steps, warning)


def schedule_vertex(
    request: SubmitRequest, cron: str, *, project: str, region: str, endpoint: str | None = None
) -> RunSchedule:
    """Create a schedule, which starts runs of the job by a cron expression of five fields, one at a time.

    Raises:
      InfeedError: as for `submit_vertex`.
      LostError: the schedule may exist, but the answer was lost.
    """
    _check(request.job)
    endpoint = endpoint or _endpoint(region)
    job = _pipeline_job(request, project, region, endpoint)
    with starting(translate_errors(endpoint), may_have_begun):
        made = job.create_schedule(cron, request.name, **_rights(request), create_request_timeout=_SECONDS)
    return RunSchedule(str(made.resource_name), request.name, _page("pipelines/schedules", project))


def cancel_vertex(run: str, *, project: str, region: str, endpoint: str | None = None) -> None:
    """Stop a run, by its id or resource name. Raises InfeedError if it does not exist, or Google does not answer."""
    endpoint = endpoint or _endpoint(region)
    with translate_errors(endpoint):
        _connect(project, region, endpoint)
        aiplatform.PipelineJob.get(run).cancel()


def _endpoint(region: str) -> str:
    return f"https://{region}-aiplatform.googleapis.com"


def _page(path: str, project: str) -> str:
    return f"https://console.cloud.google.com/vertex-ai/{path}?project={project}"


def _connect(project: str, region: str, endpoint: str) -> None:
    """Set the defaults of the client. It uses REST, because some proxies block gRPC."""
    credentials, _ = google.auth.default(scopes=[_SCOPE])
    where = {"project": project, "location": region, "api_endpoint": endpoint}
    aiplatform.init(**where, credentials=credentials, api_transport="rest")


def _pipeline_job(request: SubmitRequest, project: str, region: str, endpoint: str) -> aiplatform.PipelineJob:
    """Return the run, which has not started. Raises InfeedError if the client rejects it."""
    job = request.job
    template = {"pipelineSpec": job.spec if request.cache else job.without_cache(), "runtimeConfig": dict(job.runtime)}
    words = re.sub("[^a-z0-9]+", "-", job.name.lower()).strip("-")
    now = datetime.now(timezone.utc).strftime("%Y%m%d%H%M%S")
    with tempfile.TemporaryDirectory() as folder, translate_errors(endpoint):
        path = Path(folder, "job.json")  # the client reads jobs only from files
        path.write_text(json.dumps(template), encoding="utf-8")
        _connect(project, region, endpoint)
        return aiplatform.PipelineJob(
            request.name,
            str(path),
            job_id=f"{words[:90]}-{now}-{uuid.uuid4().hex[:6]}",
            pipeline_root=job.root,
            parameter_values=dict(request.parameters),
            labels=dict(job.run_metadata.get("labels", {})) or None,
            encryption_spec_key_name=job.run_metadata.get("encryptionSpec", {}).get("kmsKeyName"),
        )


def _rights(request: SubmitRequest) -> dict[str, str | None]:
    metadata = request.job.run_metadata
    account = request.service_account or metadata.get("serviceAccount")
    return {"service_account": account, "network": metadata.get("network")}


def _has_started(job: aiplatform.PipelineJob) -> bool:
    try:
        return bool(job.resource_name)
    except RuntimeError:  # the resource has not been created
        return False


def _check(job: CompiledJob) -> None:
    """Reject a job that Vertex AI would reject, or that would fail later."""
    where = f"job {job.name!r}"
    if job.platform:
        what = "the job has settings for Kubernetes, which Vertex AI does not support"
        raise InfeedError(what, where=where, do=_COMPILE)
    if job.uses_launcher:
        what = "the steps work on the paths of Kubeflow's launcher, which Vertex AI does not have"
        raise InfeedError(what, where=where, do=_COMPILE)
    if foreign := sorted(kind for kind in job.accelerators if "/" in kind):
        what = f"accelerator is {foreign[0]!r}, but Vertex AI uses names such as NVIDIA_L4"
        raise InfeedError(what, where=where, do=_COMPILE)
    root = job.root
    if not root.startswith("gs://"):
        what = f"the pipeline's root is {root!r}, but Vertex AI writes only to Google Cloud Storage"
        raise InfeedError(what, where=where, do=f"{_COMPILE}, with a root such as gs://bucket/folder")


def check_name(experiment: str) -> None:
    """Raise InfeedError if the name of an experiment is invalid."""
    if not _NAME.fullmatch(experiment):
        do = "use up to 128 lower-case letters, digits and hyphens"
        raise InfeedError(f"experiment is {experiment!r}, which is not a valid name", where="--experiment", do=do)
