"""Platform spec of a compiled pipeline: the settings of pods that only Kubernetes reads.

The messages are those of `kfp-kubernetes`, KubernetesExecutorConfig. This module does not import the package, because
its last release for protobuf 3, which TFX 1.16 needs, lacks most of them. Where the message has an older field for a
name, both are written, as `kfp-kubernetes` does for older backends.

https://github.com/kubeflow/pipelines/blob/master/kubernetes_platform/proto/kubernetes_executor_config.proto
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from infeed.pipelines.compile.input_states import resources_of
from infeed.pipelines.deploy.options import Deploy, Resources
from infeed.pipelines.deploy.pod import EphemeralVolume, KeySource, NodeAffinity, Toleration, Volume
from infeed.pipelines.job.compiled import Task


def platform_spec(nodes: Iterable[Task], deploy: Deploy) -> dict[str, Any] | None:
    """Return the platform spec, with a KubernetesExecutorConfig per node that needs one, or None if no node does."""
    configs = {node.component["executorLabel"]: executor_config(resources_of(deploy, node.name)) for node in nodes}
    executors = {label: config for label, config in configs.items() if config}
    return {"platforms": {"kubernetes": {"deploymentSpec": {"executors": executors}}}} if executors else None


def executor_config(resources: Resources) -> dict[str, Any]:
    """Return the KubernetesExecutorConfig of a node. Empty if the node has no settings of a pod."""
    secrets, config_maps = resources.secrets or (), resources.config_maps or ()
    config: dict[str, Any] = {
        "nodeSelector": resources.node_selector and {"labels": dict(resources.node_selector)},
        "nodeAffinity": _affinity(resources.node_affinity or ()),
        "tolerations": [_toleration(one) for one in resources.tolerations or ()],
        "secretAsEnv": [_variables("secret", one) for one in secrets if one.env],
        "secretAsVolume": [_files("secret", one) for one in secrets if one.mount],
        "configMapAsEnv": [_variables("configMap", one) for one in config_maps if one.env],
        "configMapAsVolume": [_files("configMap", one) for one in config_maps if one.mount],
        "pvcMount": [_claim(one) for one in resources.volumes or ()],
        "genericEphemeralVolume": [_ephemeral(*one) for one in enumerate(resources.ephemeral_volumes or ())],
        "emptyDirMounts": [_shared_memory(resources.shared_memory)] if resources.shared_memory else [],
        "imagePullSecret": [_named("secretName", name) for name in resources.image_pull_secrets or ()],
        "podMetadata": {name: dict(given) for name in ("labels", "annotations") if (given := getattr(resources, name))},
        "activeDeadlineSeconds": resources.timeout and str(resources.timeout),  # an int64
    }
    return {name: value for name, value in config.items() if value}


def _named(field: str, name: str) -> dict[str, Any]:
    """Return a name in its old field and in its new one, which may also be a parameter of the pipeline."""
    return {field: name, f"{field}Parameter": {"runtimeValue": {"constant": name}}}


def _variables(kind: str, source: KeySource) -> dict[str, Any]:
    pairs = [{f"{kind}Key": key, "envVar": variable} for key, variable in source.env.items()]
    return {**_named(f"{kind}Name", source.name), "keyToEnv": pairs, "optional": source.optional}


def _files(kind: str, source: KeySource) -> dict[str, Any]:
    return {**_named(f"{kind}Name", source.name), "mountPath": source.mount, "optional": source.optional}


def _claim(volume: Volume) -> dict[str, Any]:
    name = {"constant": volume.claim, "pvcNameParameter": {"runtimeValue": {"constant": volume.claim}}}
    return {**name, "mountPath": volume.mount, **({"subPath": volume.path} if volume.path else {})}


def _ephemeral(number: int, volume: EphemeralVolume) -> dict[str, Any]:
    storage = {"storageClassName": volume.storage_class} if volume.storage_class else {"defaultStorageClass": True}
    place = {"volumeName": f"ephemeral-{number}", "mountPath": volume.mount}
    return {**place, "accessModes": ["ReadWriteOnce"], "size": volume.size, **storage}


def _shared_memory(size: str) -> dict[str, str]:
    """Return /dev/shm of the size. No backend reads `enabledSharedMemory`, which is meant for it."""
    return {"volumeName": "shm", "mountPath": "/dev/shm", "medium": "Memory", "sizeLimit": size}


def _affinity(affinities: Sequence[NodeAffinity]) -> list[dict[str, Any]]:
    """Return one term that a machine must meet whole, and one for each preference. Kubernetes joins terms by OR."""
    required = [_expression(one) for one in affinities if not one.weight]
    preferred = [{"matchExpressions": [_expression(one)], "weight": one.weight} for one in affinities if one.weight]
    return [*([{"matchExpressions": required}] if required else []), *preferred]


def _expression(affinity: NodeAffinity) -> dict[str, Any]:
    values = {"values": list(affinity.values)} if affinity.values else {}
    return {"key": affinity.key, "operator": affinity.operator, **values}


def _toleration(toleration: Toleration) -> dict[str, Any]:
    fields = {name: value for name, value in vars(toleration).items() if value is not None}
    if "seconds" in fields:
        fields["tolerationSeconds"] = str(fields.pop("seconds"))  # an int64
    return fields
