from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import FeedOptions
from infeed.components.kubeflow.training_job import TrainingJob
from infeed.components.trainer.options import TrainOptions
from infeed.pipelines.cluster.compile.checks import (
    TrainingMachines,
    check_accelerators,
    check_backend,
    check_machine_spec,
    check_runner,
    check_stores,
    check_strategy,
    check_target,
    training_machines,
    version_of,
)
from infeed.pipelines.deploy.options import KUBERNETES_ONLY, Deploy, Resources
from infeed.pipelines.deploy.pod import EphemeralVolume, KeySource, Toleration, Volume
from infeed.pipelines.deploy.vertex import Endpoint, Training, VertexOptions

VERTEX = VertexOptions(
    "flowers",
    "europe-west4",
    training=Training("a2-highgpu-8g", "NVIDIA_TESLA_A100", 8),
    endpoint=Endpoint("flowers", "n1-standard-2", "serving:1"),
)

WRONG_FOR: dict[str, tuple[str, Deploy, str]] = {
    "no image": ("kubeflow", Deploy(), r"no container image(.|\n)*--image"),
    "Vertex AI's accelerator": (
        "kubeflow",
        Deploy("i", resources={"Trainer": Resources(accelerator="NVIDIA_L4")}),
        r"no accelerator 'NVIDIA_L4'(.|\n)*nvidia\.com/gpu",
    ),
    "Kubernetes' accelerator": (
        "vertex",
        Deploy("i", resources={"Trainer": Resources(accelerator="nvidia.com/gpu")}),
        r"no accelerator 'nvidia\.com/gpu'(.|\n)*NVIDIA_L4",
    ),
    "node selector": (
        "vertex",
        Deploy("i", resources={"Trainer": Resources(node_selector={"pool": "gpu"})}),
        r"node_selector(.|\n)*deploy\.resources\.Trainer\.node_selector",
    ),
    "a folder of this machine": (
        "vertex",
        Deploy("i", "/home/me", vertex=VERTEX),
        r"training(.|\n)*/home/me(.|\n)*deploy\.root(.|\n)*gs://bucket",
    ),
    "two places to train": (
        "vertex",
        Deploy("i", "gs://b", resources={"Trainer": Resources(accelerator="NVIDIA_L4")}, vertex=VERTEX),
        r"accelerator(.|\n)*deploy\.resources\.Trainer",
    ),
}


@pytest.mark.parametrize(("target", "deploy", "error"), WRONG_FOR.values(), ids=WRONG_FOR)
def test_settings_that_the_target_does_not_support_are_errors(target: Any, deploy: Deploy, error: str) -> None:
    with pytest.raises(InfeedError, match=error):
        check_target(deploy, target)


def test_kubeflow_reads_no_older_schema() -> None:
    with pytest.raises(InfeedError, match=r"schema is 2\.0"):
        check_target(Deploy("i"), "kubeflow", "2.0")
    check_target(Deploy("i"), "vertex", "2.0")


def test_what_each_target_has_is_taken() -> None:
    gpu = Resources(accelerator="nvidia.com/gpu", node_selector={"pool": "gpu"})
    check_target(Deploy("i", resources={"Trainer": gpu}, vertex=VERTEX), "kubeflow")
    evaluator = {"Evaluator": Resources(accelerator="NVIDIA_L4")}
    check_target(Deploy("i", "gs://bucket/flowers", resources=evaluator, vertex=VERTEX), "vertex")
    check_target(Deploy("i", vertex=VertexOptions("flowers", "europe-west4")), "vertex")  # to rehearse it here


@pytest.mark.slow  # imports Vertex AI's client
def test_an_accelerator_that_does_not_exist_is_told_with_those_that_do() -> None:
    resources = {"default": Resources(), "Evaluator": Resources(accelerator="NVIDIA_L4")}
    check_accelerators(Deploy(resources=resources, vertex=VERTEX))
    unknown = Resources(accelerator="NVIDIA_T4")
    for deploy in (Deploy(resources={**resources, "Trainer": unknown}), on_vertex("n1-standard-8", "NVIDIA_T4")):
        with pytest.raises(InfeedError, match=r"no accelerator 'NVIDIA_T4'(.|\n)*use one of .*NVIDIA_TESLA_T4"):
            check_accelerators(deploy)


