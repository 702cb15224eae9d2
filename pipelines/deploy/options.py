"""Settings of a pipeline on a cluster: the image, the resources of each node, Beam, and the options of Vertex AI.

    deploy:
      image: registry.example/taxi:1
      root: gs://bucket/taxi
      resources:
        default: {cpu: 2, memory: 8Gi, retries: 2}
        Trainer: {cpu: 8, memory: 30Gi, accelerator: nvidia.com/gpu, accelerators: 1}

These settings do not change the results of a pipeline. `infeed run` ignores them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from infeed.components.base.checks import about, as_tuples, at_least, check_fields, require
from infeed.components.base.errors import InfeedError, OptionError
from infeed.components.engine.beam_runner import BEAM_RUNNERS, Named
from infeed.components.kubeflow import disk
from infeed.components.kubeflow.message import FOLDERS
from infeed.components.kubeflow.training_job import TrainingJob
from infeed.pipelines.deploy.pod import (
    EphemeralVolume,
    KeySource,
    Pod,
    Toleration,
    Volume,
    check_distinct,
    check_labels,
    check_object,
    check_pod,
    check_quantity,
    check_variables,
    merged,
    quantity,
)
from infeed.pipelines.deploy.vertex import VertexOptions, check_accelerator

OPTION = "deploy.beam_pipeline_args"
DATAFLOW = BEAM_RUNNERS["dataflow"]
_IMAGE = "--sdk_container_image="
# Options without which a runner cannot reach its service: one of each group.
_NEEDED = {
    DATAFLOW: (("--project",), ("--region",), ("--temp_location",)),
    BEAM_RUNNERS["flink"]: (("--job_endpoint", "--flink_master"),),
    BEAM_RUNNERS["spark"]: (("--job_endpoint", "--spark_rest_url", "--spark_master_url"),),
}


def cluster_runner(options: Sequence[str]) -> str:
    """Return the cluster's runner that Beam's options name, such as FlinkRunner. Empty if they name none."""
    named = Named.of(options)
    return named.short_name if named.is_cluster else ""


def with_image(options: Sequence[str], image: str) -> list[str]:
    """Return Beam's options, with `image` for the workers of a cluster unless the options name an image."""
    is_given = any(option.startswith(_IMAGE) for option in options)
    added = [f"{_IMAGE}{image}"] if cluster_runner(options) and not is_given else []
    return [*options, *added]


def check_options(options: Sequence[str]) -> None:
    """Raise InfeedError if Beam's options name a cluster's runner without the address of its service."""
    runner = cluster_runner(options)
    names = {option.partition("=")[0] for option in options}
    for group in _NEEDED.get(runner, ()):
        if names.isdisjoint(group):
            what = f"{runner} has no {group[0]}"
            raise InfeedError(what, do=f"add {' or '.join(f'{name}=VALUE' for name in group)}")


def check_places(runner: str, root: str, data: str = "gs://") -> None:
    """Raise InfeedError if workers of a runner cannot use the places of the pipeline.

    Workers write artifacts with TensorFlow, which opens gs:// and local files. They have no access to a pod's disk.
    """
    if not root.startswith("gs://"):
        what = f"workers of {runner} cannot write what TensorFlow saves to {root}"
        do = "use a folder on gs://, or leave the runner out: each step then runs in its own container"
        raise InfeedError(what, where="deploy.root", do=do)
    if runner == DATAFLOW and not data.startswith("gs://"):
        what = f"workers of Dataflow cannot read {data}: they see no local files, and no credentials of the steps"
        raise InfeedError(what, where="deploy.data", do="use a place on gs://")


DEFAULT = "default"
TRAINER = "Trainer"
BASE_MODEL = f"{TRAINER}-base-model"
"""Node on Kubeflow that passes the newest pushed model to the Trainer. It has the Trainer's settings."""
Reading = Literal["local", "direct"]

_QUANTITIES = ("cpu", "memory", "cpu_request", "memory_request", "ephemeral_storage", "shared_memory")
_ON_VERTEX = {"cpu", "memory", "accelerator", "accelerators", "retries", "cache", "env"}
_LISTS = ("tolerations", "secrets", "config_maps", "volumes", "ephemeral_volumes")
_ELSEWHERE = {
    "service_account": "leave it out: a run has one service account, infeed submit --service-account",
    "priority": "leave it out: Kubeflow Pipelines has no priority of a step",
}
_ELSEWHERE |= dict.fromkeys(("priority_class", "priority_class_name"), _ELSEWHERE["priority"])


