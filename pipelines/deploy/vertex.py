"""What Vertex AI's clients are told, made from options by plain functions: the training job, the endpoint, Dataflow."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from infeed.components.errors import InfeedError
from infeed.pipelines.deploy.vertex_options import Dataflow, Endpoint, Training, VertexOptions


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
        **({"labels": dict(options.labels)} if options.labels else {}),
        **({"encryption_spec": {"kms_key_name": options.kms_key}} if options.kms_key else {}),
    }


def pipeline_job(options: VertexOptions) -> dict[str, Any]:
    """What a PipelineJob says beside its spec; https://cloud.google.com/vertex-ai/docs/reference/rest/v1/PipelineJob."""
    return {
        **({"labels": dict(options.labels)} if options.labels else {}),
        **({"encryptionSpec": {"kmsKeyName": options.kms_key}} if options.kms_key else {}),
        **({"serviceAccount": options.service_account} if options.service_account else {}),
        **({"network": options.network} if options.network else {}),
    }


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
    scheduling = {
        # No worker can join the others of MultiWorkerMirroredStrategy again: all start anew, from the checkpoint.
        **({"restart_job_on_worker_restart": True} if workers else {}),
        **({"strategy": "SPOT"} if training.spot else {}),
        **({"timeout": f"{training.timeout_hours * 3600:.0f}s"} if training.timeout_hours else {}),
    }
    return {
        "worker_pool_specs": [chief, *workers],
        **({"scheduling": scheduling} if scheduling else {}),
        **({"service_account": options.service_account} if options.service_account else {}),
        **({"network": options.network} if options.network else {}),
    }


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
    return {
        "machine_type": training.machine,
        **(accelerator(training) if training.accelerator else {}),
        **({"tpu_topology": training.tpu_topology} if training.tpu_topology else {}),
    }


def serving_args(options: VertexOptions, endpoint: Endpoint) -> dict[str, Any]:
    """What TFX's Pusher for Vertex AI takes: the arguments of `aiplatform.Model.deploy`, and those of the endpoint."""
    return {
        "project": options.project,
        "endpoint_name": endpoint.name,
        "machine_type": endpoint.machine,
        "min_replica_count": endpoint.min_replicas,
        "max_replica_count": endpoint.max_replicas,
        "traffic_percentage": endpoint.traffic,
        **(accelerator(endpoint) if endpoint.accelerator else {}),
        **({"service_account": options.service_account} if options.service_account else {}),
        **({"labels": dict(options.labels)} if options.labels else {}),
    }


def accelerator(machine: Training | Endpoint) -> dict[str, Any]:
    """Kind and number, under the names that both the proto and `Model.deploy` use."""
    return {"accelerator_type": machine.accelerator, "accelerator_count": machine.accelerators or 1}


def check_accelerators(names: Collection[str]) -> None:
    """Raises InfeedError for an accelerator that Vertex AI does not know, which its client would tell hours later."""
    if not names:
        return
    from google.cloud.aiplatform_v1.types import AcceleratorType  # takes a second, and only this needs it

    known = [kind.name for kind in AcceleratorType if kind.value]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InfeedError(
            f"Vertex AI knows no accelerator {unknown[0]!r}", where="deploy", do=f"Use one of {', '.join(known)}."
        )


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
