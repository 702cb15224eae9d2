"""Checks that a config and its target fit together, before compiling and without importing TFX."""

from __future__ import annotations

import dataclasses
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infeed.components.base.errors import InfeedError
from infeed.components.engine.beam_runner import BEAM_RUNNERS
from infeed.components.feed.options import share_of_batch
from infeed.components.kubeflow.message import FOLDERS
from infeed.components.trainer.options import TrainOptions
from infeed.pipelines.cluster.job.compiled import Schema, Target
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.deploy.options import (
    DEFAULT,
    KUBERNETES_ONLY,
    OPTION,
    TRAINER,
    Deploy,
    Resources,
    check_places,
    cluster_runner,
)
from infeed.pipelines.deploy.pod import of_machines_alone

_ACCELERATOR_NAMES = {
    "kubeflow": "use the name of a Kubernetes resource, such as nvidia.com/gpu or google.com/tpu",
    "vertex": "use Vertex AI's name, such as NVIDIA_TESLA_T4 or NVIDIA_L4",
}
_JOB = "deploy.training"
_SINGLE_PROCESS = ("one_device", "mirrored")


def check_config(
    config: PipelineConfig, target: Target = "kubeflow", schema: Schema = "2.1", folder: str | None = None
) -> None:
    """Raise InfeedError if the compiled pipeline would fail on the cluster. For the arguments see `CompileOptions`."""
    deploy = dataclasses.replace(config.deploy, root=config.deploy.root or config.root)
    check_target(deploy, target, schema)
    check_stores(deploy.root or "", deploy.data or config.place, target)
    check_runner(deploy, deploy.data or config.place or deploy.root or "", config.beam_pipeline_args)
    check_strategy(config.train, training_machines(deploy, target))
    if folder:
        check_function_paths(config.user_functions, folder)


def check_target(deploy: Deploy, target: Target, schema: Schema = "2.1") -> None:
    """Raise InfeedError if `deploy` has no image, or a setting that the target does not support."""
    if target == "kubeflow" and schema != "2.1":
        raise InfeedError(f"schema is {schema}, and Kubeflow reads only 2.1", where="option schema", do="leave it out")
    if not deploy.image:
        do = "set deploy.image or --image to an image with this package and the project"
        raise InfeedError("no container image is set for the steps", where="deploy.image", do=do)
    for node in deploy.resources:
        _check_resources(deploy, node, target)
    if deploy.training:
        if target == "vertex":
            do = "use deploy.vertex.training, which makes a custom job of Vertex AI"
            raise InfeedError("Vertex AI has no JobSet and no TrainJob", where=_JOB, do=do)
        if "://" not in (deploy.root or ""):
            what = f"the machines of a job do not see {deploy.root or 'a local folder'}"
            raise InfeedError(what, where="deploy.root", do="use a folder in a store, such as s3://bucket/flowers")
        _check_waiting_step(deploy, (DEFAULT,), "deploy.resources.Trainer")
    if vertex := deploy.on(target):
        # The machines of training and of an endpoint cannot access the disk of a step, only a bucket.
        services = [name for name in ("training", "endpoint") if getattr(vertex, name)]
        if services and not (deploy.root or "").startswith(("gs://", "/gcs/")):
            what = f"{services[0]} cannot read what the steps write to {deploy.root or 'a local folder'}"
            raise InfeedError(what, where="deploy.root", do="use a folder in a bucket, such as gs://bucket/flowers")
        if vertex.training:
            _check_waiting_step(deploy, (DEFAULT, TRAINER), "deploy.vertex.training")


def check_stores(root: str, data: str, target: Target) -> None:
    """Raise InfeedError for a root or data place that the steps cannot open. `local_places` warns of local paths.

    On Kubeflow, the launcher moves artifacts between the store and the disk of the pod, and this package reads the data
    with pyarrow. On Vertex AI, TensorFlow opens every place, and TensorFlow 2.18 and later opens only gs://.
    """
    known = [f"{scheme}://" for scheme in FOLDERS] if target == "kubeflow" else ["gs://"]
    for setting, place in (("deploy.root", root), ("deploy.data", data)):
        scheme = f"{place.partition('://')[0]}://"
        if "://" in place and scheme not in known:
            do = f"use a place on {', '.join(known)}"
            raise InfeedError(f"the steps cannot open {scheme} on {target}", where=setting, do=do)


def check_runner(deploy: Deploy, data: str, local_options: Sequence[str] = ()) -> None:
    """Raise InfeedError if the workers of Beam's runner cannot use the places of the pipeline.

    If `deploy` names no runner, a compiled pipeline uses the Beam options of local runs, `local_options`.
    """
    given, root = cluster_runner(local_options), deploy.root or ""
    if runner := cluster_runner(deploy.beam_pipeline_args):
        check_places(runner, root, data)
    elif given in (BEAM_RUNNERS[name] for name in ("dataflow", "flink", "spark")):
        what = f"beam_pipeline_args names {given}, but holds the options of local runs"
        do = f"write the options of the compiled pipeline into {OPTION}"
        raise InfeedError(what, where="beam_pipeline_args", do=do)
    elif given:
        check_places(given, root, data)


