"""Resources, retries and caching of each node, written into a compiled PipelineSpec.

TFX's compiler leaves some out: it drops the resources of file-based ExampleGens, and knows no retries and no caching
of one node. Here one step over the spec sets them for every node that runs in a container.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infeed.components.errors import InfeedError
from infeed.pipelines.deploy.options import DEFAULT, Deploy, Resources, quantity

# A machine that was taken away needs a while to be replaced; kfp's own factor.
_BACKOFF = {"backoffDuration": "30s", "backoffFactor": 2.0, "backoffMaxDuration": "600s"}


@dataclass(frozen=True)
class ContainerNode:
    """A task that runs in a container: the task and its container as they stand in the spec, to be changed in place."""

    name: str
    task: dict[str, Any]
    executor: str
    container: dict[str, Any]

    @property
    def has_driver(self) -> bool:
        """Whether it looks at its input before the cache is asked, as file-based ExampleGens do."""
        return "preCacheCheck" in self.container.get("lifecycle", {})


def container_nodes(spec: Mapping[str, Any]) -> Iterator[ContainerNode]:
    """Every container node of a PipelineSpec, those inside of nested DAGs too; resolvers and importers have none."""
    executors = spec["deploymentSpec"]["executors"]
    dags = [spec["root"]["dag"], *(c["dag"] for c in spec["components"].values() if "dag" in c)]
    for name, task in ((name, task) for dag in dags for name, task in dag["tasks"].items()):
        label = spec["components"][task["componentRef"]["name"]].get("executorLabel", "")
        if "container" in executors.get(label, {}):
            yield ContainerNode(name, task, label, executors[label]["container"])


def apply_settings(spec: Mapping[str, Any], deploy: Deploy, *, drivers_run: bool) -> None:
    """Writes what `deploy.resources` says into `spec`.

    Args:
      spec: a PipelineSpec, changed in place.
      deploy: says it.
      drivers_run: whether the platform runs the driver of an ExampleGen before it asks the cache. Where it does not,
        new data in the same folder would be answered with old Examples: such a node is cached only where asked for.

    Raises:
      InfeedError: `deploy.resources` names a node that is not there, or runs in no container.
    """
    nodes = list(container_nodes(spec))
    check_names(deploy, [node.name for node in nodes])
    for node in nodes:
        resources = deploy.resources_of(node.name)
        if limits := container_resources(resources):
            node.container["resources"] = limits
        if resources.retries:
            node.task["retryPolicy"] = {"maxRetryCount": resources.retries, **_BACKOFF}
        if not cached(node, resources, drivers_run):
            node.task["cachingOptions"] = {}


def cached(node: ContainerNode, resources: Resources, drivers_run: bool) -> bool:
    """Whether the cache may answer for the node."""
    if resources.cache is not None:
        return resources.cache
    by_pipeline = bool(node.task.get("cachingOptions", {}).get("enableCache"))
    return by_pipeline and (drivers_run or not node.has_driver)


def container_resources(resources: Resources) -> dict[str, Any]:
    """The ResourceSpec: cores, units of 10^9 bytes, and accelerators; empty where nothing is said."""
    spec: dict[str, Any] = {}
    if resources.cpu is not None:
        spec["cpuLimit"] = quantity(resources.cpu, "cpu")
    if resources.memory is not None:
        spec["memoryLimit"] = quantity(resources.memory, "memory") / 1e9
    if resources.accelerator is not None:
        count = str(resources.accelerators or 1)  # an int64, which JSON of protos writes as text
        spec["accelerator"] = {"type": resources.accelerator, "count": count}
    return spec


def check_names(deploy: Deploy, nodes: list[str]) -> None:
    """Raises InfeedError where resources are given to a node that is not among `nodes`."""
    unknown = [name for name in deploy.resources if name not in (DEFAULT, *nodes)]
    if unknown:
        raise InfeedError(
            f"there is no node {unknown[0]!r} that runs in a container",
            where="deploy.resources",
            do=f"Use {DEFAULT} or one of {', '.join(sorted(nodes))}.",
        )
