"""What Vertex AI is told: where, on what machines training runs, what serves the model, and what runs Beam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from infeed.components.errors import InfeedError
from infeed.pipelines.settings import read_settings


@dataclass(frozen=True)
class Training:
    """The machines of a custom job that trains; they are all alike, the first is the chief.

    Attributes:
      machine: Compute Engine's name of the machine, such as n1-standard-8 or ct5lp-hightpu-8t.
      accelerator: Vertex AI's name of the GPU, such as NVIDIA_TESLA_T4; a TPU is told by its machine alone, except
        TPU_V2 and TPU_V3 of the machine cloud-tpu.
      accelerators: of each machine; 1 where a kind is named.
      tpu_topology: chips of a TPU slice, such as 2x4; all of them on one machine.
      replicas: machines.
      disk_gb: size of the boot disk, in GB.
      spot: cheaper machines that may be taken away; training resumes from its checkpoints.
      timeout_hours: stops a job that runs for longer.
    """

    machine: str
    accelerator: str | None = None
    accelerators: int | None = None
    tpu_topology: str | None = None
    replicas: int = 1
    disk_gb: int = 100
    spot: bool = False
    timeout_hours: float | None = None

    def __post_init__(self) -> None:
        check_accelerator(self.accelerator, self.accelerators, "deploy.vertex.training")
        for name in ("replicas", "disk_gb"):
            if getattr(self, name) < 1:
                raise _invalid(f"training.{name}", getattr(self, name), "Use a whole number of at least 1.")
        if self.timeout_hours is not None and not self.timeout_hours > 0:
            raise _invalid("training.timeout_hours", self.timeout_hours, "Use a number above 0.")
        if self.is_tpu and self.replicas > 1:
            raise _invalid(
                "training.replicas", self.replicas, "The strategy tpu uses the chips of one machine; take a larger one."
            )

    @property
    def is_tpu(self) -> bool:
        """Whether these are TPU VMs."""
        return self.tpu_topology is not None or (self.accelerator or "").startswith("TPU_")


@dataclass(frozen=True)
class Endpoint:
    """What a blessed model is deployed to.

    Attributes:
      name: display name of the endpoint; it is made where there is none.
      machine: of the replicas that serve.
      image: serving container, such as us-docker.pkg.dev/vertex-ai/prediction/tf2-cpu.2-15:latest.
      accelerator, accelerators: as of `Training`.
      min_replicas, max_replicas: between which Vertex AI scales.
      traffic: percent of the requests that the new model gets.
    """

    name: str
    machine: str
    image: str
    accelerator: str | None = None
    accelerators: int | None = None
    min_replicas: int = 1
    max_replicas: int = 1
    traffic: int = 100

    def __post_init__(self) -> None:
        check_accelerator(self.accelerator, self.accelerators, "deploy.vertex.endpoint")
        if not 1 <= self.min_replicas <= self.max_replicas:
            replicas = (self.min_replicas, self.max_replicas)
            raise _invalid("endpoint.min_replicas, max_replicas", replicas, "Use 1 or more, the smaller one first.")
        if not 0 <= self.traffic <= 100:
            raise _invalid("endpoint.traffic", self.traffic, "Use a percentage.")


@dataclass(frozen=True)
class Dataflow:
    """Runs the Beam nodes on Dataflow instead of in their own step.

    Attributes:
      machine: of the workers; Dataflow's choice by default.
      max_workers: most workers.
      subnetwork: of the workers, as a full URL.
    """

    machine: str | None = None
    max_workers: int | None = None
    subnetwork: str | None = None

    def __post_init__(self) -> None:
        if self.max_workers is not None and self.max_workers < 1:
            raise _invalid("dataflow.max_workers", self.max_workers, "Use a whole number of at least 1.")


@dataclass(frozen=True)
class VertexOptions:
    """Vertex AI.

    Attributes:
      project: of Google Cloud, by its id.
      region: such as europe-west4.
      temp: folder for the temporary files of Dataflow, gs://...; `tmp` under the pipeline's root by default.
      service_account: that jobs run as; the project's default one otherwise.
      network: full name of the VPC network that training joins.
      training: trains in a custom job; None trains in the pipeline's own step.
      endpoint: deploys a blessed model there instead of copying it to a folder.
      dataflow: runs the Beam nodes there.
    """

    project: str
    region: str
    temp: str | None = None
    service_account: str | None = None
    network: str | None = None
    training: Training | None = None
    endpoint: Endpoint | None = None
    dataflow: Dataflow | None = None

    @classmethod
    def from_dict(cls, given: Any, where: str) -> VertexOptions:
        """From plain data, as YAML gives it; `where` names the setting in errors.

        Raises:
          InfeedError: a setting that does not exist or is missing, or a value that is out of range.
        """
        nested = {
            name: lambda value, path, kind=kind: read_settings(kind, value, path)
            for name, kind in (("training", Training), ("endpoint", Endpoint), ("dataflow", Dataflow))
        }
        return read_settings(cls, given, where, nested)


def check_accelerator(kind: str | None, count: int | None, where: str) -> None:
    """Raises InfeedError unless a number stands beside a kind, and is one."""
    if count is not None and kind is None:
        raise InfeedError(f"accelerators is {count}, and no accelerator is named", where=where, do="Say which kind.")
    if count is not None and count < 1:
        raise InfeedError(f"accelerators is {count}", where=where, do="Use 1 or more, or name no accelerator.")


def _invalid(name: str, value: object, do: str) -> InfeedError:
    return InfeedError(f"{name.rpartition('.')[2]} is {value!r}", where=f"deploy.vertex.{name}", do=do)
