"""Converts the task lists of both platforms to steps.

This module imports no platform's client, because each import takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Any

from infeed.pipelines.cluster.job.compiled import Task
from infeed.pipelines.console.nodes import NodeReport, NodeState

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


def kubeflow_steps(planned: Sequence[Task], tasks: Sequence[Any]) -> tuple[NodeReport, ...]:
    """Return a report for each planned task, from kfp's `V2beta1PipelineTaskDetail`s.

    The server lists the nodes of an Argo workflow by display name. A step `Trainer` has a node of that name and a node
    `Trainer-driver`, which reads the cache.

    Source: toApiPipelineTaskDetail in backend/src/apiserver/server/api_converter.go of
    https://github.com/kubeflow/pipelines.
    """
    named = {task.display_name: task for task in tasks}
    steps = []
    for each in planned:
        own, driver = named.get(each.name), named.get(f"{each.name}-driver")
        error = next((task.error.message for task in (driver, own) if task is not None and task.error), None)
        steps.append(NodeReport(each.name, _state(own, driver), _seconds(own or driver), error=error))
    return tuple(steps)


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


def vertex_steps(names: Sequence[str], tasks: Iterable[Any]) -> tuple[NodeReport, ...]:
    """Return a report for each name, from `PipelineTaskDetail`s of google-cloud-aiplatform."""
    found = {task.task_name: task for task in tasks}
    return tuple(_vertex_step(found[name]) if name in found else NodeReport(name) for name in names)


def _vertex_step(task: Any) -> NodeReport:
    state = _VERTEX_STATES.get(task.state.name, NodeState.RUNNING)
    return NodeReport(task.task_name, state, _seconds(task), error=task.error.message or None)
