"""Platform spec of a compiled pipeline: the settings of pods that only Kubernetes has.

The format is KubernetesExecutorConfig of `kfp-kubernetes`. This module does not import that package: TFX 1.16 needs
protobuf 3, and the last release for it supports few of the fields. If a name has an older and a newer field, this
module writes both, as `kfp-kubernetes` does for older backends.

https://github.com/kubeflow/pipelines/blob/master/kubernetes_platform/proto/kubernetes_executor_config.proto
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from infeed.components.kubeflow.message import present
from infeed.pipelines.cluster.compile.input_states import resources_of
from infeed.pipelines.cluster.job.compiled import Task
from infeed.pipelines.deploy.options import Deploy, Resources
from infeed.pipelines.deploy.pod import EphemeralVolume, KeySource, Toleration, Volume


def platform_spec(nodes: Iterable[Task], deploy: Deploy) -> dict[str, Any] | None:
    """Return the platform spec, with a KubernetesExecutorConfig for each node that needs one. None if no node does."""
    configs = {node.component["executorLabel"]: executor_config(resources_of(deploy, node.name)) for node in nodes}
    executors = {label: config for label, config in configs.items() if config}
    return {"platforms": {"kubernetes": {"deploymentSpec": {"executors": executors}}}} if executors else None


def executor_config(resources: Resources) -> dict[str, Any]:
    """Return the KubernetesExecutorConfig of a node. Empty if the node has no settings of a pod."""
    secrets, config_maps, pod = resources.secrets or (), resources.config_maps or (), resources.pod or {}
    spec = pod.get("spec", {})
    config: dict[str, Any] = {
        "nodeSelector": resources.node_selector and {"labels": dict(resources.node_selector)},
        "nodeAffinity": _affinity(spec.get("affinity", {}).get("nodeAffinity", {})),
        "tolerations": [_toleration(one) for one in resources.tolerations or ()],
        "secretAsEnv": [_variables("secret", one) for one in secrets if one.env],
        "secretAsVolume": [_files("secret", one) for one in secrets if one.mount],
        "configMapAsEnv": [_variables("configMap", one) for one in config_maps if one.env],
        "configMapAsVolume": [_files("configMap", one) for one in config_maps if one.mount],
        "pvcMount": [_claim(one) for one in resources.volumes or ()],
        "genericEphemeralVolume": [_ephemeral(*one) for one in enumerate(resources.ephemeral_volumes or ())],
        "emptyDirMounts": [_shared_memory(resources.shared_memory)] if resources.shared_memory else [],
        "imagePullSecret": [_named("secretName", one["name"]) for one in spec.get("imagePullSecrets", ())],
        "podMetadata": dict(pod.get("metadata", {})),
        "activeDeadlineSeconds": resources.timeout and str(resources.timeout),  # an int64
    }
    return present(config)


def _named(field: str, name: str) -> dict[str, Any]:
    """Return a name in its old field, and in its new field, which also accepts pipeline parameters."""
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
    """Return an emptyDir mount at /dev/shm. No backend reads `enabledSharedMemory`, the field for this purpose."""
    return {"volumeName": "shm", "mountPath": "/dev/shm", "medium": "Memory", "sizeLimit": size}


def _affinity(affinity: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the required terms (a machine must meet one), and each preferred term with its weight."""
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", ())
    preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution", ())
    return [*required, *({**one["preference"], "weight": one["weight"]} for one in preferred)]


def _toleration(toleration: Toleration) -> dict[str, Any]:
    fields = {name: value for name, value in vars(toleration).items() if value is not None}
    if "seconds" in fields:
        fields["tolerationSeconds"] = str(fields.pop("seconds"))  # an int64
    return fields