@pytest.mark.parametrize(
    ("root", "data", "target", "where"),
    [
        ("hdfs://host/taxi", "s3://b/data", "kubeflow", "deploy.root"),
        ("s3://b/taxi", "abfs://b/data", "kubeflow", "deploy.data"),
        ("s3://b/taxi", "gs://b/data", "vertex", "deploy.root"),
        ("gs://b/taxi", "s3://b/data", "vertex", "deploy.data"),
    ],
)
def test_a_store_that_the_steps_cannot_open_is_refused(root: str, data: str, target: Any, where: str) -> None:
    with pytest.raises(InfeedError, match="cannot open") as error:
        check_stores(root, data, target)
    assert error.value.where == where


@pytest.mark.parametrize("scheme", ["gs", "s3", "minio"])
def test_kubeflow_opens_every_store_of_its_launcher(scheme: str) -> None:
    check_stores(f"{scheme}://b/taxi", f"{scheme}://b/data", "kubeflow")
    check_stores("/home/me/taxi", "data.csv", "kubeflow")


FLINK = ("--runner=FlinkRunner", "--job_endpoint=jobs:8099")


@pytest.mark.parametrize(
    ("deploy", "options", "where", "value"),
    [
        (Deploy(root="s3://b/taxi", beam_pipeline_args=FLINK), [], "deploy.root", "FlinkRunner"),
        (Deploy(root="s3://b/taxi"), ["--runner=a.DaskRunner"], "deploy.root", "DaskRunner"),
        (Deploy(root="gs://b/taxi"), ["--runner=FlinkRunner"], "beam_pipeline_args", "FlinkRunner"),
    ],
)
def test_a_runner_that_cannot_work_is_refused(deploy: Deploy, options: list[str], where: str, value: str) -> None:
    with pytest.raises(InfeedError, match=value) as error:
        check_runner(deploy, "gs://b/data", options)
    assert error.value.where == where


def test_options_of_local_runs_do_not_matter_beside_a_runner_for_the_cluster() -> None:
    check_runner(Deploy(root="gs://b/taxi", beam_pipeline_args=FLINK), "s3://b/data", ["--runner=SparkRunner"])
    check_runner(Deploy(root="s3://b/taxi"), "s3://b/data", ["--direct_num_workers=2"])


def test_a_step_with_an_accelerator_has_no_limit_of_its_disk_on_kubeflow() -> None:
    gpu = Resources(accelerator="nvidia.com/gpu")
    deploy = Deploy("i", root="s3://b/r", resources={"default": Resources(ephemeral_storage="9Gi"), "Trainer": gpu})
    with pytest.raises(InfeedError, match="accelerator") as error:
        check_target(deploy, "kubeflow")
    assert error.value.where == "deploy.resources.Trainer.ephemeral_storage"
    check_target(dataclasses.replace(deploy, training=TrainingJob(2)), "kubeflow")  # a pod of ours has both


@pytest.mark.parametrize("name", KUBERNETES_ONLY)
def test_vertex_refuses_every_setting_of_a_pod_by_name(name: str) -> None:
    given: dict[str, Any] = {
        "tolerations": (Toleration("gpu", "Exists"),),
        "secrets": (KeySource("s", mount="/s"),),
        "config_maps": (KeySource("c", mount="/c"),),
        "volumes": (Volume("c", "/m"),),
        "ephemeral_volumes": (EphemeralVolume("/c", "1Gi"),),
        "node_selector": {"a": "b"},
        "pod": {"metadata": {"labels": {"a": "b"}}},
        **dict.fromkeys(("cpu_request", "memory_request", "ephemeral_storage", "shared_memory"), "1"),
        "timeout": 60,
    }
    deploy = Deploy("i", resources={"Trainer": Resources(**{name: given[name]})})
    check_target(deploy, "kubeflow")
    with pytest.raises(InfeedError, match=name) as error:
        check_target(deploy, "vertex")
    assert error.value.where == f"deploy.resources.Trainer.{name}"


