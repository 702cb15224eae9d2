"""Settings of a Kubernetes pod: tolerations, variables, files, volumes and labels. Names and fields follow Kubernetes.

resources:
  default:
    secrets: [{name: store, env: {accesskey: AWS_ACCESS_KEY_ID, secretkey: AWS_SECRET_ACCESS_KEY}}]
    volumes: [{claim: photos, mount: /mnt/photos}]
  Trainer: {shared_memory: 4Gi, pod: {metadata: {labels: {team: rides}}, spec: {imagePullSecrets: [{name: registry}]}}}
"""

# ruff: noqa: N815

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from infeed.components.base import schema
from infeed.components.base.checks import about, check_fields, require
from infeed.components.base.errors import InfeedError
from infeed.pipelines.deploy.kubernetes_names import (
    check_data_keys,
    check_keys,
    check_labels,
    check_object,
    check_variables,
    check_volume,
)

# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_UNITS = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_UNITS |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_QUANTITY = re.compile(rf"(\d+(?:\.\d+)?)({'|'.join(_UNITS)})")
_AS_QUANTITY = "use a Kubernetes quantity, such as 4 or 500m for cpu, 16Gi or 500M for memory"
_MOST_CORES, _LEAST_MEMORY = 10_000, 1e6

Operator = Literal["Equal", "Exists"]
Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
Pod = Mapping[str, Mapping[str, Any]]
"""Part of a Pod as Kubernetes writes it: `metadata`, and `spec` without containers."""


@dataclass(frozen=True)
class Toleration:
    """Kubernetes toleration of a taint. The fields are those of Kubernetes; `seconds` is `tolerationSeconds`."""

    key: str | None = None
    operator: Operator = "Equal"
    value: str | None = None
    effect: Effect | None = None
    seconds: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        exists = self.operator == "Exists"
        check_labels(self, "key", {self.key: self.value or ""} if self.key else {})
        require(self.key or exists, self, "key", "name the key of the taint, or use operator: Exists for all taints")
        require(not (exists and self.value), self, "value", "leave it out: operator Exists takes none")
        fits = self.seconds is None or self.effect == "NoExecute"
        require(fits, self, "seconds", "leave it out, or use effect: NoExecute")


@dataclass(frozen=True)
class KeySource:
    """Secret or ConfigMap whose keys the container gets as environment variables, as files, or both.

    Attributes:
      name: name of the Secret or ConfigMap.
      env: environment variable by key.
      mount: folder in which each key becomes a file.
      optional: start the pod even if the Secret or ConfigMap does not exist.
    """

    name: str
    env: Mapping[str, str] = field(default_factory=dict)
    mount: str | None = None
    optional: bool = False

    def __post_init__(self) -> None:
        check_object(self, "name")
        if self.mount:
            check_volume(self, "name")
        check_data_keys(self, "env", self.env)
        check_variables(self, "env", self.env.values())
        require(bool(self.env or self.mount), self, "env", "give env: {KEY: VARIABLE}, or mount: /FOLDER")
        _check_folder(self, "mount")


@dataclass(frozen=True)
class Volume:
    """PersistentVolumeClaim that the container mounts.

    Attributes:
      claim: name of the PersistentVolumeClaim.
      mount: folder in the container.
      path: folder of the volume to mount; by default all of it.
    """

    claim: str
    mount: str
    path: str = ""

    def __post_init__(self) -> None:
        check_volume(self, "claim")
        _check_folder(self, "mount")
        inside = not self.path.startswith("/") and ".." not in self.path.split("/")
        require(inside, self, "path", "use a path below the root of the volume, such as photos/2024")


@dataclass(frozen=True)
class EphemeralVolume:
    """Volume that Kubernetes creates for the pod and deletes with it, for example for a cache.

    Attributes:
      mount: folder in the container.
      size: Kubernetes quantity, for example 100Gi.
      storage_class: StorageClass; by default the cluster's.
    """

    mount: str
    size: str
    storage_class: str | None = None

    def __post_init__(self) -> None:
        _check_folder(self, "mount")
        check_quantity(self, "size")
        if self.storage_class is not None:
            check_object(self, "storage_class")


# Fields of a pod that Kubeflow Pipelines gives to a step. The names are those of Kubernetes.


