"""What a cluster has to know of a pipeline: the image, the resources of each node, the options of Vertex AI.

    deploy:
      image: registry.example/taxi:1
      root: gs://bucket/taxi
      resources:
        default: {cpu: 2, memory: 8Gi, retries: 2}
        Trainer: {cpu: 8, memory: 30Gi, accelerator: nvidia.com/gpu, accelerators: 1}

Nothing here changes what a pipeline computes; `infeed run` does not look at it.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from infeed.components.checks import about, as_tuples, at_least, check_choices
from infeed.components.errors import InfeedError
from infeed.pipelines.deploy.vertex import VertexOptions, check_accelerator

Operator = Literal["Equal", "Exists"]
Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
DEFAULT = "default"

# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_UNITS = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_UNITS |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_QUANTITY = re.compile(rf"(\d+(?:\.\d+)?)({'|'.join(_UNITS)})")


@dataclass(frozen=True)
class Toleration:
    """Lets a pod onto machines with a taint; the fields are those of Kubernetes. `seconds` is `tolerationSeconds`."""

    key: str | None = None
    operator: Operator = "Equal"
    value: str | None = None
    effect: Effect | None = None
    seconds: int | None = None

    def __post_init__(self) -> None:
        check_choices(self)


@dataclass(frozen=True)
class Resources:
    """What one node gets. What is None is left to the entry `default`, and then to the cluster.

    Attributes:
      cpu: most cores, as Kubernetes writes them: 4, 0.5 or 500m.
      memory: most bytes, as Kubernetes writes them: 16Gi, 500M.
      accelerator: kind of GPU or TPU. On Kubeflow the name of the resource, such as nvidia.com/gpu or google.com/tpu;
        on Vertex AI its own name, such as NVIDIA_L4.
      accelerators: how many of them; 1 where a kind is named.
      node_selector: labels that the machine must have. Kubeflow only, as are tolerations.
      tolerations: taints that the machine may have.
      retries: how many more times a failed node is started; 0 for never.
      cache: take earlier outputs of the node where its inputs and options are the same.
    """

    cpu: str | None = None
    memory: str | None = None
    accelerator: str | None = None
    accelerators: int | None = None
    node_selector: Mapping[str, str] | None = None
    tolerations: Sequence[Toleration] | None = None
    retries: int | None = None
    cache: bool | None = None

    def __post_init__(self) -> None:
        as_tuples(self, "tolerations")
        for name, number in (("cpu", "cores"), ("memory", "memory_bytes")):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, str(getattr(self, name)))  # YAML reads `cpu: 4` as a number
                with about(self, name):
                    getattr(self, number)
        check_accelerator(self)
        at_least(self, 0, "retries")

    @functools.cached_property
    def cores(self) -> float | None:
        """`cpu` as a number."""
        return None if self.cpu is None else quantity(self.cpu, "cpu")

    @functools.cached_property
    def memory_bytes(self) -> float | None:
        """`memory` as a number."""
        return None if self.memory is None else quantity(self.memory, "memory")

    def over(self, default: Resources) -> Resources:
        """These, with what they leave open taken from `default`; an accelerator and its number stay together."""
        mine = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if getattr(self, f.name) is not None}
        if self.accelerator is not None:
            mine["accelerators"] = self.accelerators
        return dataclasses.replace(default, **mine)


@dataclass(frozen=True)
class Deploy:
    """How and where a compiled pipeline runs.

    Attributes:
      image: container image of every step. Its working directory holds the project's own files, so that `model.py` of a
        config is found there by that name; `infeed build` makes such an image.
      root: folder of everything the pipeline writes there, such as gs://bucket/taxi; the config's own root by default.
      data: where the data is there, in the same form as here; the config's own data by default.
      resources: of each node by its name; `default` is for all that say nothing else.
      vertex: what Vertex AI needs to know.
    """

    image: str | None = None
    root: str | None = None
    data: str | None = None
    resources: Mapping[str, Resources] = field(default_factory=dict)
    vertex: VertexOptions | None = None

    def on(self, target: str) -> VertexOptions | None:
        """The options of Vertex AI where that is the target."""
        return self.vertex if target == "vertex" else None

    def resources_of(self, node: str) -> Resources:
        """What the node of that name gets, the entry `default` underneath."""
        return self.resources.get(node, Resources()).over(self.resources.get(DEFAULT, Resources()))


def quantity(text: str, name: str) -> float:
    """A Kubernetes quantity as a number: cores, or bytes.

    Raises:
      InfeedError: it is not one.
    """
    match = _QUANTITY.fullmatch(text)
    if not match:
        raise InfeedError(
            f"{name} is {text!r}",
            where="deploy.resources",
            do="write it as Kubernetes does, such as 4 or 500m for cpu, 16Gi or 500M for memory",
        )
    return float(match[1]) * _UNITS[match[2]]
