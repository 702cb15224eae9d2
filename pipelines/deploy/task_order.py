"""In which order the tasks of a compiled dag can run."""

from __future__ import annotations

import graphlib
from collections.abc import Mapping
from typing import Any

from infeed.components.errors import InfeedError

_PRODUCERS = ("taskOutputParameter", "taskOutputArtifact", "taskFinalStatus")


def in_order(tasks: Mapping[str, Any], where: str = "") -> list[str]:
    """Names of the tasks, each after those it needs; alphabetical where that leaves a choice.

    Args:
      tasks: the PipelineTaskSpecs of one dag by name.
      where: the dag, as a prefix of the task's name in errors.

    Raises:
      InfeedError: a task needs one that is not there, or itself.
    """
    needs = {name: upstream(tasks[name]) for name in sorted(tasks)}
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


def upstream(task: Mapping[str, Any]) -> frozenset[str]:
    """Tasks of the same dag that must have ended before: those written down, and the producers of all that it takes."""
    inputs = task.get("inputs", {})
    sources = [*inputs.get("parameters", {}).values(), *inputs.get("artifacts", {}).values()]
    producers = {source[kind]["producerTask"] for source in sources for kind in _PRODUCERS if kind in source}
    return frozenset(task.get("dependentTasks", ())) | producers
