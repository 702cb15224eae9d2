"""Settings of pods that only Kubernetes has: the platform spec of a pipeline, and the machines of a training job.

Kubeflow creates the pods of steps from the platform spec, in the format KubernetesExecutorConfig of `kfp-kubernetes`.
This module does not import that package: TFX 1.16 needs protobuf 3, and the last release for it supports few of the
fields. If a name has an older and a newer field, this module writes both, as `kfp-kubernetes` does for older backends.
For the pods of a training job, the step of the Trainer writes a template.

https://github.com/kubeflow/pipelines/blob/master/kubernetes_platform/proto/kubernetes_executor_config.proto
https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-template-v1/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from infeed.components.kubeflow import disk
from infeed.components.kubeflow.message import present
from infeed.components.kubeflow.training_job import NODE
from infeed.pipelines.cluster.compile.edits import resources_of
from infeed.pipelines.cluster.job.compiled import Task
from infeed.pipelines.deploy.options import Deploy, Resources
from infeed.pipelines.deploy.pod import KeySource, Toleration, merged, node_affinity, pull_secrets

# An Istio sidecar would keep the Job running after training, and would intercept traffic between the machines.
_NO_SIDECAR = {"sidecar.istio.io/inject": "false"}
# Pod Security requires these fields in a `restricted` namespace. The group lets user 1000 write to volumes.
_POD_SECURITY = {"runAsNonRoot": True, "fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
_CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_Mounted = tuple[dict[str, Any], dict[str, Any]]


def platform_spec(nodes: Iterable[Task], deploy: Deploy) -> dict[str, Any] | None:
    """Return the platform spec, with a KubernetesExecutorConfig for each node that needs one. None if no node does."""
    configs = {node.component["executorLabel"]: executor_config(resources_of(deploy, node.name)) for node in nodes}
    executors = {label: config for label, config in configs.items() if config}
    return {"platforms": {"kubernetes": {"deploymentSpec": {"executors": executors}}}} if executors else None


def executor_config(resources: Resources) -> dict[str, Any]:
    """Return the KubernetesExecutorConfig of a node. Empty if the node has no settings of a pod."""
    secrets, config_maps, pod = resources.secrets or (), resources.config_maps or (), resources.pod or {}
    config: dict[str, Any] = {
        "nodeSelector": resources.node_selector and {"labels": dict(resources.node_selector)},
        "nodeAffinity": node_affinity(pod),
        "tolerations": [_toleration(one, str) for one in resources.tolerations or ()],
        "secretAsEnv": [_variables("secret", one) for one in secrets if one.env],
        "secretAsVolume": [_files("secret", one) for one in secrets if one.mount],
        "configMapAsEnv": [_variables("configMap", one) for one in config_maps if one.env],
        "configMapAsVolume": [_files("configMap", one) for one in config_maps if one.mount],
        "pvcMount": [
            {
                "constant": one.claim,
                "pvcNameParameter": {"runtimeValue": {"constant": one.claim}},
                "mountPath": one.mount,
                **({"subPath": one.path} if one.path else {}),
            }
            for one in resources.volumes or ()
        ],
        "genericEphemeralVolume": [
            {
                "volumeName": f"ephemeral-{number}",
                "mountPath": one.mount,
                "accessModes": ["ReadWriteOnce"],
                "size": one.size,
                **({"storageClassName": one.storage_class} if one.storage_class else {"defaultStorageClass": True}),
            }
            for number, one in enumerate(resources.ephemeral_volumes or ())
        ],
        # No backend reads `enabledSharedMemory`, the field for this purpose.
        "emptyDirMounts": [
            {"volumeName": "shm", "mountPath": "/dev/shm", "medium": "Memory", "sizeLimit": size}
            for size in [resources.shared_memory]
            if size
        ],
        "imagePullSecret": [_named("secretName", name) for name in pull_secrets(pod)],
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


def _toleration(toleration: Toleration, whole: type[int] | type[str]) -> dict[str, Any]:
    """Return a toleration with the seconds as `whole`: the JSON of protobuf writes an int64 as text."""
    fields = {name: value for name, value in vars(toleration).items() if value is not None}
    if "seconds" in fields:
        fields["tolerationSeconds"] = whole(fields.pop("seconds"))
    return fields


def pod_template(resources: Resources, image: str) -> dict[str, Any]:
    """Return the PodTemplateSpec of a machine that trains, with one container and the resources of the Trainer."""
    mounted = list(_volumes(resources))
    limits = present({"cpu": resources.cpu, "memory": resources.memory, disk.RESOURCE: resources.ephemeral_storage})
    if resources.accelerator:
        limits[resources.accelerator] = str(resources.accelerators or 1)
    requests = present({"cpu": resources.cpu_request, "memory": resources.memory_request})
    container = {
        "name": NODE,
        "image": image,
        "env": _env(resources),
        "resources": present({"limits": limits, "requests": requests}),
        "volumeMounts": [mount for _, mount in mounted],
        "securityContext": _CONTAINER_SECURITY,
    }
    spec = {
        "securityContext": _POD_SECURITY,
        "containers": [present(container)],
        "volumes": [volume for volume, _ in mounted],
        "nodeSelector": dict(resources.node_selector or {}),
        "tolerations": [_toleration(one, int) for one in resources.tolerations or ()],
    }
    template = {"metadata": {"labels": _NO_SIDECAR, "annotations": _NO_SIDECAR}, "spec": present(spec)}
    found: dict[str, Any] = merged(template, resources.pod or {})
    return found


def _env(resources: Resources) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in resources.variables.items()]
    for kind, sources in (("secretKeyRef", resources.secrets), ("configMapKeyRef", resources.config_maps)):
        for source in sources or ():
            for key, variable in source.env.items():
                reference = {"name": source.name, "key": key, **({"optional": True} if source.optional else {})}
                found.append({"name": variable, "valueFrom": {kind: reference}})
    return found


def _volumes(resources: Resources) -> Iterator[_Mounted]:
    """Yield each volume with its mount."""
    for number, claim in enumerate(resources.volumes or ()):
        source: dict[str, Any] = {"persistentVolumeClaim": {"claimName": claim.claim}}
        yield _mounted(f"claim-{number}", source, claim.mount, subPath=claim.path)
    for number, secret in enumerate(one for one in resources.secrets or () if one.mount):
        source = {"secret": {"secretName": secret.name, "optional": secret.optional}}
        yield _mounted(f"secret-{number}", source, secret.mount)
    for number, config_map in enumerate(one for one in resources.config_maps or () if one.mount):
        source = {"configMap": {"name": config_map.name, "optional": config_map.optional}}
        yield _mounted(f"config-map-{number}", source, config_map.mount)
    for number, volume in enumerate(resources.ephemeral_volumes or ()):
        storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": volume.size}}}
        claim_spec = present({**storage, "storageClassName": volume.storage_class})
        source = {"ephemeral": {"volumeClaimTemplate": {"spec": claim_spec}}}
        yield _mounted(f"ephemeral-{number}", source, volume.mount)
    if resources.shared_memory:
        source = {"emptyDir": {"medium": "Memory", "sizeLimit": resources.shared_memory}}
        yield _mounted("shm", source, "/dev/shm")


def _mounted(name: str, source: dict[str, Any], mount: str | None, **more: str) -> _Mounted:
    return {"name": name, **source}, present({"name": name, "mountPath": mount, **more})
