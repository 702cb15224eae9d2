from __future__ import annotations

import pytest

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.pipelines.deploy.beam import check_places, cluster_runner, with_image
from infeed.pipelines.deploy.options import Deploy

IMAGE = "registry.example/taxi:1"
FLINK = ["--runner=FlinkRunner", "--job_endpoint=jobs:8099"]
PLACE = ["--project=p", "--region=r", "--temp_location=gs://b/tmp"]


def test_options_pass_as_they_are_and_workers_of_a_cluster_run_the_image_of_the_job() -> None:
    assert with_image(FLINK, IMAGE) == [*FLINK, f"--sdk_container_image={IMAGE}"]
    mine = [*FLINK, "--sdk_container_image=mine:2"]
    assert with_image(mine, IMAGE) == mine
    assert with_image(["--direct_num_workers=2"], IMAGE) == ["--direct_num_workers=2"]
    assert with_image([], IMAGE) == []


def test_only_a_runner_of_a_cluster_is_named() -> None:
    assert cluster_runner(FLINK) == "FlinkRunner"
    assert cluster_runner(["--runner=DirectRunner"]) == cluster_runner([]) == ""


@pytest.mark.parametrize("given", [FLINK, ["--runner=DataflowRunner", *PLACE], ["--runner=a.DaskRunner"]])
def test_what_has_an_address_is_taken(given: list[str]) -> None:
    assert schema.read(Deploy, {"beam_pipeline_args": given}, "deploy").beam_pipeline_args == tuple(given)


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (["--runner=FlinkRunner"], "--job_endpoint"),
        (["--runner=SparkRunner", "--parallelism=2"], "--job_endpoint"),
        (["--runner=DataflowRunner", *PLACE[1:]], "--project"),
        (["--runner=DataflowRunner", *PLACE[:2]], "--temp_location"),
        (["parallelism=2"], "parallelism=2"),
        (["--worker_timeout=ten"], "--worker_timeout is ten"),
    ],
)
def test_what_cannot_work_is_refused(given: list[str], value: str) -> None:
    with pytest.raises(InfeedError, match=value) as error:
        schema.read(Deploy, {"beam_pipeline_args": given}, "deploy")
    assert "deploy.beam_pipeline_args" in error.value.where


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
