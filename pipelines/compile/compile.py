"""From a config to the file that a cluster runs: the same pipeline, with the cluster's paths and services."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from infeed.components.beam_runner import container_options
from infeed.components.errors import InfeedError
from infeed.components.trainer.options import TrainOptions
from infeed.pipelines.compile.kubeflow import CompileOptions, compile_kubeflow, runtime_parameters
from infeed.pipelines.config import PipelineConfig, resumable
from infeed.pipelines.deploy.options import DEFAULT, Deploy, Resources
from infeed.pipelines.deploy.vertex import VertexOptions, dataflow_args
from infeed.pipelines.job.compiled import Schema, Target

# Whether the target has what a config asks for: before anything is compiled, and without TFX.


_ACCELERATOR_NAMES = {
    "kubeflow": "use the name of a Kubernetes resource, such as nvidia.com/gpu or google.com/tpu",
    "vertex": "use Vertex AI's own name, such as NVIDIA_TESLA_T4 or NVIDIA_L4",
}
_OF_ONE_PROCESS = ("one_device", "mirrored")
_OF_ONE_DEVICE = ("one_device", "parameter_server")  # a batch goes to one device whole


def check_target(deploy: Deploy, target: Target, schema: Schema = "2.1") -> None:
    """Raises InfeedError where `deploy` lacks an image, or something is asked for that the target does not have."""
    if target == "kubeflow" and schema != "2.1":
        raise InfeedError(f"Kubeflow reads schema 2.1 alone, not {schema}", where="option schema", do="leave it out")
    if not deploy.image:
        raise InfeedError(
            "there is no container image for the steps",
            where="deploy.image",
            do="name one there or with --image; it holds this package and the project",
        )
    for node, resources in deploy.resources.items():
        _check_resources(resources, target, f"deploy.resources.{node}")
    if vertex := deploy.on(target):
        _check_root(deploy, vertex)
        _check_one_place_to_train(deploy, vertex)


def vertex_accelerators(deploy: Deploy) -> set[str]:
    """The accelerators that anything on Vertex AI is to have."""
    training_machines = [deploy.vertex.training, deploy.vertex.endpoint] if deploy.vertex else []
    named = [machine.accelerator for machine in (*deploy.resources.values(), *training_machines) if machine]
    return {name for name in named if name}


def check_accelerators(names: Collection[str]) -> None:
    """Raises InfeedError for an accelerator that Vertex AI does not know, which its client would tell hours later."""
    if not names:
        return
    from google.cloud.aiplatform_v1.types import AcceleratorType  # takes a second, and only this needs it

    known = [kind.name for kind in AcceleratorType if kind.value]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InfeedError(
            f"Vertex AI knows no accelerator {unknown[0]!r}", where="deploy", do=f"use one of {', '.join(known)}"
        )


def _check_resources(resources: Resources, target: Target, where: str) -> None:
    if resources.accelerator and ("/" in resources.accelerator) != (target == "kubeflow"):
        raise InfeedError(
            f"{target} knows no accelerator {resources.accelerator!r}", where=where, do=_ACCELERATOR_NAMES[target]
        )
    if target == "vertex" and (resources.node_selector or resources.tolerations):
        raise InfeedError(
            "Vertex AI has no node selectors and no tolerations", where=where, do="name an accelerator instead"
        )


def _check_root(deploy: Deploy, vertex: VertexOptions) -> None:
    """Training, Dataflow and an endpoint run on other machines than the steps, and meet them in a bucket alone."""
    services = [name for name in ("training", "dataflow", "endpoint") if getattr(vertex, name)]
    if services and not (deploy.root or "").startswith(("gs://", "/gcs/")):
        raise InfeedError(
            f"{services[0]} cannot read what the steps write to {deploy.root or 'a folder of this machine'}",
            where="deploy.root",
            do="name a folder of a bucket, such as gs://bucket/flowers",
        )


def _check_one_place_to_train(deploy: Deploy, vertex: VertexOptions) -> None:
    for node in (DEFAULT, "Trainer") if vertex.training else ():
        if deploy.resources.get(node, Resources()).accelerator:
            raise InfeedError(
                "the step of the Trainer has an accelerator, and would only wait for the custom job that trains",
                where=f"deploy.resources.{node}",
                do="name the accelerator under deploy.vertex.training alone",
            )


@dataclass(frozen=True)
class TrainingMachines:
    """What a Trainer has to train on.

    Attributes:
      count: machines, all alike.
      gpus: of each of them.
      tpu: whether they have TPUs.
      servers: machines beside them that hold the weights.
      where: the setting that says it.
    """

    count: int = 1
    gpus: int = 0
    tpu: bool = False
    where: str = "deploy.resources.Trainer"
    servers: int = 0


def training_machines(deploy: Deploy, target: Target) -> TrainingMachines:
    """What the Trainer gets: the machines of its custom job, or the resources of its step."""
    vertex = deploy.on(target)
    training = vertex.training if vertex else None
    given = training or deploy.resources_of("Trainer")
    tpu = training.is_tpu if training else (given.accelerator or "").startswith(("TPU_", "google.com/tpu"))
    gpus = (given.accelerators or 1) if given.accelerator and not tpu else 0
    if not training:
        return TrainingMachines(1, gpus, tpu)
    return TrainingMachines(training.replicas, gpus, tpu, "deploy.vertex.training", training.parameter_servers)


def check_strategy(train: TrainOptions, found: TrainingMachines) -> None:
    """Raises InfeedError where `train.strategy` leaves machines unused, or a batch cannot be dealt out to the GPUs.

    A runtime parameter may set strategy and batch size anew; training checks them again by then.
    """
    use = "set it under train in the config, or with --strategy"
    if found.tpu != (train.strategy == "tpu"):
        has = "TPUs, which the strategy tpu alone uses" if found.tpu else "no TPU"
        raise InfeedError(f"strategy is {train.strategy!r}, and the Trainer has {has}", where=found.where, do=use)
    if bool(found.servers) != (train.strategy == "parameter_server"):
        what = f"strategy is {train.strategy!r}, and the Trainer has {found.servers or 'no'} parameter servers"
        do = f"{use}; parameter servers are machines of a custom job: deploy.vertex.training.parameter_servers"
        raise InfeedError(what, where=found.where, do=do)
    if train.strategy == "parameter_server" and found.gpus > 1:
        what = f"under parameter_server a worker has one GPU, and each machine has {found.gpus}"
        raise InfeedError(what, where=found.where, do="take more machines, with one accelerator each")
    if found.count > 1 and train.strategy in _OF_ONE_PROCESS:
        what = f"strategy is {train.strategy!r}, which trains on one machine, and the Trainer has {found.count}"
        raise InfeedError(what, where=found.where, do=f"{use}, or let it be auto")
    gpus = found.count * found.gpus
    if train.strategy not in _OF_ONE_DEVICE and gpus and train.feed.batch_size % gpus:
        raise InfeedError(
            f"a global batch of {train.feed.batch_size} cannot be dealt out equally to {gpus} GPUs",
            where=found.where,
            do=f"use a multiple of {gpus} as batch_size, such as {-(-train.feed.batch_size // gpus) * gpus}",
        )


def check_function_paths(functions: Mapping[str, str], folder: str) -> None:
    """Raises InfeedError for a function in a file outside of `folder`, which the image of the project does not have.

    Args:
      functions: references, by the option that names them.
      folder: of the project.
    """
    for option, text in functions.items():
        module, _, _ = text.partition(":")
        if module.endswith(".py") and not Path(os.path.normpath(module)).is_relative_to(folder):
            raise InfeedError(
                f"{option} is in {os.path.normpath(module)}, which the project's image does not have",
                where=f"option {option}",
                do=f"move it into {folder}, or install it as a package and name it as package.module:function",
            )


def compile_config(config: PipelineConfig, options: CompileOptions) -> str:
    """Writes the pipeline of `config` to `options.output` and returns that path.

    Args:
      config: with `deploy.image`.
      options: where to, and for what.

    Raises:
      InfeedError: there is no image, or the target cannot do what the config asks for.
    """
    check_config(config, options.target, options.schema, options.folder)
    if options.target == "vertex":
        check_accelerators(vertex_accelerators(config.deploy))
    there = on_cluster(config, options.target)
    vertex = there.deploy.on(options.target)
    from infeed.pipelines.pipeline import create_pipeline, latest_blessed  # takes seconds

    parameters = runtime_parameters(config)
    # Kubeflow's backend refuses a pipeline with a resolver: "resolver executors not implemented".
    baseline = latest_blessed if options.target == "vertex" else None
    pipeline = create_pipeline(there, baseline=baseline, parameters=parameters, on_vertex=vertex)
    assert there.deploy.image, "check_target has asked for one"
    return compile_kubeflow(pipeline, options, image=there.deploy.image, deploy=there.deploy, parameters=parameters)


def check_config(
    config: PipelineConfig, target: Target = "kubeflow", schema: Schema = "2.1", folder: str | None = None
) -> None:
    """Raises InfeedError for what would fail on the cluster, and takes no time; see `CompileOptions`."""
    deploy = dataclasses.replace(config.deploy, root=config.deploy.root or config.root)
    check_target(deploy, target, schema)
    check_strategy(config.train, training_machines(deploy, target))
    if config.warm_start and target == "kubeflow":
        raise InfeedError(
            "warm_start is true, and Kubeflow looks up no model of an earlier run",
            where="warm_start",
            do="compile for Vertex AI, or set warm_start: false",
        )
    if folder:
        check_function_paths(config.user_functions, folder)


def local_places(config: PipelineConfig) -> str:
    """What the compiled pipeline looks for on this machine, in words; a cluster does not have it. Empty for nothing."""
    here = {
        name: path
        for name, path in (("data", config.data), ("root", config.root))
        if "://" not in path and not getattr(config.deploy, name)
    }
    places = " and ".join(f"{name} is {path}" for name, path in here.items())
    settings = " and ".join(f"deploy.{name}" for name in here)
    return f"{places} on this machine, which a cluster does not see: set {settings}" if here else ""


def on_cluster(config: PipelineConfig, target: Target) -> PipelineConfig:
    """`config` with the places of the cluster, and a name that it takes."""
    root = config.deploy.root or config.root
    there = resumable(dataclasses.replace(config, name=cluster_name(config.name), root=root))
    return dataclasses.replace(there, beam_pipeline_args=_beam_options(config, root, target))


def _beam_options(config: PipelineConfig, root: str, target: Target) -> tuple[str, ...]:
    given, image = config.beam_pipeline_args, config.deploy.image
    assert image, "check_target has asked for one"
    vertex = config.deploy.on(target)
    if not (vertex and vertex.dataflow):
        return container_options(given, image)
    temp = vertex.temp or os.path.join(root, "tmp")
    return (*given, *dataflow_args(vertex, vertex.dataflow, temp=temp, image=image))


def cluster_name(name: str) -> str:
    """The name in lower case letters, digits and dashes, a letter first, which is all that Vertex AI takes.

    It makes a run's id of it, of at most 128 characters, by adding the time.
    """
    there = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:100].rstrip("-") or "pipeline"
    return there if there[0].isalpha() else f"p-{there}"
