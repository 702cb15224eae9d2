"""A compiled job as a run on a platform: what is asked for, and what the platform tells of it. Imports no client."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from infeed.pipelines.deploy.compiled import CompiledJob
from infeed.pipelines.deploy.task_order import in_order
from infeed.pipelines.local.nodes import NodeReport, NodeState


@dataclass(frozen=True)
class Request:
    """What to start.

    Args:
      job: as compiled.
      name: of the run, as people see it.
      parameters: values for this run, as `read_parameters` makes them.
      experiment: what the platform shall list the run under; its default by default.
      service_account: whose rights the steps have; the platform's default by default.
      cache: whether steps may take the outputs of an earlier run, where the job itself allows it.
    """

    job: CompiledJob
    name: str
    parameters: Mapping[str, Any]
    experiment: str | None = None
    service_account: str | None = None
    cache: bool = True


class RunState(str, Enum):
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Step(NodeReport):
    """A node as the platform tells of it; of one that runs, `seconds` is how long it has.

    Args:
      jobs: what executes it, an attempt each: pods, or custom jobs.
      log: where its log is: a link, or a command that prints it.
    """

    jobs: tuple[str, ...] = ()
    log: str | None = None


@dataclass(frozen=True)
class Status:
    """A run at one moment: its steps in the order of execution, and the platform's own words if it failed."""

    state: RunState
    steps: tuple[Step, ...]
    error: str | None = None

    @property
    def failed(self) -> Step | None:
        return next((step for step in self.steps if step.state is NodeState.FAILED), None)


class Run(Protocol):
    """A run that was started. Its methods raise InfeedError where the platform cannot be asked."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def link(self) -> str:
        """Its page in the platform's user interface."""

    @property
    def warning(self) -> str | None:
        """What did not work beside it."""

    def status(self) -> Status: ...
    def new_lines(self, step: Step) -> Sequence[str]:
        """What the step has written since the last call; nothing where its log cannot be had, or not yet."""

    def log_tail(self, step: Step, lines: int) -> Sequence[str]:
        """The last lines of a step's log; fewer, or none, where it cannot be had."""


@dataclass(frozen=True)
class Planned:
    """A step of a compiled job.

    Args:
      path: names of the dags round it, and its own.
      attempts: how often it is started at most; None for a job that says nothing of retries.
    """

    path: tuple[str, ...]
    attempts: int | None = None

    @property
    def name(self) -> str:
        return self.path[-1]


def planned_steps(spec: Mapping[str, Any]) -> list[Planned]:
    """The tasks of a pipeline spec that run a container, those inside conditions too, in an order they can run in.

    Raises:
      InfeedError: a task needs one that is not there, or itself.
    """
    return list(_leaves(spec["root"]["dag"], spec["components"], ()))


def _leaves(dag: Mapping[str, Any], components: Mapping[str, Any], path: tuple[str, ...]) -> Iterable[Planned]:
    tasks = dag["tasks"]
    for name in in_order(tasks):
        component = components[tasks[name]["componentRef"]["name"]]
        if "dag" in component:
            yield from _leaves(component["dag"], components, (*path, name))
        else:
            retry = tasks[name].get("retryPolicy")
            yield Planned((*path, name), retry and int(retry.get("maxRetryCount", 0)) + 1)


def without_cache(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The same pipeline spec with caching off for every task, those inside conditions and exit handlers too."""
    changed: dict[str, Any] = json.loads(json.dumps(spec))
    for component in [changed["root"], *changed["components"].values()]:
        for task in component.get("dag", {}).get("tasks", {}).values():
            task["cachingOptions"] = {"enableCache": False}
    return changed


def pipeline_root(job: CompiledJob) -> str:
    """The folder of all artifacts, empty where the job leaves it to the platform."""
    return str(job.runtime.get("gcsOutputDirectory") or job.spec.get("defaultPipelineRoot") or "")


def accelerators(job: CompiledJob) -> set[str]:
    """The kinds of GPU and TPU that its containers ask for, by the platform's own names."""
    executors = job.spec["deploymentSpec"].get("executors", {}).values()
    wanted = (each.get("container", {}).get("resources", {}).get("accelerator", {}) for each in executors)
    return {kind for each in wanted if (kind := each.get("resourceType") or each.get("type"))}
