"""Converts the task lists of both platforms to steps, and reads the logs of Vertex AI.

This module imports no platform's client, because each import takes seconds. Vertex AI's API has no logs, so the module
reads Cloud Logging over REST.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from infeed.pipelines.console.nodes import NodeState
from infeed.pipelines.job.compiled import Task
from infeed.pipelines.submit.run import Step

if TYPE_CHECKING:
    import requests

_KUBEFLOW_STATES = {
    "PENDING": NodeState.WAITING,
    "RUNNING": NodeState.RUNNING,
    "CANCELING": NodeState.RUNNING,
    "PAUSED": NodeState.RUNNING,
    "SUCCEEDED": NodeState.DONE,
    "SKIPPED": NodeState.SKIPPED,
    "FAILED": NodeState.FAILED,
    "CANCELED": NodeState.SKIPPED,
}
_VERTEX_STATES = {
    "STATE_UNSPECIFIED": NodeState.WAITING,
    "PENDING": NodeState.WAITING,
    "SUCCEEDED": NodeState.DONE,
    "FAILED": NodeState.FAILED,
    "CANCELLED": NodeState.SKIPPED,
    "SKIPPED": NodeState.CACHED,  # the API documents it as "due to cache hit"
    "NOT_TRIGGERED": NodeState.SKIPPED,
}
LOGGING = "https://logging.googleapis.com"
_LOG_SECONDS = 30.0
_LINES = 1_000  # maximum page size of Cloud Logging


def kubeflow_steps(planned: Sequence[Task], tasks: Sequence[Any]) -> tuple[Step, ...]:
    """Return a step for each planned task, from kfp's `V2beta1PipelineTaskDetail`s.

    The server lists the nodes of an Argo workflow by display name, without their pods. A step `Trainer` has a node of
    that name and a node `Trainer-driver`, which reads the cache. The pod belongs to the child node `executor`, or to
    `executor(0)`, `executor(1)` if the step has retries.

    Sources: toApiPipelineTaskDetail in backend/src/apiserver/server/api_converter.go and the templates in
    backend/src/v2/compiler/argocompiler/container.go of https://github.com/kubeflow/pipelines; GeneratePodName in
    workflow/util/pod_name.go of https://github.com/argoproj/argo-workflows.
    """
    named = {task.display_name: task for task in tasks}
    # The id of a child node is Argo's name of the run and a number.
    children = (child.pod_name for task in tasks for child in task.child_tasks or () if child.pod_name)
    first = next(children, None)
    workflow = first and str(first).rpartition("-")[0]
    steps = []
    for each in planned:
        own, driver = named.get(each.name), named.get(f"{each.name}-driver")
        state = _state(own, driver)
        jobs = _jobs(each, state, driver, workflow) if workflow else ()
        error = next((task.error.message for task in (driver, own) if task is not None and task.error), None)
        steps.append(Step(each.name, state, _seconds(own or driver), error=error, jobs=jobs))
    return tuple(steps)


def pods(planned: Task, workflow: str) -> tuple[str, ...]:
    """Return the pod names of all attempts of a step, in order, including attempts that may not happen."""
    node = ".".join((workflow, "root", *planned.path, "executor"))
    if planned.retries is None:
        return (_pod(workflow, "system-container-impl", node),)
    return tuple(
        _pod(workflow, "retry-system-container-impl", f"{node}({attempt})") for attempt in range(planned.retries + 1)
    )


def _jobs(planned: Task, state: NodeState, driver: Any, workflow: str) -> tuple[str, ...]:
    if driver is not None and driver.state == "FAILED":
        node = ".".join((workflow, "root", *planned.path))
        return (_pod(workflow, "system-container-driver", f"{node}-driver"),)
    return pods(planned, workflow) if state in {NodeState.RUNNING, NodeState.DONE, NodeState.FAILED} else ()


def _state(own: Any, driver: Any) -> NodeState:
    if driver is not None and driver.state == "FAILED":
        return NodeState.FAILED
    if own is None:
        return NodeState.WAITING if driver is None else NodeState.RUNNING
    # Argo omits the state of a task if an upstream task failed.
    return _KUBEFLOW_STATES.get(own.state, NodeState.WAITING)


def _seconds(task: Any) -> float:
    began = task and task.start_time
    if not began or began.year < 2000:  # a task that has not started has the year 1 or 1970
        return 0.0
    ended = task.end_time if task.end_time and task.end_time >= began else datetime.now(timezone.utc)
    return float((ended - began).total_seconds())


def _pod(workflow: str, template: str, node: str) -> str:
    """Return a name that ends with the 32-bit FNV-1a hash of `node`, https://datatracker.ietf.org/doc/html/rfc9923."""
    value = 0x811C9DC5
    for byte in node.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"{workflow}-{template}-{value}"


