"""The options of Vertex AI: where, on what machines training runs, what serves the model, and what runs Beam.

Plain functions below make of them what its clients take.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infeed.components.checks import at_least, refused, require

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
      accelerator: Vertex AI's name of the GPU, such as NVIDIA_TESLA_T4; its machine alone says that it has TPUs, except
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
        check_accelerator(self)
        at_least(self, 1, "replicas", "disk_gb")
        at_least(self, 0, "parameter_servers")
        if self.timeout_hours is not None:
            require(self.timeout_hours > 0, self, "timeout_hours", "use a number above 0")
        if self.parameter_servers:
            require(self.replicas > 1, self, "replicas", "use 2 or more: the chief itself does not train")
        if self.is_tpu:
            do = "the strategy tpu uses the chips of one machine; take a larger one"
            require(self.replicas == 1, self, "replicas", do)
        if self.tpu_topology is not None:
            self._check_topology(self.tpu_topology)

    def _check_topology(self, topology: str) -> None:
        """A slice of several machines is one job for JAX; TensorFlow would use the chips of the first machine alone."""
        is_written_so = re.fullmatch(r"\d+x\d+(x\d+)?", topology)
        require(is_written_so, self, "tpu_topology", "write it as Google does, such as 2x4 or 2x2x1")
        chips, here = math.prod(map(int, topology.split("x"))), _CHIPS.search(self.machine)
        if here and chips != int(here[1]):
            what = f"{topology} is a slice of {chips} chips, and {self.machine} has {here[1]}"
            do = "name a slice and a machine of the same size: the strategy tpu uses the chips of one machine"
            raise refused(self, "tpu_topology", do, what)

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
        check_accelerator(self)
        at_least(self, 1, "min_replicas")
        at_least(self, self.min_replicas, "max_replicas")
        require(0 <= self.traffic <= 100, self, "traffic", "use a percentage")


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
        at_least(self, 1, "max_workers")


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
                do = "use up to 63 lower case letters, digits, dashes and underscores"
                raise refused(self, "labels", do, f"labels is {text!r}")
        if self.kms_key:
            name = "projects/PROJECT/locations/REGION/keyRings/RING/cryptoKeys/KEY"
            require(_KEY.fullmatch(self.kms_key), self, "kms_key", f"give its full name: {name}")
        if self.kms_key and self.endpoint:
            what = "TFX's Pusher uploads a model, and makes an endpoint, without the key of kms_key"
            raise refused(self, "endpoint", "leave out one of the two", what)


def check_accelerator(machine: Any) -> None:
    """Raises OptionError unless a number of accelerators stands beside their kind, and is one."""
    if machine.accelerators is not None and machine.accelerator is None:
        what = f"accelerators is {machine.accelerators}, and no accelerator is named"
        raise refused(machine, "accelerators", "say which kind", what)
    at_least(machine, 1, "accelerators")


def custom_job(options: VertexOptions, training: Training, *, name: str, image: str) -> dict[str, Any]:
    """What `Trainer(custom_job=...)` takes: a CustomJob, with the project and region it runs in.

    Args:
      options: project, region, account, network, labels and key.
      training: its machines.
      name: display name of the job.
      image: container that every machine runs.
    """
    return {
        "project": options.project,
        "region": options.region,
        "display_name": name,
        "job_spec": job_spec(options, training, image=image),
        **_given(labels=dict(options.labels), encryption_spec=options.kms_key and {"kms_key_name": options.kms_key}),
    }


def pipeline_job(options: VertexOptions) -> dict[str, Any]:
    """What a PipelineJob says beside its spec; https://cloud.google.com/vertex-ai/docs/reference/rest/v1/PipelineJob."""
    return _given(
        labels=dict(options.labels),
        encryptionSpec=options.kms_key and {"kmsKeyName": options.kms_key},
        serviceAccount=options.service_account,
        network=options.network,
    )