def test_a_field_of_a_pod_that_no_step_has_is_for_machines_alone() -> None:
    deploy = Deploy("i", root="s3://b/r", resources={"Trainer": Resources(pod={"spec": {"hostNetwork": True}})})
    with pytest.raises(InfeedError, match=r"spec\.hostNetwork") as error:
        check_target(deploy, "kubeflow")
    assert error.value.where == "deploy.resources.Trainer.pod"
    check_target(dataclasses.replace(deploy, training=TrainingJob(2)), "kubeflow")


@pytest.mark.slow
def test_a_field_that_no_machine_of_vertex_ai_has_is_refused() -> None:
    check_machine_spec(on_vertex("ct5lp-hightpu-8t", machine_spec={"tpu_topology": "2x4"}))
    with pytest.raises(InfeedError, match="tpu_topologie") as error:
        check_machine_spec(on_vertex("m", machine_spec={"tpu_topologie": "2x4"}))
    assert error.value.where == "deploy.vertex.training.machine_spec"


def on_vertex(*given: Any, **named: Any) -> Deploy:
    return Deploy(vertex=VertexOptions("p", "r", training=Training(*given, **named)))


def train(strategy: str, batch_size: int = 64) -> TrainOptions:
    return TrainOptions("m:f", "y", strategy=strategy, feed=FeedOptions(batch_size))


def test_the_trainer_has_what_its_custom_job_or_its_step_gets() -> None:
    gpus = on_vertex("a2-highgpu-8g", "NVIDIA_TESLA_A100", 8, replicas=4)
    assert training_machines(gpus, "vertex") == TrainingMachines(4, 8, False, "deploy.vertex.training")
    assert training_machines(gpus, "kubeflow") == TrainingMachines()
    step = Deploy(resources={"default": Resources(accelerator="nvidia.com/gpu"), "Trainer": Resources(cpu="8")})
    assert training_machines(step, "kubeflow") == TrainingMachines(gpus=1)


@pytest.mark.parametrize(
    ("deploy", "target"),
    [
        (Deploy(resources={"Trainer": Resources(accelerator="google.com/tpu", accelerators=8)}), "kubeflow"),
        (Deploy(resources={"Trainer": Resources(accelerator="TPU_V3", accelerators=8)}), "vertex"),
        (on_vertex("cloud-tpu", "TPU_V3", 8), "vertex"),
        (on_vertex("ct5lp-hightpu-8t"), "vertex"),
    ],
)
def test_a_tpu_is_known_by_each_of_its_names(deploy: Deploy, target: Any) -> None:
    found = training_machines(deploy, target)
    assert (found.tpu, found.gpus) == (True, 0)
    check_strategy(train("tpu"), found)


WRONG: dict[str, tuple[TrainOptions, TrainingMachines, str]] = {
    "TPUs left alone": (train("auto"), TrainingMachines(tpu=True), r"strategy is 'auto', and the Trainer has TPUs"),
    "no TPU": (train("tpu"), TrainingMachines(gpus=8), r"strategy is 'tpu', and the Trainer has no TPU"),
    "machines left alone": (train("mirrored"), TrainingMachines(4, 8), r"strategy is 'mirrored'.*has 4"),
    "one machine of several": (
        train("multi_worker_mirrored"),
        TrainingMachines(1, where="deploy.training"),
        r"multi_worker_mirrored(.|\n)*has 1",
    ),
    "TPUs of several machines": (train("tpu"), TrainingMachines(2, tpu=True), r"has 2 machines with TPUs(.|\n)*JobSet"),
    "TPUs of several machines on JAX": (
        TrainOptions("m:f", "y", backend="jax"),
        TrainingMachines(2, tpu=True),
        r"has 2 machines with TPUs(.|\n)*JobSet",
    ),
    "batch without GPUs": (train("auto", 100), TrainingMachines(3), r"batch_size is 100(.|\n)*3 machines(.|\n)*102"),
    "batch": (train("auto", 100), TrainingMachines(4, 8), r"batch_size is 100(.|\n)*128"),
}


@pytest.mark.parametrize(("options", "found", "error"), WRONG.values(), ids=WRONG)
def test_machines_that_training_could_not_use_are_told(
    options: TrainOptions, found: TrainingMachines, error: str
) -> None:
    with pytest.raises(InfeedError, match=error):
        check_strategy(options, found)