def vertex_steps(names: Sequence[str], tasks: Iterable[Any], project: str) -> tuple[Step, ...]:
    """Return a step for each name, from `PipelineTaskDetail`s of google-cloud-aiplatform."""
    found = {task.task_name: task for task in tasks}
    return tuple(_vertex_step(found[name], project) if name in found else Step(name) for name in names)


def _vertex_step(task: Any, project: str) -> Step:
    # The custom jobs of all attempts in order, or else the job that checks the cache, if any.
    container, custom = task.executor_detail.container_detail, task.executor_detail.custom_job_detail
    attempts = [*container.failed_main_jobs, container.main_job, *custom.failed_jobs, custom.job]
    jobs = tuple(dict.fromkeys(filter(None, attempts))) or tuple(filter(None, [container.pre_caching_check_job]))
    query = quote(log_filter(jobs[-1]), safe="") if jobs else ""
    return Step(
        task.task_name,
        _VERTEX_STATES.get(task.state.name, NodeState.RUNNING),
        _seconds(task),
        error=task.error.message or None,
        jobs=jobs,
        log=f"https://console.cloud.google.com/logs/query;query={query}?project={project}" if jobs else None,
    )


class CloudLogs:
    """Reads the logs of custom jobs in one project.

    The methods raise requests.RequestException or GoogleAuthError if Google rejects a request or does not answer.
    """

    def __init__(self, session: requests.Session, project: str) -> None:
        self._session = session
        self._project = project
        self._read_up_to: dict[str, str] = {}

    def new_lines(self, job: str) -> Sequence[str]:
        """Return the lines since the last call for the job. Late entries with earlier timestamps are skipped."""
        after = self._read_up_to.get(job)
        entries = self._entries(log_filter(job, after), "timestamp asc", _LINES)
        if entries:
            self._read_up_to[job] = entries[-1]["timestamp"]
        return [_text(entry) for entry in entries]

    def tail(self, job: str, lines: int) -> Sequence[str]:
        return [_text(entry) for entry in reversed(self._entries(log_filter(job), "timestamp desc", lines))]

    def _entries(self, wanted: str, order: str, most: int) -> Sequence[dict[str, Any]]:
        """List log entries (https://cloud.google.com/logging/docs/reference/v2/rest/v2/entries/list)."""
        body = {"resourceNames": [f"projects/{self._project}"], "filter": wanted, "orderBy": order, "pageSize": most}
        answer = self._session.post(f"{LOGGING}/v2/entries:list", json=body, timeout=_LOG_SECONDS)
        answer.raise_for_status()
        entries: Sequence[dict[str, Any]] = answer.json().get("entries", [])
        return entries


def log_filter(job: str, after: str | None = None) -> str:
    """Return the Cloud Logging query for the entries of a custom job, given its resource name."""
    wanted = f'resource.type="ml_job" AND resource.labels.job_id="{job.rpartition("/")[2]}"'
    return wanted if after is None else f'{wanted} AND timestamp>"{after}"'


def _text(entry: dict[str, Any]) -> str:
    return str(entry.get("textPayload") or entry.get("jsonPayload", {}).get("message", "")).rstrip()