def job_spec(options: VertexOptions, training: Training, *, image: str) -> dict[str, Any]:
    """The CustomJobSpec; https://cloud.google.com/vertex-ai/docs/reference/rest/v1/CustomJobSpec.

    One pool with the chief, one with the other machines that train, and one with the parameter servers: what the
    machines of a pool do, its place says, and the first pool of a job may hold one machine only.
    """
    chief = worker_pool(training, image=image, replicas=1)
    workers = [worker_pool(training, image=image, replicas=training.replicas - 1)] if training.replicas > 1 else []
    servers = Training(training.parameter_server_machine, disk_gb=training.disk_gb)
    if training.parameter_servers:
        workers.append(worker_pool(servers, image=image, replicas=training.parameter_servers))
    scheduling = _given(
        # No worker can join the others of MultiWorkerMirroredStrategy again: all start anew, from the checkpoint.
        restart_job_on_worker_restart=bool(workers),
        strategy="SPOT" if training.spot else None,
        timeout=training.timeout_hours and f"{training.timeout_hours * 3600:.0f}s",
    )
    return _given(
        worker_pool_specs=[chief, *workers],
        scheduling=scheduling,
        service_account=options.service_account,
        network=options.network,
    )


def worker_pool(training: Training, *, image: str, replicas: int) -> dict[str, Any]:
    """A WorkerPoolSpec. TFX puts the command of the Trainer's executor into `container_spec`."""
    return {
        "machine_spec": machine_spec(training),
        "replica_count": replicas,
        "disk_spec": {"boot_disk_type": "pd-ssd", "boot_disk_size_gb": training.disk_gb},
        "container_spec": {"image_uri": image},
    }


def machine_spec(training: Training) -> dict[str, Any]:
    """A MachineSpec: the machine, and what sits in it."""
    return {"machine_type": training.machine, **accelerator(training), **_given(tpu_topology=training.tpu_topology)}


def serving_args(options: VertexOptions, endpoint: Endpoint) -> dict[str, Any]:
    """What TFX's Pusher for Vertex AI takes: the arguments of `aiplatform.Model.deploy`, and those of the endpoint."""
    return {
        "project": options.project,
        "endpoint_name": endpoint.name,
        "machine_type": endpoint.machine,
        "min_replica_count": endpoint.min_replicas,
        "max_replica_count": endpoint.max_replicas,
        "traffic_percentage": endpoint.traffic,
        **accelerator(endpoint),
        **_given(service_account=options.service_account, labels=dict(options.labels)),
    }


def accelerator(machine: Training | Endpoint) -> dict[str, Any]:
    """Kind and number, under the names that both the proto and `Model.deploy` use; nothing where there is none."""
    if not machine.accelerator:
        return {}
    return {"accelerator_type": machine.accelerator, "accelerator_count": machine.accelerators or 1}


def dataflow_args(options: VertexOptions, dataflow: Dataflow, *, temp: str, image: str) -> list[str]:
    """Beam's options for Dataflow; https://cloud.google.com/dataflow/docs/reference/pipeline-options.

    Args:
      options: project, region, service account, labels and key.
      dataflow: its workers.
      temp: folder for temporary files, gs://...
      image: of the workers, the same as of the steps: with it Beam ships no source, and both sides agree on versions.
    """
    given = {
        "runner": "DataflowRunner",
        "project": options.project,
        "region": options.region,
        "temp_location": temp,
        "sdk_container_image": image,
        "service_account_email": options.service_account,
        "worker_machine_type": dataflow.machine,
        "max_num_workers": dataflow.max_workers,
        "subnetwork": dataflow.subnetwork,
        "dataflow_kms_key": options.kms_key,
    }
    return [
        *(f"--{name}={value}" for name, value in given.items() if value is not None),
        *([] if dataflow.public_ips else ["--no_use_public_ips"]),
        *(f"--labels={name}={value}" for name, value in options.labels.items()),
    ]


def _given(**fields: Any) -> dict[str, Any]:
    """The fields of a message that somebody has given; a proto leaves the others out."""
    return {name: value for name, value in fields.items() if value}
