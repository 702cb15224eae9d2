"""Converts the task lists of both platforms to steps.

This module imports no platform's client, because each import takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import quote

from infeed.pipelines.console.nodes import NodeState
from infeed.pipelines.job.compiled import Task
from infeed.pipelines.submit.run import Step

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
STARTED = {NodeState.RUNNING, NodeState.DONE, NodeState.FAILED}
_SAME_START = timedelta(seconds=2)  # Argo starts a step and its executor together, and counts in seconds


def kubeflow_steps(planned: Sequence[Task], tasks: Sequence[Any]) -> tuple[Step, ...]:
    """Return a step for each planned task, from kfp's `V2beta1PipelineTaskDetail`s.

    The server lists the nodes of an Argo workflow by display name. A step `Trainer` has a node of that name and a node
    `Trainer-driver`, which reads the cache.

    Source: toApiPipelineTaskDetail in backend/src/apiserver/server/api_converter.go of
    https://github.com/kubeflow/pipelines.
    """
    named = {task.display_name: task for task in tasks}
    steps = []
    for each in planned:
        own, driver = named.get(each.name), named.get(f"{each.name}-driver")
        state = _state(own, driver)
        jobs = _nodes(own, tasks) if own is not None and state in STARTED else ()
        error = next((task.error.message for task in (driver, own) if task is not None and task.error), None)
        steps.append(Step(each.name, state, _seconds(own or driver), error=error, jobs=jobs))
    return tuple(steps)


def _nodes(own: Any, tasks: Sequence[Any]) -> tuple[str, ...]:
    """Return the ids of the nodes below a step. Those of the attempts are among them, and end the names of the pods.

    The pod is the child of the step or, if Argo retries the step, a child of a node `executor`. The server lists the
    children of each node, but not its own id. The `executor` of a step is the one of the same start and state.
    """
    executors = [task for task in tasks if task.display_name == "executor" and _agree(task, own)]
    children = (child.pod_name for task in (*executors, own) for child in task.child_tasks or ())
    return tuple(dict.fromkeys(filter(None, children)))


def _agree(executor: Any, own: Any) -> bool:
    if executor.state != own.state or not (executor.start_time and own.start_time):
        return False
    return bool(abs(executor.start_time - own.start_time) <= _SAME_START)


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


def log_filter(job: str) -> str:
    """Return the Cloud Logging query for the entries of a custom job, given its resource name."""
    return f'resource.type="ml_job" AND resource.labels.job_id="{job.rpartition("/")[2]}"'
