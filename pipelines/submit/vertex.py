"""Submits a compiled job to Vertex AI with the generated clients of google-cloud-aiplatform, and follows the run.

Importing `google.cloud.aiplatform` itself takes 10 s of CPU time. An experiment is a context in the project's metadata
store. As in `aiplatform.PipelineJob.submit`, the run's context becomes its child.
"""

from __future__ import annotations

import contextlib
import json
import re
import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

import google.auth
import requests
import urllib3
from google.api_core import exceptions, retry
from google.api_core.client_options import ClientOptions
from google.auth import exceptions as auth
from google.cloud.aiplatform_v1.services.metadata_service import MetadataServiceClient
from google.cloud.aiplatform_v1.services.pipeline_service import PipelineServiceClient
from google.cloud.aiplatform_v1.services.schedule_service import ScheduleServiceClient
from google.cloud.aiplatform_v1.types import Context, CreatePipelineJobRequest, PipelineJob, Schedule
from google.protobuf import json_format

from infeed.components.base.errors import InfeedError
from infeed.pipelines.job.compiled import CompiledJob, leaves
from infeed.pipelines.job.parameters import to_legacy
from infeed.pipelines.submit.run import RunSchedule, RunState, RunStatus, SubmitRequest, last_words, starting
from infeed.pipelines.submit.steps import vertex_steps

_LOGIN = "gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS to a key file"
_REQUEST = re.compile(r"^[A-Z]+ https?://\S+: ")  # google-api-core's prefix of the server's message
_LONGEST = 600  # characters of a message
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_SECONDS = 60.0  # timeout of one request
_TRANSIENT = (
    exceptions.InternalServerError,
    exceptions.BadGateway,
    exceptions.ServiceUnavailable,
    exceptions.GatewayTimeout,
)
# A start fails fast on a wrong address or a quota. Following a run waits for both to recover.
_PROMPT = retry.Retry(retry.if_exception_type(*_TRANSIENT), initial=0.5, maximum=8, timeout=60)
_PATIENT = retry.Retry(
    retry.if_exception_type(*_TRANSIENT, exceptions.TooManyRequests, requests.ConnectionError, requests.Timeout),
    initial=1,
    maximum=60,
    timeout=600,
)
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
    except json_format.ParseError as error:
        what = f"Vertex AI's client cannot read the job or the answer: {_short(error)}"
        do = "compile the job again in this environment, and check --endpoint"
        raise InfeedError(what, where=endpoint, do=do) from error


def may_have_begun(error: BaseException | None) -> bool:
    """Report whether Google may have started the run: an internal error, or a broken connection."""
    cause = error.cause if isinstance(error, exceptions.RetryError) else error
    inner = cause.args[0] if isinstance(cause, requests.ConnectionError) and cause.args else None
    broke_off = isinstance(inner, urllib3.exceptions.ProtocolError)
    return broke_off or isinstance(cause, (exceptions.ServerError, requests.ReadTimeout))


def _refused(error: Exception | None, endpoint: str) -> InfeedError:
    if not isinstance(error, exceptions.GoogleAPICallError):
        do = "check --region, such as us-central1, and HTTPS_PROXY if you use a proxy"
        return InfeedError(f"cannot reach Vertex AI: {last_words(error)}", where=endpoint, do=do)
    what, do = _advice(error, _short(_REQUEST.sub("", error.message)))
    return InfeedError(what, where=endpoint, do=do)


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

    def __init__(self, client: PipelineServiceClient, resource: str, name: str, steps: Sequence[str]) -> None:
        where = PipelineServiceClient.parse_pipeline_job_path(resource)
        self.id = resource
        self.name = name
        self.link = (
            f"https://console.cloud.google.com/vertex-ai/locations/{where['location']}/pipelines/runs/"
            f"{where['pipeline_job']}?project={where['project']}"
        )
        self.warning: str | None = None
        self._client = client
        self._project = where["project"]
        self._steps = steps

    def status(self) -> RunStatus:
        with translate_errors(self._client.api_endpoint):
            job = self._client.get_pipeline_job(name=self.id, retry=_PATIENT, timeout=_SECONDS)
        steps = vertex_steps(self._steps, job.job_detail.task_details, self._project)
        return RunStatus(_RUN_STATES.get(job.state.name, RunState.RUNNING), steps, job.error.message or None)


def submit_vertex(request: SubmitRequest, *, project: str, region: str, endpoint: str | None = None) -> VertexRun:
    """Start a run on Vertex AI with Google's default credentials; `endpoint` is a private address of the API.

    Raises:
      InfeedError: the job was not compiled for Vertex AI, or Google is not available or rejects the run.
      LostError: the run may have started, but the answer was lost.
    """
    _check(request.job)
    steps = [task.name for task in leaves(request.job.tasks)]
    if request.experiment is not None:
        check_name(request.experiment)
    endpoint = endpoint or f"https://{region}-aiplatform.googleapis.com"
    with translate_errors(endpoint):
        job = PipelineJob.from_json(json.dumps(_pipeline_job(request)))
        access = _access(endpoint)
        client = PipelineServiceClient(**access)
    with starting(translate_errors(endpoint), may_have_begun):
        created = _create(client, f"projects/{project}/locations/{region}", job, request.job.name)
    run = VertexRun(client, created, request.name, steps)
    if request.experiment is not None:
        try:
            with translate_errors(client.api_endpoint):
                list_under(request.experiment, created, client, MetadataServiceClient(**access))
        except InfeedError as error:  # the run continues
            run.warning = f"the run is not listed under the experiment {request.experiment!r}: {error.what}"
    return run


