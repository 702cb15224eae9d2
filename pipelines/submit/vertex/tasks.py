"""The tasks of a run on Vertex AI as steps, what they wrote, and the experiment that the run is listed under.

Logs are in Cloud Logging, read over REST: Vertex AI's own API has none. An experiment is a context in the project's
metadata store, and the run's context becomes a child of it, as google-cloud-aiplatform's `PipelineJob.submit` does it.
This uses the generated clients: the package's front door, which has the same in one argument, takes 10 s of CPU time
to import.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

import google.auth.credentials
from google.api_core import exceptions, retry
from google.auth.transport.requests import AuthorizedSession
from google.cloud.aiplatform_v1.services.metadata_service import MetadataServiceClient
from google.cloud.aiplatform_v1.services.pipeline_service import PipelineServiceClient
from google.cloud.aiplatform_v1.types import Context, PipelineTaskDetail

from infeed.components.errors import InfeedError
from infeed.pipelines.console.nodes import NodeState
from infeed.pipelines.submit.run import Step

_STATES = {
    "STATE_UNSPECIFIED": NodeState.WAITING,
    "PENDING": NodeState.WAITING,
    "SUCCEEDED": NodeState.DONE,
    "FAILED": NodeState.FAILED,
    "CANCELLED": NodeState.SKIPPED,
    "SKIPPED": NodeState.CACHED,  # "due to cache hit", says the API
    "NOT_TRIGGERED": NodeState.SKIPPED,
}
LOGGING = "https://logging.googleapis.com"
_LOG_SECONDS = 30.0
_LINES = 1_000  # the most that Cloud Logging gives at once
_SCHEMA = "system.Experiment"
_SECONDS = 60.0
_NAME = re.compile("[a-z0-9][a-z0-9-]{0,127}")


def gather_steps(names: Sequence[str], tasks: Iterable[PipelineTaskDetail], project: str) -> tuple[Step, ...]:
    """A step for each of `names`."""
    found = {task.task_name: task for task in tasks}
    return tuple(_step(found[name], project) if name in found else Step(name) for name in names)


def _step(task: PipelineTaskDetail, project: str) -> Step:
    jobs = _custom_jobs(task)
    query = quote(log_filter(jobs[-1]), safe="") if jobs else ""
    return Step(
        task.task_name,
        _STATES.get(task.state.name, NodeState.RUNNING),
        _seconds(task),
        error=task.error.message or None,
        jobs=jobs,
        log=f"https://console.cloud.google.com/logs/query;query={query}?project={project}" if jobs else None,
    )


def _custom_jobs(task: PipelineTaskDetail) -> tuple[str, ...]:
    """What executes the task, earlier attempts first, or what looks into the cache for it; none before there is one."""
    container, custom = task.executor_detail.container_detail, task.executor_detail.custom_job_detail
    jobs = [*container.failed_main_jobs, container.main_job, *custom.failed_jobs, custom.job]
    return tuple(dict.fromkeys(job for job in jobs if job)) or tuple(filter(None, [container.pre_caching_check_job]))


def _seconds(task: PipelineTaskDetail) -> float:
    if not task.start_time:
        return 0.0
    ended = task.end_time or datetime.now(timezone.utc)
    return float((ended - task.start_time).total_seconds())


class CloudLogs:
    """Reads the logs of custom jobs in one project.

    Its methods raise requests.RequestException or GoogleAuthError where Google refuses or cannot be reached.
    """

    def __init__(self, credentials: google.auth.credentials.Credentials, project: str) -> None:
        self._session = AuthorizedSession(credentials)
        self._project = project
        self._read_up_to: dict[str, str] = {}

    def new_lines(self, job: str) -> Sequence[str]:
        """Those since the last call for the same job. What arrives with an earlier time than those is left out."""
        after = self._read_up_to.get(job)
        entries = self._entries(log_filter(job, after), "timestamp asc", _LINES)
        if entries:
            self._read_up_to[job] = entries[-1]["timestamp"]
        return [_text(entry) for entry in entries]

    def tail(self, job: str, lines: int) -> Sequence[str]:
        return [_text(entry) for entry in reversed(self._entries(log_filter(job), "timestamp desc", lines))]

    def _entries(self, wanted: str, order: str, most: int) -> Sequence[dict[str, Any]]:
        """https://cloud.google.com/logging/docs/reference/v2/rest/v2/entries/list"""
        body = {"resourceNames": [f"projects/{self._project}"], "filter": wanted, "orderBy": order, "pageSize": most}
        answer = self._session.post(f"{LOGGING}/v2/entries:list", json=body, timeout=_LOG_SECONDS)
        answer.raise_for_status()
        entries: Sequence[dict[str, Any]] = answer.json().get("entries", [])
        return entries


def log_filter(job: str, after: str | None = None) -> str:
    """In Logging's query language: the entries of a custom job, given by its resource name."""
    wanted = f'resource.type="ml_job" AND resource.labels.job_id="{job.rpartition("/")[2]}"'
    return wanted if after is None else f'{wanted} AND timestamp>"{after}"'


def _text(entry: dict[str, Any]) -> str:
    return str(entry.get("textPayload") or entry.get("jsonPayload", {}).get("message", "")).rstrip()


class _NotYetError(exceptions.NotFound):
    """The run has no context yet: it gets one a few seconds after it was created."""


def check_name(experiment: str) -> None:
    """Raises InfeedError unless an experiment can be called that."""
    if not _NAME.fullmatch(experiment):
        do = "use small letters, digits and hyphens, at most 128"
        raise InfeedError(f"an experiment cannot be called {experiment!r}", where="--experiment", do=do)


def list_under(experiment: str, run: str, pipelines: PipelineServiceClient, metadata: MetadataServiceClient) -> None:
    """Makes the experiment where there is none, and the run a part of it.

    Args:
      run: resource name of the pipeline job.

    Raises:
      GoogleAPICallError: Google refuses.
      RetryError: the run had no context after two minutes.
    """
    store = f"{run.partition('/pipelineJobs/')[0]}/metadataStores/default"
    until_there = retry.Retry(retry.if_exception_type(_NotYetError), initial=1, maximum=8, timeout=120)
    context = until_there(_run_context)(pipelines, run)
    parent = _experiment(experiment, store, metadata)
    metadata.add_context_children(context=parent, child_contexts=[context], timeout=_SECONDS)


def _run_context(client: PipelineServiceClient, run: str) -> str:
    name = client.get_pipeline_job(name=run, timeout=_SECONDS).job_detail.pipeline_run_context.name
    if not name:
        raise _NotYetError(f"{run} has no context yet")
    return str(name)


def _experiment(name: str, store: str, client: MetadataServiceClient) -> str:
    new = Context(
        display_name=name, schema_title=_SCHEMA, schema_version="0.0.1", metadata={"experiment_deleted": False}
    )
    try:
        return str(client.create_context(parent=store, context=new, context_id=name, timeout=_SECONDS).name)
    except exceptions.Conflict:
        return f"{store}/contexts/{name}"
