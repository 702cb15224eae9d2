from __future__ import annotations

from typing import Any

import pytest

from infeed.components.errors import InfeedError
from infeed.components.feed.options import FeedOptions
from infeed.components.kubeflow.training_job import TrainingJob
from infeed.components.trainer.options import TrainOptions
from infeed.pipelines.compile.checks import TrainingMachines, check_strategy, check_target, training_machines
from infeed.pipelines.deploy.options import Deploy, Resources
from infeed.pipelines.deploy.vertex import Training, VertexOptions


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
    "machines left alone": (
        train("mirrored"),
        TrainingMachines(4, 8),
        r"strategy is 'mirrored'.*has 4",
    ),
    "no servers": (
        train("parameter_server"),
        TrainingMachines(4),
        r"the Trainer has no parameter servers(.|\n)*custom job",
    ),
    "servers left alone": (
        train("auto"),
        TrainingMachines(4, servers=2),
        r"strategy is 'auto', and the Trainer has 2 param",
    ),
    "GPUs left alone": (
        train("parameter_server"),
        TrainingMachines(4, 8, servers=1),
        r"each machine has 8 GPUs",
    ),
    "one machine of several": (
        train("multi_worker_mirrored"),
        TrainingMachines(1, where="deploy.training"),
        r"multi_worker_mirrored(.|\n)*has 1",
    ),
    "TPUs of several machines": (train("tpu"), TrainingMachines(2, tpu=True), r"'tpu'(.|\n)*has 2"),
    "batch without GPUs": (train("auto", 100), TrainingMachines(3), r"batch_size is 100(.|\n)*3 machines(.|\n)*102"),
    "batch": (
        train("auto", 100),
        TrainingMachines(4, 8),
        r"batch_size is 100(.|\n)*128",
    ),
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
    check_strategy(train("parameter_server", 3), TrainingMachines(4, servers=2))


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
