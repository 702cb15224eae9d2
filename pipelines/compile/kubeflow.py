"""Writes a TFX pipeline as the file that Kubeflow Pipelines v2 and Vertex AI run, by TFX's own compiler.

The compiler leaves out some of what a node is to get: it drops the resources of file-based ExampleGens, and knows no
retries and no caching of one node. Here one step over the spec sets them for every node that runs in a container.

Node selectors and tolerations become a platform spec, the part of a compiled pipeline that only Kubernetes reads. It is
the same message that `kfp-kubernetes` makes, which is not used for that: its last release for protobuf 3, which TFX
1.16 needs, has no tolerations. The tests compare with it where they can.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import yaml

from infeed.components.dataset import files
from infeed.components.errors import InfeedError
from infeed.pipelines.config import PipelineConfig, split_data
from infeed.pipelines.deploy.options import DEFAULT, Deploy, Resources, Toleration
from infeed.pipelines.deploy.vertex import pipeline_job
from infeed.pipelines.job.compiled import Schema, Spec, Target, Task, leaves, read_tasks
from infeed.pipelines.job.parameters import mapped

if TYPE_CHECKING:
    from tfx.orchestration.data_types import RuntimeParameter
    from tfx.orchestration.pipeline import Pipeline

# A machine that was taken away needs a while to be replaced; kfp's own factor.
_BACKOFF = {"backoffDuration": "30s", "backoffFactor": 2.0, "backoffMaxDuration": "600s"}


@dataclass(frozen=True)
class CompileOptions:
    """What to write, and for whom.

    Attributes:
      output: `*.json` gets a PipelineJob, `*.yaml` the PipelineSpec and, where there is one, the platform spec.
      target: what runs it. Kubeflow runs no drivers of ExampleGens, and no resolvers.
      schema: of the PipelineSpec. Kubeflow reads 2.1; Vertex AI reads both.
      folder: of the project, whose files are in the image: functions of theirs are written relative to it.

    Raises:
      InfeedError: `output` ends in neither.
    """

    output: str
    target: Target = "kubeflow"
    schema: Schema = "2.1"
    folder: str | None = None

    def __post_init__(self) -> None:
        if Path(self.output).suffix not in {".json", ".yaml", ".yml"}:
            raise InfeedError(f"cannot tell the format of {self.output!r}", do="name the output *.json or *.yaml")


def compile_kubeflow(
    pipeline: Pipeline,
    options: CompileOptions,
    *,
    image: str,
    deploy: Deploy | None = None,
    parameters: Mapping[str, RuntimeParameter] | None = None,
) -> str:
    """Writes the specification of `pipeline` to `options.output` and returns that path.

    Args:
      pipeline: made for this call: component objects can be compiled once only.
      options: where to, and for what.
      image: container image with this package and TFX, in which every step runs.
      deploy: resources, retries, caching and places of the nodes.
      parameters: the runtime parameters that `pipeline` was made with.

    Raises:
      InfeedError: kfp is not installed, `deploy` names a node that does not exist, or says what the output has no place
        for: JSON none for a platform spec, YAML none for accounts, keys and labels.
    """
    job = _compile(pipeline, image, options.schema, parameters or {})
    spec, deploy = job["pipelineSpec"], deploy or Deploy()
    apply_settings(spec, deploy, drivers_run=options.target == "vertex")
    spec["defaultPipelineRoot"] = pipeline.pipeline_info.pipeline_root
    platform = platform_spec(spec, deploy)
    vertex = deploy.on(options.target)
    run_metadata = pipeline_job(vertex) if vertex else {}
    job = relative_function_paths(job, options.folder) if options.folder else job
    output = Path(options.output)
    text = _text(job, platform, run_metadata, output)
    files.write_bytes(options.output, text.encode())
    return options.output


def _compile(
    pipeline: Pipeline, image: str, schema: Schema, parameters: Mapping[str, RuntimeParameter]
) -> dict[str, Any]:
    """The PipelineJob; its defaults stand in the spec, and in runtimeConfig, where alone readers of schema 2.0 look."""
    runner = _runner()
    config = runner.KubeflowV2DagRunnerConfig(default_image=image, use_pipeline_spec_2_1=schema == "2.1")
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    job: dict[str, Any] = runner.KubeflowV2DagRunner(config).run(pipeline, parameter_values=defaults, write_out=False)
    declared = job["pipelineSpec"]["root"].get("inputDefinitions", {}).get("parameters", {})
    for name, definition in declared.items():
        definition["defaultValue"] = defaults[name]
    return job


def _text(
    job: Mapping[str, Any], platform: Mapping[str, Any] | None, run_metadata: Mapping[str, Any], output: Path
) -> str:
    """`run_metadata` is what a PipelineJob says beside its spec."""
    if output.suffix != ".json":
        if run_metadata:
            raise InfeedError(
                f"YAML holds a pipeline alone, and has no place for {', '.join(run_metadata)} of a run",
                where=str(output),
                do="name the output *.json",
            )
        documents = [job["pipelineSpec"], *([platform] if platform else [])]
        return yaml.safe_dump_all(documents, sort_keys=True, width=120)
    if platform:
        raise InfeedError(
            "JSON has no place for node selectors and tolerations",
            where=str(output),
            do="name the output *.yaml, where they are a second document",
        )
    labels = {**job["labels"], **run_metadata.get("labels", {})}
    return json.dumps({**job, **run_metadata, "labels": labels}, sort_keys=True, indent=1) + "\n"


def _runner() -> ModuleType:
    try:
        from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner
    except ImportError as error:
        raise InfeedError(
            f"cannot compile for Kubeflow: {error}",
            do="install kfp beside TFX; pip install 'tfx-infeed[tfx]' brings the version that fits",
        ) from error
    return kubeflow_v2_dag_runner  # type: ignore[no-any-return]


def relative_function_paths(value: Any, folder: str) -> Any:
    """A copy of plain data in which every `folder/x.py:` inside of a text is `x.py:`; other paths stay as they are."""
    written = sorted({folder, json.dumps(folder)[1:-1]})  # options are JSON inside of the data
    pattern = re.compile(rf"(?:{'|'.join(map(re.escape, written))})/(?=[^\"\s:]+\.py:)")
    return mapped(value, lambda one: pattern.sub("", one) if isinstance(one, str) else one)


def runtime_parameters(config: PipelineConfig) -> dict[str, RuntimeParameter]:
    """What may be set anew at each start of a compiled pipeline, by name; each defaults to the config's own value.

    `data` is a folder; a file of the config keeps its name in it.

    Raises:
      InfeedError: `deploy.data` names another file than `data`.
    """
    from tfx.orchestration.data_types import RuntimeParameter

    defaults = {
        "data": _data_folder(config),
        "epochs": config.train.epochs,
        "batch_size": config.train.feed.batch_size,
        "strategy": config.train.strategy,
    }
    return {name: RuntimeParameter(name, ptype=type(value), default=value) for name, value in defaults.items()}


def _data_folder(config: PipelineConfig) -> str:
    there = config.deploy.data or config.data
    _, here = split_data(config.data)
    if here is None:
        return there
    folder, file = os.path.split(there)
    if file != here:
        raise InfeedError(
            f"data is the file {here!r} here and {file!r} there",
            where="deploy.data",
            do="give the file the same name in both places, or name a folder in both",
        )
    return folder


def apply_settings(spec: Mapping[str, Any], deploy: Deploy, *, drivers_run: bool) -> None:
    """Writes what `deploy.resources` says into `spec`.

    Args:
      spec: a PipelineSpec, changed in place.
      deploy: says it.
      drivers_run: whether the platform runs the driver of an ExampleGen before it asks the cache. Where it does not,
        new data in the same folder would be answered with old Examples: such a node is cached only where asked for.

    Raises:
      InfeedError: `deploy.resources` names a node that is not there, or runs in no container.
    """
    nodes = list(_containers(spec))
    check_names(deploy, [node.name for node, _ in nodes])
    for node, container in nodes:
        resources = deploy.resources_of(node.name)
        if limits := container_resources(resources):
            container["resources"] = limits
        if resources.retries:
            node.spec["retryPolicy"] = {"maxRetryCount": resources.retries, **_BACKOFF}
        if not cached(node, resources, drivers_run):
            node.spec["cachingOptions"] = {}


def cached(node: Task, resources: Resources, drivers_run: bool) -> bool:
    """Whether the cache may answer for the node."""
    if resources.cache is not None:
        return resources.cache
    return node.cacheable and (drivers_run or node.driver is None)


def container_resources(resources: Resources) -> dict[str, Any]:
    """The ResourceSpec: cores, units of 10^9 bytes, and accelerators; empty where nothing is said."""
    spec: dict[str, Any] = {}
    if resources.cores is not None:
        spec["cpuLimit"] = resources.cores
    if resources.memory_bytes is not None:
        spec["memoryLimit"] = resources.memory_bytes / 1e9
    if resources.accelerator is not None:
        count = str(resources.accelerators or 1)  # an int64, which JSON of protos writes as text
        spec["accelerator"] = {"type": resources.accelerator, "count": count}
    return spec


def check_names(deploy: Deploy, nodes: list[str]) -> None:
    """Raises InfeedError where resources are given to a node that is not among `nodes`."""
    unknown = [name for name in deploy.resources if name not in (DEFAULT, *nodes)]
    if unknown:
        raise InfeedError(
            f"there is no node {unknown[0]!r} that runs in a container",
            where="deploy.resources",
            do=f"use {DEFAULT} or one of {', '.join(sorted(nodes))}",
        )


def platform_spec(spec: Mapping[str, Any], deploy: Deploy) -> dict[str, Any] | None:
    """The platform spec of a PipelineSpec: a KubernetesExecutorConfig for each node that needs one; None without."""
    configs = {
        node.component["executorLabel"]: executor_config(deploy.resources_of(node.name))
        for node, _ in _containers(spec)
    }
    executors = {label: config for label, config in configs.items() if config}
    return {"platforms": {"kubernetes": {"deploymentSpec": {"executors": executors}}}} if executors else None


def executor_config(resources: Resources) -> dict[str, Any]:
    """The KubernetesExecutorConfig; empty where any machine will do."""
    config: dict[str, Any] = {}
    if resources.node_selector:
        config["nodeSelector"] = {"labels": dict(resources.node_selector)}
    if resources.tolerations:
        config["tolerations"] = [_toleration(toleration) for toleration in resources.tolerations]
    return config


def _toleration(toleration: Toleration) -> dict[str, Any]:
    fields = {name: value for name, value in vars(toleration).items() if value is not None}
    if "seconds" in fields:
        fields["tolerationSeconds"] = str(fields.pop("seconds"))  # an int64
    return fields


def _containers(spec: Mapping[str, Any]) -> Iterator[tuple[Task, Spec]]:
    """Every node that runs in a container, those inside of nested dags too; both are changed in place."""
    return ((task, task.container) for task in leaves(read_tasks(spec)) if task.container is not None)
