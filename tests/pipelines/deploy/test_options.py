from __future__ import annotations

from typing import Any

import pytest
import yaml

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.pipelines.deploy.options import Deploy, Resources, check_places, cluster_runner, with_image
from infeed.pipelines.deploy.pod import Toleration, quantity
from infeed.pipelines.deploy.vertex import Endpoint, Training, VertexOptions

IMAGE = "registry.example/taxi:1"
FLINK = ["--runner=FlinkRunner", "--job_endpoint=jobs:8099"]
PLACE = ["--project=p", "--region=r", "--temp_location=gs://b/tmp"]


def deploy(text: str) -> Deploy:
    return schema.read(Deploy, yaml.safe_load(text), "deploy")


def test_everything_can_be_said_in_yaml() -> None:
    read = deploy("""
        image: registry.example/taxi:1
        root: gs://bucket/taxi
        data: gs://bucket/data
        resources:
          default: {cpu: 2, memory: 8Gi, retries: 2}
          Trainer:
            cpu: 0.5
            accelerator: nvidia.com/gpu
            accelerators: 4
            node_selector: {pool: gpu}
            tolerations: [{key: gpu, operator: Exists, effect: NoSchedule}]
            cache: false
        vertex:
          project: taxi
          region: europe-west4
          training: {machine: n1-standard-8, replicas: 4}
          endpoint: {name: taxi, machine: n1-standard-2, image: serving:1}
        beam_pipeline_args: [--experiments=use_runner_v2]
    """)
    assert read == Deploy(
        image="registry.example/taxi:1",
        root="gs://bucket/taxi",
        data="gs://bucket/data",
        resources={
            "default": Resources(cpu="2", memory="8Gi", retries=2),
            "Trainer": Resources(
                cpu="0.5",
                accelerator="nvidia.com/gpu",
                accelerators=4,
                node_selector={"pool": "gpu"},
                tolerations=(Toleration("gpu", "Exists", effect="NoSchedule"),),
                cache=False,
            ),
        },
        vertex=VertexOptions(
            "taxi",
            "europe-west4",
            training=Training("n1-standard-8", replicas=4),
            endpoint=Endpoint("taxi", "n1-standard-2", "serving:1"),
        ),
        beam_pipeline_args=("--experiments=use_runner_v2",),
    )


def test_nothing_needs_to_be_said() -> None:
    assert schema.read(Deploy, {}, "deploy") == Deploy()


def test_a_node_takes_what_it_does_not_say_from_default() -> None:
    resources = {"default": Resources(cpu="2", memory="8Gi", cache=True), "Trainer": Resources(cpu="8", cache=False)}
    assert Deploy(resources=resources).resources_of("Trainer") == Resources(cpu="8", memory="8Gi", cache=False)
    assert Deploy(resources=resources).resources_of("Pusher") == resources["default"]


def test_an_accelerator_of_its_own_does_not_take_the_number_of_default() -> None:
    resources = {"default": Resources(accelerator="gpu", accelerators=8), "Trainer": Resources(accelerator="tpu")}
    assert Deploy(resources=resources).resources_of("Trainer").accelerators is None  # which is one


@pytest.mark.slow  # imports the Kubernetes client
@pytest.mark.parametrize("text", ["4", "0.5", "500m", "16Gi", "500M", "2Ti", "1.5G", "64Ki"])
def test_quantities_are_those_of_kubernetes(text: str) -> None:
    from kubernetes.utils.quantity import parse_quantity

    assert quantity(text, "memory") == float(parse_quantity(text))


WRONG: dict[str, tuple[Any, str]] = {
    "setting": (
        {"imaeg": "x"},
        r"no setting 'imaeg'; did you mean 'image'\?\n  where: deploy\n  do:    use one of image",
    ),
    "resource": (
        {"resources": {"Trainer": {"gpu": 1}}},
        r"no setting 'gpu'(.|\n)*where: deploy\.resources\.Trainer\n  do:    use one of cpu, memory, accelerator",
    ),
    "cpu of a node": (
        {"resources": {"Trainer": {"cpu": "4x"}}},
        r"cpu is '4x'\n  where: deploy\.resources\.Trainer\.cpu\n",
    ),
    "toleration of a node": (
        {"resources": {"Trainer": {"tolerations": [{"key": "gpu"}, {"effect": "No"}]}}},
        r"effect is 'No'\n  where: deploy\.resources\.Trainer\.tolerations\[1\]\.effect\n(.|\n)*NoSchedule, PreferNo",
    ),
    "count of a node": (
        {"resources": {"Trainer": {"accelerators": 2}}},
        r"where: deploy\.resources\.Trainer\.accelerators\n",
    ),
    "memory": ({"resources": {"default": {"memory": "8 GB"}}}, r"memory is '8 GB'(.|\n)*16Gi"),
    "retries": ({"resources": {"default": {"retries": -1}}}, r"retries is -1"),
    "count": ({"resources": {"Trainer": {"accelerator": "gpu", "accelerators": 0}}}, r"accelerators is 0"),
    "tolerations": ({"resources": {"Trainer": {"tolerations": "gpu"}}}, r"tolerations is 'gpu'(.|\n)*use a list"),
    "no nodes": ({"resources": "many"}, r"resources is 'many'(.|\n)*use a mapping"),
    "no mapping": ("gs://bucket", r"'gs://bucket' is not a mapping of settings"),
    "project": ({"vertex": {"region": "r"}}, r"the setting 'project' is missing\n  where: deploy\.vertex"),
    "training": (
        {"vertex": {"project": "p", "region": "r", "training": {"machine": "m", "replicas": 0}}},
        r"replicas is 0\n  where: deploy\.vertex\.training\.replicas",
    ),
    "key and endpoint": (
        {
            "vertex": {
                "project": "p",
                "region": "r",
                "kms_key": "projects/p/locations/r/keyRings/k/cryptoKeys/c",
                "endpoint": {"name": "n", "machine": "m", "image": "i"},
            }
        },
        r"kms_key(.|\n)*\n  where: deploy\.vertex\.endpoint",
    ),
    "endpoint": (
        {
            "vertex": {
                "project": "p",
                "region": "r",
                "endpoint": {"name": "n", "machine": "m", "image": "i", "traffic": 101},
            }
        },
        r"traffic is 101\n  where: deploy\.vertex\.endpoint\.traffic\n",
    ),
}


@pytest.mark.parametrize(("given", "error"), WRONG.values(), ids=WRONG)
def test_a_wrong_setting_is_told_with_its_place(given: Any, error: str) -> None:
    with pytest.raises(InfeedError, match=error):
        schema.read(Deploy, given, "deploy")


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