def check_accelerators(deploy: Deploy) -> None:
    """Raise InfeedError for an unknown accelerator of Vertex AI, which its client would reject hours later."""
    vertex_machines = [deploy.vertex.training, deploy.vertex.endpoint] if deploy.vertex else []
    machines = [machine for machine in (*deploy.resources.values(), *vertex_machines) if machine]
    names = {machine.accelerator: None for machine in machines if machine.accelerator}
    if not names:
        return
    from google.cloud.aiplatform_v1.types import AcceleratorType  # the import takes a second

    known = [kind.name for kind in AcceleratorType if kind.value]
    unknown = [name for name in names if name not in known]
    if unknown:
        do = f"use one of {', '.join(known)}"
        raise InfeedError(f"Vertex AI has no accelerator {unknown[0]!r}", where="deploy", do=do)


def check_machine_spec(deploy: Deploy) -> None:
    """Raise InfeedError for a field that Vertex AI's MachineSpec does not have."""
    training = deploy.vertex.training if deploy.vertex else None
    if not (training and training.machine_spec):
        return
    from google.cloud.aiplatform_v1.types import MachineSpec  # the import takes a second

    try:
        MachineSpec(dict(training.machine_spec))
    except (TypeError, ValueError) as error:
        do = "use fields of Vertex AI's MachineSpec, such as tpu_topology"
        raise InfeedError(str(error), where="deploy.vertex.training.machine_spec", do=do) from error


def _check_resources(deploy: Deploy, node: str, target: Target) -> None:
    resources, where = deploy.resources[node], f"deploy.resources.{node}"
    # Kubernetes names a resource with its domain: nvidia.com/gpu. Vertex AI's names have no slash.
    if resources.accelerator and ("/" in resources.accelerator) != (target == "kubeflow"):
        raise InfeedError(
            f"{target} has no accelerator {resources.accelerator!r}", where=where, do=_ACCELERATOR_NAMES[target]
        )
    foreign = [name for name in KUBERNETES_ONLY if getattr(resources, name)] if target == "vertex" else []
    if foreign:
        do = "remove the setting; Vertex AI chooses machines by cpu, memory and accelerator"
        raise InfeedError(f"Vertex AI does not support {' and '.join(foreign)}", where=f"{where}.{foreign[0]}", do=do)
    of_step = deploy.resources_of_step(node)
    if of_step.accelerator and of_step.ephemeral_storage:
        what = "Kubeflow Pipelines cannot limit the ephemeral storage of a step that has an accelerator"
        do = "set it only for nodes without an accelerator, and use ephemeral_volumes here"
        raise InfeedError(what, where=f"{where}.ephemeral_storage", do=do)
    if unknown := of_machines_alone(of_step.pod or {}):
        what = f"Kubeflow Pipelines has no setting for {unknown[0]} of a step's pod"
        do = "leave it out; the machines of deploy.training take it, and an administrator can add it to all pods"
        raise InfeedError(what, where=f"{where}.pod", do=do)
    twice = [folder for folder, count in Counter(deploy.resources_of(node).mounts).items() if count > 1]
    if twice:
        do = "mount each Secret, ConfigMap and volume in a separate folder"
        raise InfeedError(f"several things are mounted at {twice[0]}", where=where, do=do)


def _check_waiting_step(deploy: Deploy, nodes: Sequence[str], do: str) -> None:
    for node in nodes:
        if deploy.resources.get(node, Resources()).accelerator:
            what = "the Trainer's step has an accelerator, but the step only waits for the machines that train"
            raise InfeedError(what, where=f"deploy.resources.{node}", do=f"set the accelerator only under {do}")


@dataclass(frozen=True)
class TrainingMachines:
    """Machines that a Trainer trains on."""

    count: int = 1  # identical machines
    gpus: int = 0  # per machine
    tpu: bool = False  # whether the machines have TPUs
    where: str = "deploy.resources.Trainer"  # setting that defines the machines


def training_machines(deploy: Deploy, target: Target) -> TrainingMachines:
    """Return the machines of the Trainer's job, or the resources of its step if there is no job."""
    vertex = deploy.on(target)
    training = vertex.training if vertex else None
    given = training or deploy.resources_of(TRAINER)
    tpu = training.is_tpu if training else (given.accelerator or "").startswith(("TPU_", "google.com/tpu"))
    gpus = (given.accelerators or 1) if given.accelerator and not tpu else 0
    if training:
        return TrainingMachines(training.replicas, gpus, tpu, "deploy.vertex.training")
    if deploy.training:
        return TrainingMachines(deploy.training.machines, gpus, tpu, _JOB)
    return TrainingMachines(1, gpus, tpu)


