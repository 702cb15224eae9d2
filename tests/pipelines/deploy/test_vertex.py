"""Compared field by field with the protos of Vertex AI's own client, which refuse a field that they do not know."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.deploy import vertex
from infeed.pipelines.deploy.vertex import Endpoint, Training, VertexOptions

OPTIONS = VertexOptions("taxi", "europe-west4")
IMAGE = "registry.example/taxi:1"

slow = pytest.mark.slow  # imports Vertex AI's client


def spec(training: Training, options: VertexOptions = OPTIONS) -> Any:
    from google.cloud.aiplatform_v1.types import CustomJobSpec

    return CustomJobSpec(vertex.job_spec(options, training, image=IMAGE))


@slow
def test_one_machine_is_one_pool() -> None:
    from google.cloud.aiplatform_v1.types import AcceleratorType

    (pool,) = spec(Training("n1-standard-8", "NVIDIA_TESLA_T4", disk_gb=200)).worker_pool_specs
    assert pool.replica_count == 1
    assert pool.machine_spec.machine_type == "n1-standard-8"
    assert pool.machine_spec.accelerator_type == AcceleratorType.NVIDIA_TESLA_T4
    assert pool.machine_spec.accelerator_count == 1
    assert pool.machine_spec.tpu_topology == ""
    assert pool.disk_spec.boot_disk_type == "pd-ssd"
    assert pool.disk_spec.boot_disk_size_gb == 200
    assert pool.container_spec.image_uri == IMAGE


@slow
def test_several_machines_are_a_chief_and_a_pool_of_workers_like_it() -> None:
    chief, workers = spec(Training("a2-highgpu-8g", "NVIDIA_TESLA_A100", 8, replicas=4)).worker_pool_specs
    assert (chief.replica_count, workers.replica_count) == (1, 3)
    assert chief.machine_spec == workers.machine_spec
    assert workers.machine_spec.accelerator_count == 8
    assert workers.container_spec == chief.container_spec


@slow
def test_a_tpu_slice_is_told_by_machine_and_topology() -> None:
    (pool,) = spec(Training("ct5lp-hightpu-8t", machine_spec={"tpu_topology": "2x4"})).worker_pool_specs
    assert pool.machine_spec.machine_type == "ct5lp-hightpu-8t"
    assert pool.machine_spec.tpu_topology == "2x4"
    assert pool.machine_spec.accelerator_count == 0


@slow
def test_an_older_tpu_is_told_by_its_kind() -> None:
    from google.cloud.aiplatform_v1.types import AcceleratorType

    (pool,) = spec(Training("cloud-tpu", "TPU_V3", 8)).worker_pool_specs
    assert pool.machine_spec.accelerator_type == AcceleratorType.TPU_V3
    assert pool.machine_spec.accelerator_count == 8


@slow
def test_what_is_not_said_is_left_to_vertex_ai() -> None:
    given = spec(Training("n1-standard-8"))
    assert (given.service_account, given.network, "scheduling" in given) == ("", "", False)


@slow
def test_spot_machines_a_time_limit_an_account_and_a_network() -> None:
    from google.cloud.aiplatform_v1.types import Scheduling

    options = VertexOptions("taxi", "europe-west4", service_account="a@b", network="projects/1/global/networks/n")
    given = spec(Training("n1-standard-8", spot=True, timeout_hours=1.5), options)
    assert given.scheduling.strategy == Scheduling.Strategy.SPOT
    assert given.scheduling.timeout.total_seconds() == 5400
    assert given.service_account == "a@b"
    assert given.network == "projects/1/global/networks/n"


@slow
def test_machines_that_train_together_start_anew_together() -> None:
    assert spec(Training("n1-standard-8", replicas=2)).scheduling.restart_job_on_worker_restart
    assert not spec(Training("n1-standard-8", spot=True)).scheduling.restart_job_on_worker_restart


KEY = "projects/p/locations/r/keyRings/k/cryptoKeys/c"


@slow
def test_the_job_around_it_is_a_custom_job() -> None:
    from google.cloud.aiplatform_v1.types import CustomJob

    options = VertexOptions("taxi", "europe-west4", labels={"team": "rides"}, kms_key=KEY)
    given = vertex.custom_job(options, Training("n1-standard-8"), name="taxi-trainer", image=IMAGE)
    assert (given.pop("project"), given.pop("region")) == ("taxi", "europe-west4")
    job = CustomJob(given)
    assert (job.display_name, job.labels, job.encryption_spec.kms_key_name) == ("taxi-trainer", {"team": "rides"}, KEY)


@pytest.mark.tfx
def test_tfx_hands_all_of_it_to_vertex_ais_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """TFX makes the CustomJob of its own arguments: what it does not take from them would be lost without a word."""
    from google.cloud.aiplatform_v1.types import CustomJob
    from tfx.extensions.google_cloud_ai_platform.training_clients import VertexJobClient

    monkeypatch.setattr(VertexJobClient, "create_client", lambda self: None)
    options = VertexOptions("taxi", "europe-west4", service_account="a@b", labels={"team": "rides"}, kms_key=KEY)
    given = vertex.custom_job(options, Training("n1-standard-8", spot=True), name="taxi-trainer", image=IMAGE)
    client = VertexJobClient(given.pop("region"))
    job = CustomJob(client.create_training_job({}, {}, {}, "package.Executor", given, None, {}))
    assert (job.display_name, job.labels["team"], job.encryption_spec.kms_key_name) == ("taxi-trainer", "rides", KEY)
    assert (job.job_spec.service_account, job.job_spec.scheduling.strategy.name) == ("a@b", "SPOT")
    assert "package.Executor" in job.job_spec.worker_pool_specs[0].container_spec.command


@slow
def test_the_run_itself_has_the_same_account_network_labels_and_key() -> None:
    from google.cloud.aiplatform_v1.types import PipelineJob

    options = VertexOptions(
        "taxi", "europe-west4", service_account="a@b", network="n", labels={"team": "rides"}, kms_key=KEY
    )
    job = PipelineJob.from_json(json.dumps(vertex.pipeline_job(options)))
    assert (job.service_account, job.network, job.labels) == ("a@b", "n", {"team": "rides"})
    assert job.encryption_spec.kms_key_name == KEY
    assert vertex.pipeline_job(OPTIONS) == {}


@slow
def test_the_endpoints_arguments_are_those_of_model_deploy() -> None:
    from google.cloud import aiplatform

    endpoint = Endpoint("taxi", "n1-standard-4", "serving:1", "NVIDIA_TESLA_T4", 2, 1, 3, traffic=10)
    options = VertexOptions("taxi", "europe-west4", service_account="a@b", labels={"team": "rides"})
    given = vertex.serving_args(options, endpoint)
    of_endpoint = [given.pop(name) for name in ("project", "endpoint_name", "labels")]  # TFX takes these out
    assert of_endpoint == ["taxi", "taxi", {"team": "rides"}]
    bound = inspect.signature(aiplatform.Model.deploy).bind(None, endpoint=None, **given)
    assert bound.arguments | {"self": None, "endpoint": None} == {
        "self": None,
        "endpoint": None,
        "machine_type": "n1-standard-4",
        "accelerator_type": "NVIDIA_TESLA_T4",
        "accelerator_count": 2,
        "min_replica_count": 1,
        "max_replica_count": 3,
        "traffic_percentage": 10,
        "service_account": "a@b",
    }


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (Training, {"machine": "n1", "disk_gb": 0}, "disk_gb is 0"),
        (Training, {"machine": "n1", "timeout_hours": 0}, "timeout_hours is 0"),
        (Training, {"machine": "n1", "accelerators": 2}, "accelerators is 2"),
        (Training, {"machine": "n1", "accelerator": "NVIDIA_L4", "accelerators": 0}, "accelerators is 0"),
        (Training, {"machine": "ct5lp-hightpu-4t", "replicas": 2}, "replicas is 2(.|\n)*chips of one machine"),
        (
            Training,
            {"machine": "m", "machine_spec": {"tpu_topology": "2x4"}, "replicas": 2},
            "replicas is 2(.|\n)*chips of one machine",
        ),
        (Training, {"machine": "m", "machine_spec": {"tpu_topology": "2by2"}}, "2by2(.|\n)*such as 2x4"),
        (
            Training,
            {"machine": "ct5lp-hightpu-4t", "machine_spec": {"tpu_topology": "2x4"}},
            "2x4 is a slice of 8 chips.* has 4",
        ),
        (Endpoint, {"name": "e", "machine": "n1", "image": "i", "min_replicas": 3}, "replicas"),
        (VertexOptions, {"project": "p", "region": "r", "labels": {"Team": "a"}}, "labels is 'Team'"),
        (VertexOptions, {"project": "p", "region": "r", "kms_key": "mine"}, "kms_key is 'mine'(.|\n)*projects/PROJECT"),
    ],
)
def test_a_wrong_option_is_an_error(kind: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        kind(**given)


@pytest.mark.parametrize(
    ("training", "is_tpu"),
    [
        (Training("ct5lp-hightpu-8t", machine_spec={"tpu_topology": "2x4"}), True),
        (Training("ct5lp-hightpu-1t"), True),
        (Training("cloud-tpu", "TPU_V3", 8), True),
        (Training("n1-standard-8", "NVIDIA_TESLA_T4"), False),
    ],
)
def test_a_tpu_is_told_by_its_machine_or_by_its_kind(training: Training, is_tpu: bool) -> None:
    assert training.is_tpu is is_tpu
