"""Options are read back by Beam's own parser."""

from __future__ import annotations

from typing import Any

import pytest

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.pipelines.deploy.beam import Beam, Dataflow, Flink, Spark, check_places
from infeed.pipelines.deploy.vertex import VertexOptions

IMAGE, ROOT = "registry.example/taxi:1", "gs://bucket/taxi"
KEY = "projects/p/locations/l/keyRings/r/cryptoKeys/k"


def options(beam: Beam, vertex: VertexOptions | None = None) -> list[str]:
    return [option for option, _ in beam.flags(image=IMAGE, root=ROOT, vertex=vertex)]


def test_nothing_named_is_no_option() -> None:
    assert (options(Beam()), Beam().runner) == ([], "")
    assert options(Beam(options=("--direct_num_workers=2",))) == ["--direct_num_workers=2"]


def test_a_timeout_of_workers_is_checked_with_the_options() -> None:
    assert options(Beam(options=("--worker_timeout=600",))) == ["--worker_timeout=600"]
    with pytest.raises(InfeedError, match="--worker_timeout is ten"):
        Beam(options=("--worker_timeout=ten",))


def test_dataflow_takes_project_and_region_from_vertex_ai() -> None:
    assert options(Beam(Dataflow()), VertexOptions("taxi", "europe-west4", labels={"team": "rides"})) == [
        "--runner=DataflowRunner",
        "--project=taxi",
        "--region=europe-west4",
        "--temp_location=gs://bucket/taxi/tmp",
        "--labels=team=rides",
        "--sdk_container_image=registry.example/taxi:1",
    ]
    mine = options(Beam(Dataflow(region="us-east1")), VertexOptions("taxi", "europe-west4"))
    assert "--region=us-east1" in mine


@pytest.mark.parametrize("name", ["project", "region"])
def test_dataflow_on_kubeflow_needs_both(name: str) -> None:
    given = Dataflow(project="p") if name == "region" else Dataflow(region="r")
    with pytest.raises(InfeedError, match=name) as error:
        options(Beam(given))
    assert error.value.where == f"deploy.beam.dataflow.{name}"


@pytest.mark.tfx
def test_beam_knows_every_option_of_dataflow() -> None:
    from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, WorkerOptions

    subnetwork = "https://www.googleapis.com/compute/v1/projects/p/regions/r/subnetworks/s"
    own = Dataflow("taxi", "r", "gs://b/t", "a@b", "n1-standard-4", 20, "net", subnetwork, False, {"team": "x"}, KEY)
    read = PipelineOptions(options(Beam(own)))
    cloud, workers = read.view_as(GoogleCloudOptions), read.view_as(WorkerOptions)
    assert (cloud.project, cloud.region, cloud.temp_location) == ("taxi", "r", "gs://b/t")
    assert (cloud.service_account_email, cloud.labels, cloud.dataflow_kms_key) == ("a@b", ["team=x"], KEY)
    assert (workers.machine_type, workers.max_num_workers, workers.network) == ("n1-standard-4", 20, "net")
    assert (workers.subnetwork, workers.use_public_ips, workers.sdk_container_image) == (subnetwork, False, IMAGE)
    assert read.get_all_options()["runner"] == "DataflowRunner"


@pytest.mark.tfx
@pytest.mark.parametrize(
    ("beam", "expected"),
    [
        (Beam(flink=Flink("jobs:8099", parallelism=8)), {"job_endpoint": "jobs:8099", "parallelism": 8}),
        (
            Beam(flink=Flink(master="http://flink:8081")),
            {"flink_master": "http://flink:8081", "flink_submit_uber_jar": True},
        ),
        (Beam(spark=Spark("jobs:8099", worker_pool="pool:5")), {"environment_config": "pool:5"}),
        (
            Beam(spark=Spark(master="http://spark:6066")),
            {"spark_rest_url": "http://spark:6066", "spark_submit_uber_jar": True},
        ),
    ],
)
def test_beam_knows_every_option_of_flink_and_spark(beam: Beam, expected: dict[str, Any]) -> None:
    from apache_beam.options.pipeline_options import PipelineOptions

    read = PipelineOptions(options(beam)).get_all_options()
    shared = {"environment_type": "EXTERNAL", "sdk_container_image": IMAGE, "environment_config": "localhost:50000"}
    wanted = {"runner": f"{beam.runner.title()}Runner", **shared, **expected}
    assert {name: read[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("given", "where", "value"),
    [
        ({"flink": {}}, "deploy.beam.flink.job_endpoint", "neither"),
        ({"spark": {"job_endpoint": "a:1", "master": "b"}}, "deploy.beam.spark.job_endpoint", "both"),
        ({"spark": {"job_endpoint": "a:1", "parallelism": 2}}, "deploy.beam.spark", "parallelism"),
        ({"flink": {"job_endpoint": "http://a:1"}}, "deploy.beam.flink.job_endpoint", "http://a:1"),
        ({"flink": {"job_endpoint": "a:1", "worker_pool": "a"}}, "deploy.beam.flink.worker_pool", "'a'"),
        ({"flink": {"job_endpoint": "a:1", "parallelism": 0}}, "deploy.beam.flink.parallelism", "0"),
        ({"dataflow": {}, "flink": {"job_endpoint": "a:1"}}, "deploy.beam.flink", "dataflow and flink"),
        ({"dataflow": {"temp": "s3://b/tmp"}}, "deploy.beam.dataflow.temp", "s3://b/tmp"),
        ({"dataflow": {"max_workers": 0}}, "deploy.beam.dataflow.max_workers", "0"),
        ({"dataflow": {"labels": {"Team": "a"}}}, "deploy.beam.dataflow.labels", "'Team'"),
        ({"dask": {}}, "deploy.beam", "dask"),
        ({"options": ["--runner=FlinkRunner"]}, "deploy.beam.options", "FlinkRunner"),
        ({"options": ["parallelism=2"]}, "deploy.beam.options", "parallelism=2"),
    ],
)
def test_what_cannot_work_is_refused_by_name(given: dict[str, Any], where: str, value: str) -> None:
    with pytest.raises(InfeedError, match=value) as error:
        schema.read(Beam, given, "deploy.beam")
    assert error.value.where == where


@pytest.mark.parametrize(
    ("runner", "root", "data", "where"),
    [
        ("FlinkRunner", "s3://b/taxi", "gs://b/data", "deploy.root"),
        ("SparkRunner", "minio://b/taxi", "gs://b/data", "deploy.root"),
        ("FlinkRunner", "/home/me/taxi", "gs://b/data", "deploy.root"),
        ("DataflowRunner", "/gcs/b/taxi", "gs://b/data", "deploy.root"),
        ("DataflowRunner", "gs://b/taxi", "s3://b/data", "deploy.data"),
        ("DataflowRunner", "gs://b/taxi", "data.csv", "deploy.data"),
    ],
)
def test_places_that_workers_do_not_see_are_refused(runner: str, root: str, data: str, where: str) -> None:
    with pytest.raises(InfeedError, match=root if where == "deploy.root" else data) as error:
        check_places(runner, root, data)
    assert error.value.where == where


def test_flink_reads_data_from_s3_with_the_credentials_of_its_pools() -> None:
    check_places("FlinkRunner", "gs://b/taxi", "s3://b/data")
