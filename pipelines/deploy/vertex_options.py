"""What Vertex AI is told: where, on what machines training runs, what serves the model, and what runs Beam."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from infeed.components.errors import InfeedError

# https://cloud.google.com/resource-manager/docs/labels-overview
_LABEL = re.compile(r"[a-z0-9_-]{0,63}")
_KEY = re.compile(r"projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+")

# ct5lp-hightpu-8t has 8 chips; https://cloud.google.com/vertex-ai/docs/training/training-with-tpu-vm
_CHIPS = re.compile(r"-hightpu-(\d+)t$")


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
      parameter_servers: machines beside these that hold the weights, for the strategy parameter_server.
      parameter_server_machine: Compute Engine's name of such a machine; it needs memory, and no accelerator.
      disk_gb: size of the boot disk, in GB.
      spot: cheaper machines that may be taken away; training resumes from its checkpoints.
      timeout_hours: stops a job that runs for longer.
    """

    machine: str
    accelerator: str | None = None
    accelerators: int | None = None
    tpu_topology: str | None = None
    replicas: int = 1
    parameter_servers: int = 0
    parameter_server_machine: str = "n1-highmem-8"
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
        if self.parameter_servers < 0:
            raise _invalid("training.parameter_servers", self.parameter_servers, "Use 0 or more.")
        if self.parameter_servers and self.replicas < 2:
            raise _invalid("training.replicas", self.replicas, "Use 2 or more: the chief itself does not train.")
        if self.is_tpu and self.replicas > 1:
            raise _invalid(
                "training.replicas", self.replicas, "The strategy tpu uses the chips of one machine; take a larger one."
            )
        if self.tpu_topology is not None:
            self._check_topology(self.tpu_topology)

    def _check_topology(self, topology: str) -> None:
        """A slice of several machines is one job for JAX; TensorFlow would use the chips of the first machine alone."""
        if not re.fullmatch(r"\d+x\d+(x\d+)?", topology):
            raise _invalid("training.tpu_topology", topology, "Write it as Google does, such as 2x4 or 2x2x1.")
        chips, here = math.prod(map(int, topology.split("x"))), _CHIPS.search(self.machine)
        if here and chips != int(here[1]):
            what = f"{topology} is a slice of {chips} chips, and {self.machine} has {here[1]}"
            do = "Name a slice and a machine of the same size: the strategy tpu uses the chips of one machine."
            raise InfeedError(what, where="deploy.vertex.training.tpu_topology", do=do)

    @property
    def is_tpu(self) -> bool:
        """Whether these are TPU VMs."""
        kind = (self.accelerator or "").startswith("TPU_")
        return kind or self.tpu_topology is not None or bool(_CHIPS.search(self.machine))


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
      public_ips: whether the workers have addresses that the internet reaches.
    """

    machine: str | None = None
    max_workers: int | None = None
    subnetwork: str | None = None
    public_ips: bool = True

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
      service_account: that the steps and the jobs that they start run as; the project's default one otherwise.
      network: full name of the VPC network that the steps and training join.
      labels: of the run and of every job, to find what it cost by.
      kms_key: full name of the key that encrypts what Vertex AI and Dataflow keep of them, instead of Google's own.
      training: trains in a custom job; None trains in the pipeline's own step.
      endpoint: deploys a blessed model there instead of copying it to a folder.
      dataflow: runs the Beam nodes there.
    """

    project: str
    region: str
    temp: str | None = None
    service_account: str | None = None
    network: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    kms_key: str | None = None
    training: Training | None = None
    endpoint: Endpoint | None = None
    dataflow: Dataflow | None = None

    def __post_init__(self) -> None:
        for text in (word for label in self.labels.items() for word in label):
            if not _LABEL.fullmatch(text):
                raise _invalid("labels", text, "Use up to 63 lower case letters, digits, dashes and underscores.")
        if self.kms_key and not _KEY.fullmatch(self.kms_key):
            name = "projects/PROJECT/locations/REGION/keyRings/RING/cryptoKeys/KEY"
            raise _invalid("kms_key", self.kms_key, f"Give its full name: {name}.")
        if self.kms_key and self.endpoint:
            what = "TFX's Pusher uploads a model, and makes an endpoint, without the key of kms_key"
            raise InfeedError(what, where="deploy.vertex.endpoint", do="Leave out one of the two.")


def check_accelerator(kind: str | None, count: int | None, where: str) -> None:
    """Raises InfeedError unless a number stands beside a kind, and is one."""
    if count is not None and kind is None:
        raise InfeedError(f"accelerators is {count}, and no accelerator is named", where=where, do="Say which kind.")
    if count is not None and count < 1:
        raise InfeedError(f"accelerators is {count}", where=where, do="Use 1 or more, or name no accelerator.")


def _invalid(name: str, value: object, do: str) -> InfeedError:
    return InfeedError(f"{name.rpartition('.')[2]} is {value!r}", where=f"deploy.vertex.{name}", do=do)
