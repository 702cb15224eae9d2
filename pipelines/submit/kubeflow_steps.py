"""The tasks of a run, as Kubeflow Pipelines lists them, gathered into one step a node.

The server lists the nodes of an Argo workflow by their display names, and leaves out which pod belongs to which. A
step `Trainer` is a node of that name, and `Trainer-driver` beside it, which looks into the cache; its pod is that of
the node `executor` below, or `executor(0)`, `executor(1)` where it may be retried.

Sources: toApiPipelineTaskDetail in backend/src/apiserver/server/api_converter.go and the templates in
backend/src/v2/compiler/argocompiler/container.go of https://github.com/kubeflow/pipelines; GeneratePodName in
workflow/util/pod_name.go of https://github.com/argoproj/argo-workflows.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from infeed.pipelines.local.nodes import NodeState
from infeed.pipelines.submit.run import Planned, Step

_STATES = {
    "PENDING": NodeState.WAITING,
    "RUNNING": NodeState.RUNNING,
    "CANCELING": NodeState.RUNNING,
    "PAUSED": NodeState.RUNNING,
    "SUCCEEDED": NodeState.DONE,
    "SKIPPED": NodeState.SKIPPED,
    "FAILED": NodeState.FAILED,
    "CANCELED": NodeState.SKIPPED,
}


def gather(planned: Sequence[Planned], tasks: Sequence[Any]) -> tuple[Step, ...]:
    """A step for each that is planned, out of `V2beta1PipelineTaskDetail`s."""
    named = {task.display_name: task for task in tasks}
    workflow = _workflow(tasks)
    return tuple(_step(each, named.get(each.name), named.get(f"{each.name}-driver"), workflow) for each in planned)


def pods(planned: Planned, workflow: str) -> tuple[str, ...]:
    """Names of the pods that a step of `workflow` has or may get, the first attempt first."""
    node = ".".join((workflow, "root", *planned.path, "executor"))
    if planned.attempts is None:
        return (_pod(workflow, "system-container-impl", node),)
    return tuple(
        _pod(workflow, "retry-system-container-impl", f"{node}({attempt})") for attempt in range(planned.attempts)
    )


def _step(planned: Planned, own: Any, driver: Any, workflow: str | None) -> Step:
    state = _state(own, driver)
    jobs = _jobs(planned, state, driver, workflow) if workflow else ()
    error = next((task.error.message for task in (driver, own) if task is not None and task.error), None)
    return Step(planned.name, state, _seconds(own or driver), error=error, jobs=jobs)


def _jobs(planned: Planned, state: NodeState, driver: Any, workflow: str) -> tuple[str, ...]:
    if driver is not None and driver.state == "FAILED":
        node = ".".join((workflow, "root", *planned.path))
        return (_pod(workflow, "system-container-driver", f"{node}-driver"),)
    return pods(planned, workflow) if state in {NodeState.RUNNING, NodeState.DONE, NodeState.FAILED} else ()


def _state(own: Any, driver: Any) -> NodeState:
    if driver is not None and driver.state == "FAILED":
        return NodeState.FAILED
    if own is None:
        return NodeState.WAITING if driver is None else NodeState.RUNNING
    return _STATES.get(own.state, NodeState.WAITING)  # without a state: Argo left it out, for what came before failed


def _seconds(task: Any) -> float:
    began = task and task.start_time
    if not began or began.year < 2000:  # what has not begun comes as the year 1 or 1970
        return 0.0
    ended = task.end_time if task.end_time and task.end_time >= began else datetime.now(timezone.utc)
    return float((ended - began).total_seconds())


def _workflow(tasks: Sequence[Any]) -> str | None:
    """Argo's name of the run: a child is named by its node's id, which is that name and a number."""
    children = (child.pod_name for task in tasks for child in task.child_tasks or () if child.pod_name)
    first = next(children, None)
    return first and str(first).rpartition("-")[0]


def _pod(workflow: str, template: str, node: str) -> str:
    return f"{workflow}-{template}-{_fnv1a(node)}"


def _fnv1a(text: str) -> int:
    """The hash of 32 bits by Fowler, Noll and Vo: https://datatracker.ietf.org/doc/html/rfc9923"""
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value
