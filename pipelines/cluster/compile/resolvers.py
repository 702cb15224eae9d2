"""Removal of resolvers for Kubeflow, whose backend rejects every job that has one.

An optional input that a resolver would fill, such as the baseline model of an Evaluator, stays empty, as in the first
run of a pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from infeed.components.base.errors import InfeedError
from infeed.pipelines.cluster.job.compiled import Task, leaves, read_tasks

if TYPE_CHECKING:
    from tfx.orchestration.pipeline import Pipeline

_DO = "give the artifact by an Importer, or compile with --target vertex, which runs resolvers"


def empty_inputs(pipeline: Pipeline) -> list[str]:
    """Return the optional inputs that resolvers would fill, such as `Evaluator.baseline_model`.

    Raises InfeedError if a component requires such an input.
    """
    from tfx.dsl.components.common.resolver import Resolver

    resolvers, found = {node.id for node in pipeline.components if isinstance(node, Resolver)}, []
    for node in pipeline.components:
        for key, channel in node.inputs.items() if node.id not in resolvers else ():
            if getattr(channel, "producer_component_id", None) not in resolvers:
                continue
            if not node.spec.INPUTS[key].optional:
                what = f"{node.id} requires {key} of a resolver, and Kubeflow's backend runs no resolvers"
                raise InfeedError(what, where=f"node {node.id}", do=_DO)
            found.append(f"{node.id}.{key}")
    return found


def remove(spec: Mapping[str, Any]) -> None:
    """Remove the resolvers of the root DAG, and the inputs that they would fill. Changes `spec`.

    Raises InfeedError if the condition of a task names such an input.
    """
    tasks = list(leaves(read_tasks(spec)))
    resolvers = [task for task in tasks if "resolver" in (task.executor or {})]
    names = {task.name for task in resolvers}
    for task in tasks if names else ():
        task.spec["dependentTasks"] = [name for name in task.spec.get("dependentTasks", ()) if name not in names]
        if task.name not in names:
            _empty(task, names)
    for task in resolvers:
        del spec["root"]["dag"]["tasks"][task.name], spec["components"][task.spec["componentRef"]["name"]]
        del spec["deploymentSpec"]["executors"][task.component["executorLabel"]]


def _empty(task: Task, resolvers: set[str]) -> None:
    artifacts = task.spec.get("inputs", {}).get("artifacts", {})
    for key, source in list(artifacts.items()):
        if source.get("taskOutputArtifact", {}).get("producerTask") in resolvers:
            if f"'{key}'" in task.spec.get("triggerPolicy", {}).get("condition", ""):
                what = f"the condition of {task.name} depends on a resolver, and Kubeflow's backend runs no resolvers"
                raise InfeedError(what, where=f"node {task.name}", do=_DO)
            del artifacts[key], task.component["inputDefinitions"]["artifacts"][key]