def check_strategy(train: TrainOptions, found: TrainingMachines) -> None:
    """Raise InfeedError if `train.strategy` leaves machines unused, or the GPUs cannot share a batch equally.

    Training repeats the check, because runtime parameters can change the strategy and the batch size.
    """
    use = "set it under train in the config, or with --strategy"
    on_jax = train.backend == "jax"
    if found.tpu != (train.strategy == "tpu") and not on_jax:
        has = "TPUs, which only the strategy tpu and the backend jax use" if found.tpu else "no TPU"
        raise InfeedError(f"strategy is {train.strategy!r}, and the Trainer has {has}", where=found.where, do=use)
    if found.count > 1 and found.tpu:
        what = f"the Trainer has {found.count} machines with TPUs, and a compiled job trains on a slice of one"
        do = "use a slice of one machine, or run infeed train in a JobSet of your own: docs/kubeflow.md"
        raise InfeedError(what, where=found.where, do=do)
    if found.count > 1 and train.strategy in (*_SINGLE_PROCESS, "tpu"):
        what = f"strategy is {train.strategy!r}, which trains on one machine, and the Trainer has {found.count}"
        raise InfeedError(what, where=found.where, do=f"{use}, or use auto")
    if found.where == _JOB and found.count == 1 and train.strategy == "multi_worker_mirrored":
        what = "strategy is 'multi_worker_mirrored', which needs several machines, and the Trainer has 1"
        raise InfeedError(what, where=found.where, do=f"{use}, or use auto")
    replicas, kind = found.count * (found.gpus or 1), "GPUs" if found.gpus else "machines"
    if train.strategy != "one_device" and not found.tpu:
        share_of_batch(train.feed.batch_size, replicas, kind, found.where)


def check_function_paths(functions: Mapping[str, str], folder: str) -> None:
    """Raise InfeedError for a function in a file outside `folder`, which the project's image would not contain."""
    for option, text in functions.items():
        module, _, _ = text.partition(":")
        if module.endswith(".py") and not Path(os.path.normpath(module)).is_relative_to(folder):
            what = f"{option} is in {os.path.normpath(module)}, which is not in the project's image"
            do = f"move it into {folder}, or install it as a package and use package.module:function"
            raise InfeedError(what, where=f"option {option}", do=do)


Version = tuple[int, ...]
_RETRIES_OF_ARGO = (2, 17, 0)  # its ConfigMap of Argo sets retryPolicy OnError; 2.16.0 and later commits do not
# Settings of a node that a backend ignores or breaks before a version: when they are set, the version, what an older
# backend does, and advice. Each comes from a real backend or from its source code. docs/kubeflow.md has the same table.
_NEEDS: Mapping[str, tuple[Callable[[Resources], bool], Version, str, str]] = {
    "shared_memory": (lambda of: of.shared_memory is not None, (2, 3), "ignores it", "leave it out"),
    "pod": (lambda of: "affinity" in (of.pod or {}).get("spec", {}), (2, 14), "ignores it", "use node_selector"),
    "retries": (
        lambda of: bool(of.retries),
        (2, 14),
        "cannot start the step: the name of its pod has capital letters",
        "leave it out",
    ),
    "volumes": (
        lambda of: any(volume.path for volume in of.volumes or ()),
        (2, 16),
        "mounts the whole volume, without `path`",
        "leave path out, and name the folder in your paths",
    ),
}


def version_of(text: str) -> Version:
    """Parse a version of Kubeflow Pipelines to three numbers: 2.17 is 2.17.0. Raises InfeedError if it is none."""
    if not re.fullmatch(r"\d+(\.\d+){1,2}", text):
        raise InfeedError(f"--kfp is {text!r}", do="give the version of the cluster, such as 2.17.0")
    return tuple(map(int, f"{text}.0".split(".")[:3]))


def check_backend(deploy: Deploy, version: Version) -> str:
    """Return a warning about settings without effect on this version. Empty if all have an effect.

    Raises InfeedError for a setting that this version ignores or breaks.
    """
    for node in deploy.resources:
        resources = deploy.resources_of_step(node)
        for setting, (is_set, since, before, do) in _NEEDS.items():
            if is_set(resources) and version < since:
                shown, least = (".".join(map(str, one)) for one in (version, since))
                what = f"Kubeflow Pipelines {shown} {before}; {setting} needs {least}"
                raise InfeedError(what, where=f"deploy.resources.{node}.{setting}", do=do)
    retried = any(deploy.resources_of_step(node).retries for node in deploy.resources)
    if retried and version == _RETRIES_OF_ARGO:
        return (
            "retries have no effect on a step that fails: Argo's settings of Kubeflow Pipelines 2.17.0 retry errors of "
            "the cluster alone; remove templateDefaults.retryStrategy from its workflow-controller-configmap"
        )
    return ""
