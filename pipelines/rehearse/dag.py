"""The tasks of a compiled job in an order in which they can run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from infeed.components.errors import InfeedError
from infeed.pipelines.deploy.task_order import in_order, upstream

Spec = Mapping[str, Any]


@dataclass(frozen=True)
class Task:
    """A task of a dag with all that the job says about it.

    Attributes:
      node: what people call it: its name, with those of the dags round it where other tasks are named alike.
      name: inside its dag.
      spec: PipelineTaskSpec: inputs, dependencies, policies.
      component: ComponentSpec: declared inputs and outputs.
      executor: ExecutorSpec: a container, a resolver or an importer; None for a dag.
      subtasks: of a dag, in the order of their execution.
    """

    node: str
    name: str
    spec: Spec
    component: Spec
    executor: Spec | None = None
    subtasks: tuple[Task, ...] = ()

    @property
    def upstream(self) -> frozenset[str]:
        """Names of the tasks in the same dag that must have ended before."""
        return upstream(self.spec)

    @property
    def runs_after_failures(self) -> bool:
        """True for exit handlers, and for tasks that ignore what became of those before them."""
        return bool(self.spec.get("triggerPolicy", {}).get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED")

    @property
    def retries(self) -> int:
        return int(self.spec.get("retryPolicy", {}).get("maxRetryCount", 0))

    @property
    def cacheable(self) -> bool:
        return bool(self.spec.get("cachingOptions", {}).get("enableCache"))


def read_tasks(spec: Spec) -> tuple[Task, ...]:
    """The root's tasks, dags with theirs inside, each after those it needs; alphabetical where that leaves a choice.

    Raises:
      InfeedError: a task needs one that is not there, or itself; or asks for what cannot be rehearsed.
    """
    tasks = _read_dag(spec["root"]["dag"], spec, path=())
    names = Counter(leaf.name for leaf in leaves(tasks))
    return tuple(_short_names(task, names) for task in tasks)


def leaves(tasks: tuple[Task, ...]) -> Iterator[Task]:
    """The tasks that execute something, those inside of dags among them."""
    for task in tasks:
        yield from leaves(task.subtasks) if task.executor is None else (task,)


def _read_dag(dag: Spec, spec: Spec, path: tuple[str, ...]) -> tuple[Task, ...]:
    tasks = dag["tasks"]
    ordered = in_order(tasks, where="".join(f"{name}/" for name in path))
    return tuple(_read_task(name, tasks[name], spec, (*path, name)) for name in ordered)


def _read_task(name: str, task: Spec, spec: Spec, path: tuple[str, ...]) -> Task:
    node = "/".join(path)
    if _is_loop(task):
        raise InfeedError("a loop over items cannot be rehearsed", where=f"task {node}", do="rehearse a job without it")
    component = spec["components"][task["componentRef"]["name"]]
    if "dag" in component:
        return Task(node, name, task, component, subtasks=_read_dag(component["dag"], spec, path))
    executor = spec["deploymentSpec"]["executors"][component["executorLabel"]]
    if not executor.keys() & {"container", "importer", "resolver"}:
        kind = next(iter(executor), "nothing")
        do = "compile the job for Kubeflow: there it is a container"
        raise InfeedError(f"executor {kind!r} cannot be rehearsed", where=f"task {node}", do=do)
    return Task(node, name, task, component, executor)


def _is_loop(task: Spec) -> bool:
    """Whether it stands for several tasks, or takes a part of a value, which kfp compiles for items of loops alone."""
    sources = task.get("inputs", {}).get("parameters", {}).values()
    selects = any("parameterExpressionSelector" in source for source in sources)
    return selects or not task.keys().isdisjoint({"parameterIterator", "artifactIterator"})


def _short_names(task: Task, names: Counter[str]) -> Task:
    if task.executor is None:
        return replace(task, subtasks=tuple(_short_names(subtask, names) for subtask in task.subtasks))
    return replace(task, node=task.name) if names[task.name] == 1 else task