@dataclass(frozen=True)
class Requirement:
    """Requirement on a label or a field of the machine."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        has_values = self.operator not in ("Exists", "DoesNotExist")
        do = "list values" if has_values else f"leave it out: operator {self.operator} takes none"
        require(bool(self.values) == has_values, self, "values", do)


@dataclass(frozen=True)
class Term:
    """Requirements that a machine must all meet."""

    matchExpressions: tuple[Requirement, ...] = ()
    matchFields: tuple[Requirement, ...] = ()


@dataclass(frozen=True)
class Terms:
    """Alternative terms. A machine must meet at least one."""

    nodeSelectorTerms: tuple[Term, ...]


@dataclass(frozen=True)
class Preference:
    """Term with its weight, 1 to 100."""

    weight: int
    preference: Term

    def __post_init__(self) -> None:
        require(1 <= self.weight <= 100, self, "weight", "use a number from 1 to 100")


@dataclass(frozen=True)
class NodeAffinity:
    """Machines that a pod requires and prefers."""

    requiredDuringSchedulingIgnoredDuringExecution: Terms | None = None
    preferredDuringSchedulingIgnoredDuringExecution: tuple[Preference, ...] = ()


@dataclass(frozen=True)
class Affinity:
    """Affinity of a pod. Steps take that to nodes alone."""

    nodeAffinity: NodeAffinity = NodeAffinity()
    podAffinity: Any = None
    podAntiAffinity: Any = None


@dataclass(frozen=True)
class PullSecret:
    """Secret for the registry of the image."""

    name: str

    def __post_init__(self) -> None:
        check_object(self, "name")


@dataclass(frozen=True)
class PodOfStep:
    """Part of a pod's `spec`."""

    affinity: Affinity = field(default_factory=Affinity)
    imagePullSecrets: tuple[PullSecret, ...] = ()


_OF_STEP = {option.name for option in dataclasses.fields(PodOfStep)}


def quantity(text: str, name: str) -> float:
    """Convert a Kubernetes quantity to a number of cores or bytes. Raises InfeedError if `text` is not a quantity."""
    match = _QUANTITY.fullmatch(text)
    if not match:
        raise InfeedError(f"{name} is {text!r}", where="deploy.resources", do=_AS_QUANTITY)
    return float(match[1]) * _UNITS[match[2]]


def check_quantity(options: object, name: str) -> None:
    """Raise OptionError unless an option is a plausible Kubernetes quantity. A memory of 16 would mean 16 bytes."""
    with about(options, name):
        amount = quantity(getattr(options, name), name)
    if name.startswith("cpu"):
        require(0 < amount <= _MOST_CORES, options, name, _AS_QUANTITY)
    else:
        require(amount >= (_LEAST_MEMORY if name == "memory" else 1), options, name, _AS_QUANTITY)


def check_pod(options: object, name: str) -> None:
    """Raise OptionError unless an option is metadata and spec of a Pod, with names that Kubernetes accepts."""
    pod: Pod = getattr(options, name) or {}
    metadata, spec = pod.get("metadata", {}), pod.get("spec", {})
    require(pod.keys() <= {"metadata", "spec"}, options, name, "use metadata and spec, as Kubernetes writes a Pod")
    require(metadata.keys() <= {"labels", "annotations"}, options, name, "use labels and annotations in metadata")
    for values in metadata.values():
        is_text = isinstance(values, Mapping) and all(isinstance(value, str) for value in values.values())
        require(is_text, options, name, "write the values of labels and annotations as text, in quotes")
    check_labels(options, name, metadata.get("labels", {}))
    check_keys(options, name, metadata.get("annotations", {}))
    require("containers" not in spec, options, name, "leave containers out: `resources` has settings of the container")
    with about(options, name):
        schema.read(PodOfStep, {field: spec[field] for field in spec.keys() & _OF_STEP}, exact=True)


def of_machines_alone(pod: Pod) -> list[str]:
    """Return the fields of a pod that Kubeflow Pipelines cannot set in a step's pod."""
    spec = pod.get("spec", {})
    found = [f"spec.{field}" for field in spec.keys() - _OF_STEP]
    return sorted(found + [f"spec.affinity.{kind}" for kind in spec.get("affinity", {}).keys() - {"nodeAffinity"}])


def merged(base: Any, more: Any) -> Any:
    """Merge two parts of a pod: mappings by key, lists by concatenation. Of other values, `more` takes precedence."""
    if isinstance(base, Mapping) and isinstance(more, Mapping):
        return {**base, **{key: merged(base[key], value) if key in base else value for key, value in more.items()}}
    return [*base, *more] if isinstance(base, list) and isinstance(more, list) else more


def _check_folder(options: object, name: str) -> None:
    folder = getattr(options, name)
    fits = folder is None or (folder.startswith("/") and ":" not in folder)
    require(fits, options, name, "use an absolute path in the container, without ':'")