@dataclass(frozen=True)
class Resources:
    """Resources of one node. A field that is None defaults to the entry `default`, and then to the cluster.

    Attributes:
      cpu: limit of cores as a Kubernetes quantity: 4, 0.5 or 500m.
      memory: limit of memory as a Kubernetes quantity: 16Gi, 500M.
      accelerator: type of GPU or TPU. Kubeflow uses Kubernetes resources, such as nvidia.com/gpu or google.com/tpu;
        Vertex AI uses names such as NVIDIA_L4.
      accelerators: number of accelerators. Defaults to 1 if `accelerator` is set.
      retries: number of restarts after a failure.
      cache: whether the platform may reuse cached outputs.
      env: environment variables of the container.
      cpu_request, memory_request: guaranteed cores and memory; Kubernetes defaults to the limits. This setting and all
        that follow are for Kubeflow only.
      ephemeral_storage: limit of the pod's disk as a Kubernetes quantity: 100Gi. Kubernetes reserves as much.
      node_selector: labels that the machine must have.
      tolerations: taints that the machine may have.
      secrets: Secrets that the container gets as environment variables or files.
      config_maps: ConfigMaps that the container gets as environment variables or files.
      volumes: PersistentVolumeClaims to mount.
      ephemeral_volumes: volumes that Kubernetes creates and deletes with the pod.
      shared_memory: size of /dev/shm as a Kubernetes quantity: 4Gi.
      timeout: seconds after which Kubernetes ends the pod.
      pod: further settings, as Kubernetes writes a Pod. Steps take labels, annotations, node affinity and image pull
        secrets; the machines of `training` take any spec without containers.
    """

    ELSEWHERE: ClassVar[Mapping[str, str]] = _ELSEWHERE

    cpu: str | None = None
    memory: str | None = None
    accelerator: str | None = None
    accelerators: int | None = None
    retries: int | None = None
    cache: bool | None = None
    env: Mapping[str, str] | None = None
    cpu_request: str | None = None
    memory_request: str | None = None
    ephemeral_storage: str | None = None
    node_selector: Mapping[str, str] | None = None
    tolerations: tuple[Toleration, ...] | None = None
    secrets: tuple[KeySource, ...] | None = None
    config_maps: tuple[KeySource, ...] | None = None
    volumes: tuple[Volume, ...] | None = None
    ephemeral_volumes: tuple[EphemeralVolume, ...] | None = None
    shared_memory: str | None = None
    timeout: int | None = None
    pod: Pod | None = None

    def __post_init__(self) -> None:
        as_tuples(self, *_LISTS)
        for name in _QUANTITIES:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, str(getattr(self, name)))  # YAML reads `cpu: 4` as a number
                check_quantity(self, name)
        check_variables(self, "env", self.env or ())
        check_labels(self, "node_selector", self.node_selector or {})
        check_pod(self, "pod")
        # Kubernetes gives no two volumes, and no two variables, of a pod one name.
        sources = {"secrets": self.secrets or (), "config_maps": self.config_maps or ()}
        mounted = {option: [one.name for one in given if one.mount] for option, given in sources.items()}
        check_distinct(self, {**mounted, "volumes": [one.claim for one in self.volumes or ()]}, "mounted")
        names = {option: [name for one in given for name in one.env.values()] for option, given in sources.items()}
        check_distinct(self, {"env": list(self.env or ()), **names}, "set")
        for limit in ("cpu", "memory"):
            least, most = getattr(self, f"{limit}_request"), getattr(self, limit)
            fits = None in (least, most) or quantity(least, limit) <= quantity(most, limit)
            require(fits, self, f"{limit}_request", f"use at most the limit {limit}, {most}")
        check_accelerator(self)
        at_least(self, 0, "retries")
        at_least(self, 1, "timeout")

    def amount(self, name: str) -> float | None:
        """Return a quantity as a number of cores or bytes. None if it is not set."""
        text = getattr(self, name)
        return None if text is None else quantity(text, name)

    @property
    def mounts(self) -> list[str]:
        """Folders of the container at which something is mounted."""
        keys, volumes = (self.secrets, self.config_maps), (self.volumes, self.ephemeral_volumes)
        folders = [one.mount for given in keys for one in given or ()]
        folders += [one.mount for given in volumes for one in given or ()]
        return [*(folder.rstrip("/") for folder in folders if folder), *(["/dev/shm"] if self.shared_memory else [])]

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of the container: `env`, and the limit of the disk if downloads count towards it."""
        disk_bytes, volumes = self.amount("ephemeral_storage"), (self.volumes or ()) + (self.ephemeral_volumes or ())
        # The launcher downloads to these folders: on a volume, downloads do not count.
        counts = disk_bytes is not None and {one.mount.strip("/") for one in volumes}.isdisjoint(FOLDERS.values())
        return {**(self.env or {}), **({disk.LIMIT_VARIABLE: str(int(disk_bytes or 0))} if counts else {})}

    def over(self, default: Resources) -> Resources:
        """Return these resources with missing fields from `default`.

        An accelerator and its count stay together. Variables and pods of both are merged.
        """
        mine = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if getattr(self, f.name) is not None}
        for name in {"env", "pod"} & mine.keys():
            mine[name] = merged(getattr(default, name) or {}, mine[name])
        if self.accelerator is not None:
            mine["accelerators"] = self.accelerators
        return dataclasses.replace(default, **mine)


KUBERNETES_ONLY = tuple(f.name for f in dataclasses.fields(Resources) if f.name not in _ON_VERTEX)
"""Settings of Resources that Vertex AI does not have."""


@dataclass(frozen=True)
class Deploy:
    """Settings of a compiled pipeline.

    Attributes:
      image: container image of every step. Its working directory holds the project's files, so that a relative path
        such as `model.py` works. `infeed build` builds an image.
      root: folder of everything that the pipeline writes, such as gs://bucket/taxi. Defaults to `root` of the config.
      data: path of the data, in the same form as `data` of the config, which is the default.
      resources: resources by node name. The entry `default` applies to all nodes.
      project: "image" if the image holds the project's files. "archive" if `infeed submit` uploads them, and the steps
        that use them unpack them into their working directory; a change of a file then needs no new image.
      exclude: names or patterns of project files that do not go to the cluster.
      training: machines of a training job on Kubeflow, with the resources of the Trainer. None trains in the step.
      vertex: options of Vertex AI.
      beam_pipeline_args: Beam's options of the nodes that process data, as Beam writes them. By default, each step
        runs Beam in its own container.
      reading: how steps on Kubeflow read Examples. local: Kubeflow's launcher downloads them to the pod's disk. direct:
        the steps of this package read them from the store, and only TFX's own steps download them. On Vertex AI, steps
        always read from the store.
    """

    ELSEWHERE: ClassVar[Mapping[str, str]] = _ELSEWHERE

    image: str | None = None
    root: str | None = None
    data: str | None = None
    resources: Mapping[str, Resources] = field(default_factory=dict)
    project: Literal["image", "archive"] = "image"
    exclude: tuple[str, ...] = ()
    training: TrainingJob | None = None
    vertex: VertexOptions | None = None
    beam_pipeline_args: tuple[str, ...] = ()
    reading: Reading = "local"

    def __post_init__(self) -> None:
        as_tuples(self, "exclude", "beam_pipeline_args")
        check_fields(self)
        wrong = [one for one in self.beam_pipeline_args if not one.startswith("--")]
        require(not wrong, self, "beam_pipeline_args", "use --NAME=VALUE")
        with about(self, "beam_pipeline_args"):
            check_options(self.beam_pipeline_args)
        if self.training:
            with about(self, "training"):
                check_labels(self.training, "labels", self.training.labels)
                for name in ("runtime", "namespace", "service_account"):
                    if getattr(self.training, name) is not None:
                        check_object(self.training, name)

    def on(self, target: str) -> VertexOptions | None:
        """Return the options of Vertex AI if `target` is Vertex AI."""
        return self.vertex if target == "vertex" else None

    def resources_of(self, node: str) -> Resources:
        """Return the resources of a node, with missing fields from the entry `default`."""
        try:
            return self.resources.get(node, Resources()).over(self.resources.get(DEFAULT, Resources()))
        except OptionError as error:  # each entry is valid by itself, but their combination is not
            raise InfeedError(error.what, where=f"deploy.resources.{node}.{error.option}", do=error.do) from error

    def resources_of_step(self, node: str) -> Resources:
        """Return the resources of a node's step. If `training` is set, the Trainer's step only waits for its job."""
        found = self.resources_of(node)
        if not (self.training and node == TRAINER):
            return found
        waiting = self.resources.get(DEFAULT, Resources())
        return dataclasses.replace(waiting, retries=found.retries, cache=found.cache)
