"""The one walk over the tasks of a compiled job: each after those that it needs, dags with theirs inside."""

from __future__ import annotations

import graphlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from infeed.components.errors import InfeedError

Spec = dict[str, Any]  # a message of the pipeline spec as JSON; `compile` and `without_cache` change it in place

_PRODUCERS = ("taskOutputParameter", "taskOutputArtifact", "taskFinalStatus")


@dataclass(frozen=True)
class Task:
    """A task of a dag with all that the job says about it.

    Attributes:
      path: names of the dags round it, the outermost first, and its own.
      node: what people call it: its name, or the whole path where other tasks are named alike.
      spec: PipelineTaskSpec: inputs, dependencies, policies.
      component: ComponentSpec: declared inputs and outputs.
      executor: ExecutorSpec: a container, a resolver or an importer; None for a dag.
      subtasks: of a dag, in the order of their execution.
    """

    path: tuple[str, ...]
    node: str
    spec: Spec
    component: Spec
    executor: Spec | None = None
    subtasks: tuple[Task, ...] = ()

    @property
    def name(self) -> str:
        """Inside its dag."""
        return self.path[-1]

    def outputs(self, kind: Literal["parameters", "artifacts"]) -> Spec:
        """The definitions of what it is to write, by key."""
        found: Spec = self.component.get("outputDefinitions", {}).get(kind, {})
        return found

    @property
    def container(self) -> Spec | None:
        """PipelineContainerSpec of a task that runs one."""
        return (self.executor or {}).get("container")

    @property
    def driver(self) -> Spec | None:
        """What looks at the input before the cache is asked, as file-based ExampleGens do."""
        found: Spec | None = (self.container or {}).get("lifecycle", {}).get("preCacheCheck")
        return found

    @property
    def upstream(self) -> frozenset[str]:
        """Names of the tasks in the same dag that must have ended before."""
        return _upstream(self.spec)

    @property
    def runs_after_failures(self) -> bool:
        """True for exit handlers, and for tasks that ignore what became of those before them."""
        return bool(self.spec.get("triggerPolicy", {}).get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED")

    @property
    def retries(self) -> int | None:
        """How often it is started again after a failure; None where the job does not say."""
        policy = self.spec.get("retryPolicy")
        return None if policy is None else int(policy.get("maxRetryCount", 0))

    @property
    def cacheable(self) -> bool:
        """Whether earlier outputs may be taken."""
        return bool(self.spec.get("cachingOptions", {}).get("enableCache"))

    @property
    def is_loop(self) -> bool:
        """Whether it stands for several tasks, or takes a part of a value, as only items of loops are compiled."""
        sources = self.spec.get("inputs", {}).get("parameters", {}).values()
        selects = any("parameterExpressionSelector" in source for source in sources)
        return selects or not self.spec.keys().isdisjoint({"parameterIterator", "artifactIterator"})


def read_tasks(spec: Mapping[str, Any]) -> tuple[Task, ...]:
    """The root's tasks of a PipelineSpec, each after those it needs; alphabetical where that leaves a choice.

    Raises:
      InfeedError: a task needs one that is not there, or itself.
    """
    tasks = _read_dag(spec["root"]["dag"], spec, path=())
    names = Counter(leaf.name for leaf in leaves(tasks))
    return tuple(_short_names(task, names) for task in tasks)


def walk(tasks: tuple[Task, ...]) -> Iterator[Task]:
    """Every task, those inside of a dag after the dag itself."""
    for task in tasks:
        yield task
        yield from walk(task.subtasks)


def leaves(tasks: tuple[Task, ...]) -> Iterator[Task]:
    """The tasks that execute something, those inside of dags among them."""
    return (task for task in walk(tasks) if task.executor is not None)


def in_order(tasks: Mapping[str, Any], where: str = "") -> list[str]:
    """Names of the tasks, each after those it needs; alphabetical where that leaves a choice.

    Args:
      tasks: the PipelineTaskSpecs of one dag by name.
      where: the dag, as a prefix of the task's name in errors.

    Raises:
      InfeedError: a task needs one that is not there, or itself.
    """
    needs = {name: _upstream(tasks[name]) for name in sorted(tasks)}
    for name, producers in needs.items():
        if unknown := sorted(producers - needs.keys()):
            do = f"the tasks there are: {', '.join(needs)}"
            raise InfeedError(f"needs a task {unknown[0]!r} that is not in the job", where=f"task {where}{name}", do=do)
    sorter = graphlib.TopologicalSorter(needs)
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        cycle = " -> ".join(reversed(error.args[1]))
        raise InfeedError(f"tasks need one another in a circle: {cycle}", do="compile the job again") from error
    ordered: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        ordered += ready
        sorter.done(*ready)
    return ordered


def _upstream(task: Mapping[str, Any]) -> frozenset[str]:
    """Tasks of the same dag that must have ended before: those written down, and the producers of all that it takes."""
    inputs = task.get("inputs", {})
    sources = [*inputs.get("parameters", {}).values(), *inputs.get("artifacts", {}).values()]
    producers = {source[kind]["producerTask"] for source in sources for kind in _PRODUCERS if kind in source}
    return frozenset(task.get("dependentTasks", ())) | producers


def _read_dag(dag: Spec, spec: Mapping[str, Any], path: tuple[str, ...]) -> tuple[Task, ...]:
    tasks = dag["tasks"]
    ordered = in_order(tasks, where="".join(f"{name}/" for name in path))
    return tuple(_read_task(tasks[name], spec, (*path, name)) for name in ordered)


def _read_task(task: Spec, spec: Mapping[str, Any], path: tuple[str, ...]) -> Task:
    node = "/".join(path)
    component = spec["components"][task["componentRef"]["name"]]
    if "dag" in component:
        return Task(path, node, task, component, subtasks=_read_dag(component["dag"], spec, path))
    executors = spec["deploymentSpec"].get("executors", {})
    return Task(path, node, task, component, executor=executors.get(component.get("executorLabel"), {}))


def _short_names(task: Task, names: Counter[str]) -> Task:
    if task.executor is None:
        return replace(task, subtasks=tuple(_short_names(subtask, names) for subtask in task.subtasks))
    return replace(task, node=task.name) if names[task.name] == 1 else task
