"""Fields of a pod that Kubeflow Pipelines gives to a step. The names are those of Kubernetes."""

# ruff: noqa: N815

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from infeed.components.base.checks import require
from infeed.pipelines.deploy.kubernetes_names import check_object


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
