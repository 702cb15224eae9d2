"""Settings of a pod on Kubernetes: machines, variables, files, volumes and labels. Names and fields follow Kubernetes.

resources:
  default:
    secrets: [{name: store, env: {accesskey: AWS_ACCESS_KEY_ID, secretkey: AWS_SECRET_ACCESS_KEY}}]
    volumes: [{claim: photos, mount: /mnt/photos}]
  Trainer: {shared_memory: 4Gi, node_affinity: [{key: zone, operator: In, values: [a, b]}]}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from infeed.components.checks import as_tuples, check_choices, require

Operator = Literal["Equal", "Exists"]
Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
Comparison = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]


@dataclass(frozen=True)
class Toleration:
    """Kubernetes toleration of a taint. The fields are those of Kubernetes; `seconds` is `tolerationSeconds`."""

    key: str | None = None
    operator: Operator = "Equal"
    value: str | None = None
    effect: Effect | None = None
    seconds: int | None = None

    def __post_init__(self) -> None:
        check_choices(self)


@dataclass(frozen=True)
class NodeAffinity:
    """Requirement on the labels of a machine. With a weight it is a preference.

    Attributes:
      key: label.
      operator: comparison of the label with `values`.
      values: values of the label; empty for Exists and DoesNotExist.
      weight: 1 to 100 for a preference; None for a requirement.
    """

    key: str
    operator: Comparison = "In"
    values: tuple[str, ...] = ()
    weight: int | None = None

    def __post_init__(self) -> None:
        as_tuples(self, "values")
        check_choices(self)
        alone = self.operator in ("Exists", "DoesNotExist")
        require(bool(self.values) != alone, self, "values", "give values for In, NotIn, Gt and Lt, and none otherwise")
        require(self.weight is None or 1 <= self.weight <= 100, self, "weight", "use a weight from 1 to 100")


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
        _check_folder(self, "mount")


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


def _check_folder(options: object, name: str) -> None:
    folder = getattr(options, name)
    require(folder is None or folder.startswith("/"), options, name, "use an absolute path in the container")
