"""A compiled job as a run on Vertex AI, through the generated client of google-cloud-aiplatform."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import google.auth
import requests
from google.api_core import exceptions, retry
from google.api_core.client_options import ClientOptions
from google.auth.exceptions import GoogleAuthError
from google.cloud.aiplatform_v1.services.metadata_service import MetadataServiceClient
from google.cloud.aiplatform_v1.services.pipeline_service import PipelineServiceClient
from google.cloud.aiplatform_v1.types import PipelineJob

from infeed.components.errors import InfeedError
from infeed.pipelines.deploy.compiled import CompiledJob
from infeed.pipelines.submit.run import (
    Request,
    RunState,
    Status,
    Step,
    accelerators,
    pipeline_root,
    planned_steps,
    without_cache,
)
from infeed.pipelines.submit.vertex_errors import told, told_when_starting
from infeed.pipelines.submit.vertex_experiment import check_name, list_under
from infeed.pipelines.submit.vertex_logs import CloudLogs
from infeed.pipelines.submit.vertex_steps import gather

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_SECONDS = 60.0  # for one request
_TRANSIENT = (
    exceptions.InternalServerError,
    exceptions.BadGateway,
    exceptions.ServiceUnavailable,
    exceptions.GatewayTimeout,
)
# A wrong address and a quota are told at once; while a run is followed, both may pass.
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
_VALUES_2_0 = {"NUMBER_INTEGER": "intValue", "NUMBER_DOUBLE": "doubleValue", "STRING": "stringValue"}
_COMPILE = "compile it for Vertex AI: infeed compile PROJECT --target vertex --output job.json"


class VertexRun:
    """A run on Vertex AI; a `submit.run.Run`."""

    def __init__(
        self, client: PipelineServiceClient, logs: CloudLogs, resource: str, name: str, steps: Sequence[str]
    ) -> None:
        where = PipelineServiceClient.parse_pipeline_job_path(resource)
        self.id = resource
        self.name = name
        self.link = (
            f"https://console.cloud.google.com/vertex-ai/locations/{where['location']}/pipelines/runs/"
            f"{where['pipeline_job']}?project={where['project']}"
        )
        self.warning: str | None = None
        self._client = client
        self._logs = logs
        self._project = where["project"]
        self._steps = steps

    def status(self) -> Status:
        with told(self._client.api_endpoint):
            job = self._client.get_pipeline_job(name=self.id, retry=_PATIENT, timeout=_SECONDS)
        steps = gather(self._steps, job.job_detail.task_details, self._project)
        return Status(_RUN_STATES.get(job.state.name, RunState.RUNNING), steps, job.error.message or None)

    def new_lines(self, step: Step) -> Sequence[str]:
        return self._read(lambda: [line for job in step.jobs for line in self._logs.new_lines(job)])

    def log_tail(self, step: Step, lines: int) -> Sequence[str]:
        return self._read(lambda: self._logs.tail(step.jobs[-1], lines) if step.jobs else ())

    def _read(self, read: Callable[[], Sequence[str]]) -> Sequence[str]:
        try:
            return read()
        except (requests.RequestException, GoogleAuthError) as error:
            self.warning = f"logs cannot be read from here, which takes the role roles/logging.viewer: {error}"
            return ()


def submit_vertex(request: Request, *, project: str, region: str, endpoint: str | None = None) -> VertexRun:
    """Starts a run on Vertex AI, with Google's default credentials.

    Args:
      project: id of the Google Cloud project.
      region: where it runs, such as us-central1.
      endpoint: address of the API, where it is a private one.

    Raises:
      InfeedError: the job was not compiled for Vertex AI, or Google refuses it or cannot be reached.
      LostError: Google did not say whether the run was started.
    """
    _check(request.job)
    steps = planned_steps(request.job.spec)
    if request.experiment is not None:
        check_name(request.experiment)
    endpoint = endpoint or f"https://{region}-aiplatform.googleapis.com"
    with told(endpoint):
        job = PipelineJob.from_json(json.dumps(_pipeline_job(request)))
        access = _access(endpoint)
        client = PipelineServiceClient(**access)
    with told_when_starting(endpoint):
        created = _create(client, f"projects/{project}/locations/{region}", job, _job_id(request.job.name))
    logs = CloudLogs(access["credentials"], project)
    run = VertexRun(client, logs, created, request.name, [step.name for step in steps])
    if request.experiment is not None:
        run.warning = _list_under(request.experiment, created, client, access)
    return run


def _access(endpoint: str) -> dict[str, Any]:
    """What each of Google's clients is made with. Over REST: gRPC does not pass every company's proxy."""
    credentials, _ = google.auth.default(scopes=[_SCOPE])
    options = ClientOptions(api_endpoint=endpoint)
    return {"credentials": credentials, "transport": "rest", "client_options": options}


def _list_under(experiment: str, run: str, client: PipelineServiceClient, access: Mapping[str, Any]) -> str | None:
    """The run goes on where this fails, so that is no reason to stop."""
    try:
        with told(client.api_endpoint):
            list_under(experiment, run, client, MetadataServiceClient(**access))
    except InfeedError as error:
        return f"the run is not listed under the experiment {experiment!r}: {error.what}"
    return None


def _create(client: PipelineServiceClient, parent: str, job: PipelineJob, job_id: str) -> str:
    """The id is ours and new, so a repeated request that finds it there has found the answer to the first."""
    name = f"{parent}/pipelineJobs/{job_id}"
    try:
        created = client.create_pipeline_job(
            parent=parent, pipeline_job=job, pipeline_job_id=job_id, retry=_PROMPT, timeout=_SECONDS
        )
    except exceptions.Conflict:
        return name
    return str(created.name)


def _job_id(name: str) -> str:
    """As https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.pipelineJobs/create wants it."""
    words = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")
    now = datetime.now(timezone.utc).strftime("%Y%m%d%H%M%S")
    return f"{words[:90]}-{now}-{uuid.uuid4().hex[:6]}"


def _pipeline_job(request: Request) -> dict[str, Any]:
    job = {
        **request.job.around,
        "displayName": request.name,
        "pipelineSpec": request.job.spec if request.cache else without_cache(request.job.spec),
        "runtimeConfig": _runtime(request),
    }
    return job if request.service_account is None else {**job, "serviceAccount": request.service_account}


def _runtime(request: Request) -> dict[str, Any]:
    """The job's own runtimeConfig with this run's values in it, which schema 2.0 wants with their types."""
    job = request.job
    key, values = "parameterValues", dict(request.parameters)
    if job.schema_version == "2.0.0":
        key = "parameters"
        values = {name: {_VALUES_2_0[job.parameters[name].type]: value} for name, value in values.items()}
    given = {**job.runtime.get(key, {}), **values}
    return {**job.runtime, "gcsOutputDirectory": pipeline_root(job), **({key: given} if given else {})}


def _check(job: CompiledJob) -> None:
    """What Vertex AI would refuse, or fail on later, in words of its own."""
    where = f"job {job.name!r}"
    if job.platform:
        what = "a job with settings for Kubernetes, which Vertex AI does not have"
        raise InfeedError(what, where=where, do=_COMPILE)
    if foreign := sorted(kind for kind in accelerators(job) if "/" in kind):
        what = f"accelerator {foreign[0]!r}: Vertex AI has names such as NVIDIA_L4"
        raise InfeedError(what, where=where, do=_COMPILE)
    root = pipeline_root(job)
    if not root.startswith("gs://"):
        what = f"the pipeline's root is {root!r}, and Vertex AI writes to Google Cloud Storage only"
        raise InfeedError(what, where=where, do=f"{_COMPILE}, with a root such as gs://bucket/folder")
