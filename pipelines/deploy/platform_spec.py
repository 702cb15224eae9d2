"""Node selectors and tolerations as a platform spec, the part of a compiled pipeline that only Kubernetes reads.

The same message that `kfp-kubernetes` makes. It is not used for that: its last release for protobuf 3, which TFX 1.16
needs, has no tolerations. The tests compare with it where they can.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infeed.pipelines.deploy.node_settings import container_nodes
from infeed.pipelines.deploy.options import Deploy, Resources, Toleration


def platform_spec(spec: Mapping[str, Any], deploy: Deploy) -> dict[str, Any] | None:
    """The platform spec of a PipelineSpec: a KubernetesExecutorConfig for each node that needs one; None without."""
    configs = {node.executor: executor_config(deploy.resources_of(node.name)) for node in container_nodes(spec)}
    executors = {label: config for label, config in configs.items() if config}
    return {"platforms": {"kubernetes": {"deploymentSpec": {"executors": executors}}}} if executors else None


def executor_config(resources: Resources) -> dict[str, Any]:
    """The KubernetesExecutorConfig; empty where any machine will do."""
    config: dict[str, Any] = {}
    if resources.node_selector:
        config["nodeSelector"] = {"labels": dict(resources.node_selector)}
    if resources.tolerations:
        config["tolerations"] = [_toleration(toleration) for toleration in resources.tolerations]
    return config


def _toleration(toleration: Toleration) -> dict[str, Any]:
    fields = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
        "tolerationSeconds": None if toleration.seconds is None else str(toleration.seconds),  # an int64
    }
    return {name: value for name, value in fields.items() if value is not None}
