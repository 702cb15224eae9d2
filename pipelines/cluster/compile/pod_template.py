"""PodTemplateSpec for the machines of a training job, from the settings of the Trainer.

Kubeflow creates the pods of steps from `platform_spec`. For the pods of a training job, the step writes this template.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-template-v1/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infeed.components.kubeflow import disk
from infeed.components.kubeflow.message import present
from infeed.components.kubeflow.training_job import NODE
from infeed.pipelines.deploy.options import Resources
from infeed.pipelines.deploy.pod import merged

# An Istio sidecar would keep the Job running after training, and would intercept traffic between the machines.
_NO_SIDECAR = {"sidecar.istio.io/inject": "false"}
# Pod Security requires these fields in a `restricted` namespace. The group lets user 1000 write to volumes.
_POD_SECURITY = {"runAsNonRoot": True, "fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
_CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_RENAMED = {"seconds": "tolerationSeconds"}
_Mounted = tuple[dict[str, Any], dict[str, Any]]


def pod_template(resources: Resources, image: str) -> dict[str, Any]:
    """Return the PodTemplateSpec of a machine, with one container and the resources of the Trainer."""
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
        "tolerations": [
            {_RENAMED.get(name, name): value for name, value in vars(one).items() if value is not None}
            for one in resources.tolerations or ()
        ],
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
