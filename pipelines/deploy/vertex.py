"""Options of Vertex AI, for the pipeline, training and serving, and their conversion to API messages."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infeed.components.base.checks import at_least, refused, require
from infeed.components.kubeflow.message import present

# https://cloud.google.com/resource-manager/docs/labels-overview
_LABEL = re.compile(r"[a-z0-9_-]{0,63}")
_KEY = re.compile(r"projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+")

# ct5lp-hightpu-8t has 8 chips; https://cloud.google.com/vertex-ai/docs/training/training-with-tpu-vm
_CHIPS = re.compile(r"-hightpu-(\d+)t$")


@dataclass(frozen=True)
class Training:
    """Identical machines of a custom training job. The first machine is the chief.

    Attributes:
      machine: Compute Engine machine type, such as n1-standard-8 or ct5lp-hightpu-8t.
      accelerator: Vertex AI's name of the GPU, such as NVIDIA_TESLA_T4. TPUs are part of the machine type, except
        TPU_V2 and TPU_V3 of the machine cloud-tpu.
      accelerators: accelerators per machine. Defaults to 1 if `accelerator` is set.
      machine_spec: further fields of Vertex AI's MachineSpec, as Vertex AI writes them, such as `tpu_topology: 2x4`.
        One machine must hold a whole TPU slice.
      replicas: number of machines.
      disk_gb: size of the boot disk in GB.
      spot: whether to use cheaper, preemptible machines. Training resumes from its checkpoints.
      timeout_hours: longest run time of the job in hours.
    """

    machine: str
    accelerator: str | None = None
    accelerators: int | None = None
    machine_spec: Mapping[str, Any] = field(default_factory=dict)
    replicas: int = 1
    disk_gb: int = 100
    spot: bool = False
    timeout_hours: float | None = None

    def __post_init__(self) -> None:
        check_accelerator(self)
        at_least(self, 1, "replicas", "disk_gb")
        if self.timeout_hours is not None:
            require(self.timeout_hours > 0, self, "timeout_hours", "use a number above 0")
        if self.is_tpu:
            do = "use one larger machine, because the strategy tpu uses the chips of one machine"
            require(self.replicas == 1, self, "replicas", do)
        if (topology := self.machine_spec.get("tpu_topology")) is None:
            return
        is_topology = re.fullmatch(r"\d+x\d+(x\d+)?", str(topology))
        require(is_topology, self, "machine_spec", "use a tpu_topology such as 2x4 or 2x2x1")
        chips, here = math.prod(map(int, topology.split("x"))), _CHIPS.search(self.machine)
        if here and chips != int(here[1]):  # TensorFlow would use only the first machine of a larger slice
            what = f"{topology} is a slice of {chips} chips, and {self.machine} has {here[1]}"
            do = "use a slice and a machine of the same size: the strategy tpu uses the chips of one machine"
            raise refused(self, "machine_spec", do, what)

    @property
    def is_tpu(self) -> bool:
        """Whether the machines are TPU VMs."""
        kind = (self.accelerator or "").startswith("TPU_")
        return kind or "tpu_topology" in self.machine_spec or bool(_CHIPS.search(self.machine))


@dataclass(frozen=True)
class Endpoint:
    """Endpoint that serves a blessed model.

    Attributes:
      name: display name of the endpoint. The Pusher creates the endpoint if it does not exist.
      machine: machine type of the serving replicas.
      image: serving container, such as us-docker.pkg.dev/vertex-ai/prediction/tf2-cpu.2-15:latest.
      accelerator, accelerators: accelerators per replica, as in `Training`.
      min_replicas, max_replicas: limits of autoscaling.
      traffic: percentage of the requests that go to the new model.
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
        check_accelerator(self)
        at_least(self, 1, "min_replicas")
        at_least(self, self.min_replicas, "max_replicas")
        require(0 <= self.traffic <= 100, self, "traffic", "use a percentage")


@dataclass(frozen=True)
class VertexOptions:
    """Options of Vertex AI.

    Attributes:
      project: Google Cloud project id.
      region: region, such as europe-west4.
      service_account: service account of the steps and their jobs. Defaults to the project's default account.
      network: full name of the VPC network of the steps and training.
      labels: labels of the run and of every job, for billing reports.
      kms_key: full name of the key that encrypts data at rest. Defaults to Google's key.
      training: machines of a custom training job. None trains in the pipeline's step.
      endpoint: endpoint that serves a blessed model. None copies the model to a folder.
    """

    project: str
    region: str
    service_account: str | None = None
    network: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    kms_key: str | None = None
    training: Training | None = None
    endpoint: Endpoint | None = None

    def __post_init__(self) -> None:
        check_cloud_names(self)
        if self.kms_key and self.endpoint:
            what = "endpoint and kms_key are both set, but TFX's Pusher does not use the key"
            raise refused(self, "endpoint", "leave out endpoint or kms_key", what)