def schedule_vertex(
    request: SubmitRequest, cron: str, *, project: str, region: str, endpoint: str | None = None
) -> RunSchedule:
    """Create a schedule, which starts runs of the job by a cron expression of five fields, one at a time.

    Raises:
      InfeedError: as for `submit_vertex`.
      LostError: the schedule may exist, but the answer was lost.
    """
    _check(request.job)
    endpoint = endpoint or f"https://{region}-aiplatform.googleapis.com"
    parent = f"projects/{project}/locations/{region}"
    with translate_errors(endpoint):
        job = PipelineJob.from_json(json.dumps(_pipeline_job(request)))
        client = ScheduleServiceClient(**_access(endpoint))
        start = CreatePipelineJobRequest(parent=parent, pipeline_job=job)
        wanted = Schedule(
            display_name=request.name, cron=cron, max_concurrent_run_count=1, create_pipeline_job_request=start
        )
    with starting(translate_errors(endpoint), may_have_begun):
        made = client.create_schedule(parent=parent, schedule=wanted, timeout=_SECONDS)
    page = f"https://console.cloud.google.com/vertex-ai/pipelines/schedules?project={project}"
    return RunSchedule(str(made.name), request.name, page)


def cancel_vertex(run: str, *, project: str, region: str, endpoint: str | None = None) -> None:
    """Stop a run, by its id or resource name. Raises InfeedError if it does not exist, or Google does not answer."""
    endpoint = endpoint or f"https://{region}-aiplatform.googleapis.com"
    name = run if "/" in run else f"projects/{project}/locations/{region}/pipelineJobs/{run}"
    with translate_errors(endpoint):
        PipelineServiceClient(**_access(endpoint)).cancel_pipeline_job(name=name, retry=_PROMPT, timeout=_SECONDS)


def _access(endpoint: str) -> dict[str, Any]:
    """Return the arguments of Google's clients. They use REST, because some proxies block gRPC."""
    credentials, _ = google.auth.default(scopes=[_SCOPE])
    options = ClientOptions(api_endpoint=endpoint)
    return {"credentials": credentials, "transport": "rest", "client_options": options}


def _create(client: PipelineServiceClient, parent: str, job: PipelineJob, name: str) -> str:
    """Create the run. The id is new, so a conflict means that an earlier attempt of the request succeeded."""
    # https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.pipelineJobs/create
    words = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")
    now = datetime.now(timezone.utc).strftime("%Y%m%d%H%M%S")
    job_id = f"{words[:90]}-{now}-{uuid.uuid4().hex[:6]}"
    try:
        created = client.create_pipeline_job(
            parent=parent, pipeline_job=job, pipeline_job_id=job_id, retry=_PROMPT, timeout=_SECONDS
        )
    except exceptions.Conflict:
        return f"{parent}/pipelineJobs/{job_id}"
    return str(created.name)


def _pipeline_job(request: SubmitRequest) -> dict[str, Any]:
    job = request.job
    key, values = "parameterValues", dict(request.parameters)
    if job.schema_version == "2.0.0":  # which requires typed values
        key = "parameters"
        values = {name: to_legacy(value, job.parameters[name].type) for name, value in values.items()}
    given = {**job.runtime.get(key, {}), **values}
    return {
        **job.run_metadata,
        "displayName": request.name,
        "pipelineSpec": job.spec if request.cache else job.without_cache(),
        "runtimeConfig": {**job.runtime, "gcsOutputDirectory": job.root, **({key: given} if given else {})},
        **({} if request.service_account is None else {"serviceAccount": request.service_account}),
    }


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


class _NotYetError(exceptions.NotFound):
    """The run has no context yet. Vertex AI creates the context some seconds after the run."""


def check_name(experiment: str) -> None:
    """Raise InfeedError if the name of an experiment is invalid."""
    if not _NAME.fullmatch(experiment):
        do = "use up to 128 lower-case letters, digits and hyphens"
        raise InfeedError(f"experiment is {experiment!r}, which is not a valid name", where="--experiment", do=do)


def list_under(experiment: str, run: str, pipelines: PipelineServiceClient, metadata: MetadataServiceClient) -> None:
    """Add the run, by its resource name, to the experiment, which is created if necessary.

    Raises:
      GoogleAPICallError: Google rejects a request.
      RetryError: the run has no context after two minutes.
    """
    store = f"{run.partition('/pipelineJobs/')[0]}/metadataStores/default"
    until_there = retry.Retry(retry.if_exception_type(_NotYetError), initial=1, maximum=8, timeout=120)
    context = until_there(_run_context)(pipelines, run)
    new = Context(
        display_name=experiment,
        schema_title="system.Experiment",
        schema_version="0.0.1",
        metadata={"experiment_deleted": False},
    )
    try:
        made = metadata.create_context(parent=store, context=new, context_id=experiment, timeout=_SECONDS)
        parent = str(made.name)
    except exceptions.Conflict:
        parent = f"{store}/contexts/{experiment}"
    metadata.add_context_children(context=parent, child_contexts=[context], timeout=_SECONDS)


def _run_context(client: PipelineServiceClient, run: str) -> str:
    name = client.get_pipeline_job(name=run, timeout=_SECONDS).job_detail.pipeline_run_context.name
    if not name:
        raise _NotYetError(f"{run} has no context yet")
    return str(name)