def test_what_goes_together_is_taken() -> None:
    check_strategy(train("auto"), TrainingMachines(4, 8))
    check_strategy(train("multi_worker_mirrored", 100), TrainingMachines(4))
    check_strategy(train("one_device", 3), TrainingMachines(1, 8))
    on_jax = TrainOptions("m:f", "y", backend="jax", feed=FeedOptions(64))
    for machines in (TrainingMachines(tpu=True), TrainingMachines(4, 8)):
        check_strategy(on_jax, machines)


def on_machines(machines: int, root: str = "s3://bucket/taxi", **resources: Resources) -> Deploy:
    return Deploy(image="taxi:1", root=root, resources=resources, training=TrainingJob(machines))


def test_the_machines_of_a_job_have_the_resources_of_the_trainer() -> None:
    gpus = on_machines(3, Trainer=Resources(accelerator="nvidia.com/gpu", accelerators=2))
    assert training_machines(gpus, "kubeflow") == TrainingMachines(3, 2, where="deploy.training")
    check_target(gpus, "kubeflow")


@pytest.mark.parametrize(
    ("deploy", "target", "where"),
    [
        (on_machines(2), "vertex", "deploy.training"),
        (on_machines(2, root="/data/taxi"), "kubeflow", "deploy.root"),
        (on_machines(2, default=Resources(accelerator="nvidia.com/gpu")), "kubeflow", "deploy.resources.default"),
    ],
    ids=["Vertex AI", "no store", "accelerator of the step"],
)
def test_a_training_job_that_cannot_work_is_refused(deploy: Deploy, target: Any, where: str) -> None:
    with pytest.raises(InfeedError) as error:
        check_target(deploy, target)
    assert error.value.where == where


def test_the_step_that_waits_has_the_resources_of_all_steps() -> None:
    trainer = Resources(cpu="8", accelerator="nvidia.com/gpu", retries=3, node_selector={"pool": "gpu"})
    deploy = on_machines(2, default=Resources(cpu="1", retries=1), Trainer=trainer)
    assert deploy.resources_of_step("Trainer") == Resources(cpu="1", retries=3)
    assert deploy.resources_of_step("Transform") == Resources(cpu="1", retries=1)
    assert deploy.resources_of("Trainer").cpu == "8"


SETTINGS = {
    "retries": (Resources(retries=1), "2.14"),
    "pod": (Resources(pod={"spec": {"affinity": {"nodeAffinity": {}}}}), "2.14"),
    "shared_memory": (Resources(shared_memory="1Gi"), "2.3"),
    "volumes": (Resources(volumes=(Volume("photos", "/mnt", "2024"),)), "2.16"),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_needs_its_version(setting: str) -> None:
    resources, least = SETTINGS[setting]
    deploy = Deploy(resources={"Trainer": resources})
    assert check_backend(deploy, version_of(least)) == ""
    with pytest.raises(InfeedError, match=f"needs {least}") as error:
        check_backend(deploy, version_of("2.2.0"))
    assert error.value.where == f"deploy.resources.Trainer.{setting}"


def test_settings_of_default_count_for_all_nodes() -> None:
    with pytest.raises(InfeedError) as error:
        check_backend(Deploy(resources={"default": Resources(retries=2)}), version_of("2.5.0"))
    assert error.value.where == "deploy.resources.default.retries"


def test_retries_on_the_defaults_of_2_17_0_are_a_warning() -> None:
    deploy = Deploy(resources={"default": Resources(retries=2)})
    for version in ("2.17", "2.17.0"):
        assert "retryStrategy" in check_backend(deploy, version_of(version))
    assert check_backend(deploy, version_of("2.16.0")) == ""
    assert check_backend(Deploy(), version_of("2.17.0")) == ""


def test_settings_of_the_machines_of_a_job_do_not_go_through_the_backend() -> None:
    trainer = Resources(shared_memory="1Gi", volumes=(Volume("photos", "/mnt", "2024"),))
    assert check_backend(Deploy(resources={"Trainer": trainer}, training=TrainingJob(2)), version_of("2.2")) == ""


@pytest.mark.parametrize("text", ["2", "head", "2.x", "", "v2.5.0"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(InfeedError, match=r"such as 2\.17\.0"):
        version_of(text)