def check_cloud_names(options: Any) -> None:
    """Raise OptionError if Google Cloud would reject `labels` or `kms_key`."""
    for text in (word for label in options.labels.items() for word in label):
        if not _LABEL.fullmatch(text):
            do = "use up to 63 lower-case letters, digits, dashes and underscores"
            raise refused(options, "labels", do, f"labels is {text!r}")
    if options.kms_key:
        name = "projects/PROJECT/locations/REGION/keyRings/RING/cryptoKeys/KEY"
        require(_KEY.fullmatch(options.kms_key), options, "kms_key", f"use the full name: {name}")


def check_accelerator(machine: Any) -> None:
    """Raise OptionError if `accelerators` is below 1, or set without `accelerator`."""
    if machine.accelerators is not None and machine.accelerator is None:
        what = f"accelerators is {machine.accelerators}, but accelerator is not set"
        raise refused(machine, "accelerators", "set accelerator to a type", what)
    at_least(machine, 1, "accelerators")


def custom_job(options: VertexOptions, training: Training, *, name: str, image: str) -> dict[str, Any]:
    """Return the CustomJob for `Trainer(custom_job=...)`, with its project and region."""
    job = {
        "project": options.project,
        "region": options.region,
        "display_name": name,
        "job_spec": job_spec(options, training, image=image),
        "labels": dict(options.labels),
        "encryption_spec": options.kms_key and {"kms_key_name": options.kms_key},
    }
    return present(job)


def pipeline_job(options: VertexOptions) -> dict[str, Any]:
    """Return the fields of a PipelineJob except its spec.

    https://cloud.google.com/vertex-ai/docs/reference/rest/v1/PipelineJob
    """
    found = {"labels": dict(options.labels), "serviceAccount": options.service_account, "network": options.network}
    return present({**found, "encryptionSpec": options.kms_key and {"kmsKeyName": options.kms_key}})


def job_spec(options: VertexOptions, training: Training, *, image: str) -> dict[str, Any]:
    """Return the CustomJobSpec, https://cloud.google.com/vertex-ai/docs/reference/rest/v1/CustomJobSpec.

    The first pool is the chief and must have one machine. The second pool has the other workers.
    """
    chief = worker_pool(training, image=image, replicas=1)
    workers = [worker_pool(training, image=image, replicas=training.replicas - 1)] if training.replicas > 1 else []
    scheduling = {
        # A worker cannot rejoin MultiWorkerMirroredStrategy, so all workers restart from the checkpoint.
        "restart_job_on_worker_restart": bool(workers),
        "strategy": "SPOT" if training.spot else None,
        "timeout": training.timeout_hours and f"{training.timeout_hours * 3600:.0f}s",
    }
    account = {"service_account": options.service_account, "network": options.network}
    return present({"worker_pool_specs": [chief, *workers], "scheduling": present(scheduling), **account})


def worker_pool(training: Training, *, image: str, replicas: int) -> dict[str, Any]:
    """Return a WorkerPoolSpec. TFX adds the command of the Trainer's executor to `container_spec`."""
    return {
        "machine_spec": {
            "machine_type": training.machine,
            **accelerator(training),
            **training.machine_spec,
        },
        "replica_count": replicas,
        "disk_spec": {"boot_disk_type": "pd-ssd", "boot_disk_size_gb": training.disk_gb},
        "container_spec": {"image_uri": image},
    }


def serving_args(options: VertexOptions, endpoint: Endpoint) -> dict[str, Any]:
    """Return the options of TFX's Pusher for Vertex AI: the endpoint, and arguments of `aiplatform.Model.deploy`."""
    return {
        "project": options.project,
        "endpoint_name": endpoint.name,
        "machine_type": endpoint.machine,
        "min_replica_count": endpoint.min_replicas,
        "max_replica_count": endpoint.max_replicas,
        "traffic_percentage": endpoint.traffic,
        **accelerator(endpoint),
        **present({"service_account": options.service_account, "labels": dict(options.labels)}),
    }


def accelerator(machine: Training | Endpoint) -> dict[str, Any]:
    """Return type and count of the accelerator, by the names of the proto and of `Model.deploy`. Empty without one."""
    if not machine.accelerator:
        return {}
    return {"accelerator_type": machine.accelerator, "accelerator_count": machine.accelerators or 1}
