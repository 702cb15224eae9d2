"""Compiles a TFX pipeline to a job file of Kubeflow Pipelines v2 or Vertex AI, with TFX's compiler.

TFX's compiler drops the resources of file-based ExampleGens, and has no retries and no caching per node. This module
sets them in the compiled spec, for every node that runs in a container.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.dataset.options import has_spans, split_path
from infeed.components.kubeflow import compiled_with, disk, message
from infeed.components.kubeflow.ui import outputs_of
from infeed.components.trainer.options import OVERRIDES
from infeed.pipelines.cluster.compile import edits
from infeed.pipelines.cluster.compile.pods import platform_spec, pod_template
from infeed.pipelines.cluster.job.compiled import JOB, STEP, Schema, Spec, Target, Task, leaves, read_tasks
from infeed.pipelines.config import PipelineConfig, folder_of, split_data
from infeed.pipelines.deploy.options import (
    BASE_MODEL,
    DEFAULT,
    TRAINER,
    Deploy,
    Resources,
    check_places,
    cluster_runner,
    with_image,
)
from infeed.pipelines.deploy.vertex import pipeline_job

if TYPE_CHECKING:
    from tfx.orchestration.data_types import RuntimeParameter
    from tfx.orchestration.pipeline import Pipeline

_LIKE_NUMBER = re.compile(r"[-+._]*[0-9]")
_EXECUTOR = "--executor_class_path"
# Replacing a preempted machine takes a while. The factor is kfp's default.
_BACKOFF = {"backoffDuration": "30s", "backoffFactor": 2.0, "backoffMaxDuration": "600s"}

# Setting -> field of the ResourceSpec, and its unit in cores or bytes.
_AMOUNTS = {
    "cpu": ("cpuLimit", 1.0),
    "memory": ("memoryLimit", 1e9),
    "cpu_request": ("cpuRequest", 1.0),
    "memory_request": ("memoryRequest", 1e9),
}


@dataclass(frozen=True)
class CompileOptions:
    """Options of the compiler. Raises InfeedError if the suffix of `output` is not .json, .yaml or .yml."""

    output: str  # job file: *.json holds a PipelineJob, *.yaml the PipelineSpec and the platform spec, if any
    target: Target = "kubeflow"  # platform of the job; Kubeflow runs neither drivers of ExampleGens nor resolvers
    schema: Schema = "2.1"  # version of the PipelineSpec; Kubeflow reads 2.1, Vertex AI both
    # Folder of the project. The job names functions in its files relative to it, because the image holds them.
    folder: str | None = None
    exclude: tuple[str, ...] = ()  # names or patterns of project files that no step reads, such as config and data
    classes: tuple[str, ...] = ()  # names of the classes in order of their index, for Kubeflow's confusion matrix

    def __post_init__(self) -> None:
        if Path(self.output).suffix not in {".json", ".yaml", ".yml"}:
            do = "name the output *.json or *.yaml"
            raise InfeedError(f"output is {self.output!r}, whose format is unknown", do=do)


def compile_kubeflow(
    pipeline: Pipeline,
    options: CompileOptions,
    *,
    image: str,
    deploy: Deploy | None = None,
    parameters: Mapping[str, RuntimeParameter] | None = None,
) -> str:
    """Write the compiled `pipeline` to `options.output` and return that path.

    Args:
      pipeline: pipeline of new components. TFX can compile a component object only once.
      image: container image of every step, with this package and TFX.
      deploy: resources, retries and caching of the nodes, and Beam's runner. Beam options of a component take
        precedence.
      parameters: runtime parameters by name. Defaults to the parameters in the components' arguments.

    Raises:
      InfeedError: kfp is not installed, `deploy` names an unknown node, Beam's runner has no address or cannot use the
        root, or the output format does not support a setting. JSON does not support a platform spec. YAML does not
        support accounts, keys and labels.
    """
    deploy = deploy or Deploy()
    added = beam_options(deploy, image, pipeline.pipeline_info.pipeline_root)
    data_nodes = list(_data_nodes(pipeline))
    for data_node in data_nodes:
        of_node = data_node.executor_spec.beam_pipeline_args
        data_node.executor_spec.beam_pipeline_args = [*added, *of_node]
    job = _compile(pipeline, image, options, parameters or {})
    own: list[str] = []  # names of the steps whose parameters name functions of the project
    if folder := options.folder:
        for task, container in _containers(job["pipelineSpec"]):
            inputs = task.spec.get("inputs", {})
            if relative_function_paths(inputs, folder) != inputs or _is_of_project(_executor(container), folder):
                own.append(task.name)
        job = relative_function_paths(job, folder)
    spec = job["pipelineSpec"]
    # TFX passes the pipeline's Beam options to every node. Only data nodes keep them: a step with a cluster's runner
    # works on URIs, and a changed option would miss the cache of the other nodes.
    names = {node.id for node in data_nodes}
    for task, container in _containers(spec):
        if task.name not in names:
            container["args"] = [one for one in container.get("args", ()) if one not in pipeline.beam_pipeline_args]
    if options.target == "kubeflow":
        edits.remove_resolvers(spec)
        for node in [node for node, _ in _containers(spec) if node.driver and len(node.path) == 1]:
            edits.insert_input_state(spec, node)
        for node in [node for node, _ in _containers(spec) if node.name == BASE_MODEL]:
            edits.insert_version(spec, node)
        # Kubeflow's user interface shows artifacts that are outputs of the steps that write them.
        for node, container in _containers(spec):
            if shown := outputs_of(_executor(container), options.classes, pictures=node.name == "ImageExampleGen"):
                node.component["outputDefinitions"]["artifacts"].update(shown)
        train_on_machines(spec, deploy, image)
    return write_job(job, pipeline.pipeline_info.pipeline_root, deploy, options, own)


def write_job(job: dict[str, Any], root: str, deploy: Deploy, options: CompileOptions, own: Sequence[str] = ()) -> str:
    """Write a PipelineJob with the settings of `deploy` to `options.output` and return that path. Changes `job`.

    `own` are the names of the steps that use files of the project. Raises InfeedError as `compile_kubeflow` does.
    """
    spec = job["pipelineSpec"]
    apply_settings(spec, deploy, compiled_with.variables() if options.target == "kubeflow" else {})
    if own and options.folder and deploy.project == "archive":
        users = [node for node, _ in _containers(spec) if node.name in own]
        exclude = (*options.exclude, *deploy.exclude)
        edits.ship_project(
            users, Path(options.folder), exclude, root=folder_of(deploy.root or root), job_file=options.output
        )
    # After all other changes of the arguments, because it measures them.
    for node, _ in _containers(spec):
        edits.shorten_parameters(node, launcher=options.target == "kubeflow")
    spec["defaultPipelineRoot"] = root
    platform = platform_spec([node for node, _ in _containers(spec)], deploy)
    vertex = deploy.on(options.target)
    run_metadata = pipeline_job(vertex) if vertex else {}
    text = _text(job, platform, run_metadata, Path(options.output))
    files.write_bytes(options.output, text.encode())
    return options.output


def beam_options(deploy: Deploy, image: str, root: str) -> list[str]:
    """Return the Beam options that `deploy` adds to the nodes that process data.

    Raises InfeedError if the workers of their runner cannot use the root.
    """
    if runner := cluster_runner(deploy.beam_pipeline_args):
        check_places(runner, deploy.root or root)
    return with_image(deploy.beam_pipeline_args, image)


def _data_nodes(pipeline: Pipeline) -> Iterator[Any]:
    """Yield the components whose executors use Beam, including those of nested pipelines."""
    from tfx.dsl.components.base.executor_spec import BeamExecutorSpec

    for node in pipeline.components:
        if isinstance(getattr(node, "executor_spec", None), BeamExecutorSpec):
            yield node
        elif hasattr(node, "components"):
            yield from _data_nodes(node)


def _compile(
    pipeline: Pipeline, image: str, options: CompileOptions, parameters: Mapping[str, RuntimeParameter]
) -> dict[str, Any]:
    """Compile to a PipelineJob, with defaults in the spec (schema 2.1) and in runtimeConfig (schema 2.0)."""
    try:
        from tfx.orchestration.data_types import RuntimeParameter
        from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner as runner
    except ImportError as error:
        do = "install kfp, in the version that fits TFX: pip install 'tfx-infeed[tfx]'"
        raise InfeedError(f"cannot compile for Kubeflow: {error}", do=do) from error
    config = runner.KubeflowV2DagRunnerConfig(
        default_image=image,
        # Vertex AI has no launcher, so its steps use TFX's own entry point and open gs:// by TensorFlow.
        default_commands=list(STEP) if options.target == "kubeflow" else None,
        use_pipeline_spec_2_1=options.schema == "2.1",
    )
    values = (value for node in pipeline.components for value in node.exec_properties.values())
    declared = parameters or {value.name: value for value in values if isinstance(value, RuntimeParameter)}
    defaults = {name: one.default for name, one in declared.items() if one.default is not None}
    job: dict[str, Any] = runner.KubeflowV2DagRunner(config).run(pipeline, parameter_values=defaults, write_out=False)
    for name, definition in job["pipelineSpec"]["root"].get("inputDefinitions", {}).get("parameters", {}).items():
        if name in defaults:
            definition["defaultValue"] = defaults[name]
    _correct_values(job["pipelineSpec"])
    return job


def _correct_values(spec: Mapping[str, Any]) -> None:
    """Correct parameters from values of other steps: TFX's compiler names a task `Count_task`, and each type STRING."""
    tasks, components = spec["root"]["dag"]["tasks"], spec["components"]
    for task in tasks.values():
        component = components[task["componentRef"]["name"]]
        for name, given in task.get("inputs", {}).get("parameters", {}).items():
            if source := given.get("taskOutputParameter"):
                if source["producerTask"] not in tasks:
                    source["producerTask"] = source["producerTask"].removesuffix("_task")
                producer = components[tasks[source["producerTask"]]["componentRef"]["name"]]
                written = producer["outputDefinitions"]["parameters"][source["outputParameterKey"]]
                component["inputDefinitions"]["parameters"][name] = dict(written)
                # TFX's entry point gets the definitions of the inputs as an argument, too.
                words = spec["deploymentSpec"]["executors"][component["executorLabel"]]["container"].get("args", [])
                if message.INPUTS in words:
                    declared = json.dumps(component["inputDefinitions"], sort_keys=True)
                    words[words.index(message.INPUTS) + 1] = declared


def _executor(container: Mapping[str, Any]) -> str:
    """Return the import path of the executor; empty for a container without TFX's entry point."""
    arguments = container.get("args", [])
    return str(arguments[arguments.index(_EXECUTOR) + 1]) if _EXECUTOR in arguments else ""


def _is_of_project(executor: str, folder: str) -> bool:
    name, dot, _ = executor.partition(".")
    module = Path(folder, name)
    return bool(dot) and name not in ("infeed", "tfx") and (module.is_dir() or module.with_suffix(".py").is_file())


def train_on_machines(spec: Mapping[str, Any], deploy: Deploy, image: str) -> None:
    """Make the Trainer's step start the training job of `deploy`, if there is one. Changes `spec` in place."""
    if not deploy.training:
        return
    pod = pod_template(deploy.resources_of(TRAINER), image)
    job = {"options": schema.to_plain(deploy.training, defaults=False), "pod": pod}
    for node, container in _containers(spec):
        if node.name == TRAINER:
            container["args"] = [JOB, json.dumps(job, sort_keys=True), *container["args"]]


class _Dumper(yaml.SafeDumper):
    """YAML writer that quotes text like a number. Go's yaml.v3 accepts more numbers than PyYAML: 1e3, 0o17, -_1."""

    def _text(self, text: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="'" if _LIKE_NUMBER.match(text) else None)


_Dumper.add_representer(str, _Dumper._text)


def _text(
    job: Mapping[str, Any], platform: Mapping[str, Any] | None, run_metadata: Mapping[str, Any], output: Path
) -> str:
    if output.suffix != ".json":
        if run_metadata:
            what = f"YAML holds only a pipeline, and cannot hold {', '.join(run_metadata)} of a run"
            raise InfeedError(what, where=str(output), do="name the output *.json")
        documents = [job["pipelineSpec"], *([platform] if platform else [])]
        return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=True, width=120)
    if platform:
        what = "JSON cannot hold settings of pods, such as node selectors and secrets"
        raise InfeedError(what, where=str(output), do="name the output *.yaml, which holds them in a second document")
    labels = {**job["labels"], **run_metadata.get("labels", {})}
    return json.dumps({**job, **run_metadata, "labels": labels}, sort_keys=True, indent=1) + "\n"


def relative_function_paths(value: Any, folder: str) -> Any:
    """Return a copy of plain data with `folder/x.py:` replaced by `x.py:` in every string. Other paths stay."""
    written = sorted({folder, json.dumps(folder)[1:-1]})  # some strings hold JSON
    pattern = re.compile(rf"(?:{'|'.join(map(re.escape, written))})/(?=[^\"\s:]+\.py:)")
    return message.mapped(value, lambda one: pattern.sub("", one) if isinstance(one, str) else one)


def runtime_parameters(config: PipelineConfig) -> dict[str, RuntimeParameter]:
    """Return the runtime parameters by name, with the defaults of `parameter_defaults`."""
    from tfx.orchestration.data_types import RuntimeParameter

    defaults = parameter_defaults(config)
    return {name: RuntimeParameter(name, ptype=type(value), default=value) for name, value in defaults.items()}


def parameter_defaults(config: PipelineConfig) -> dict[str, str | int]:
    """Return the defaults of the pipeline's parameters by name. For `data` see `data_folder`."""
    data: dict[str, str | int] = {"data": data_folder(config)} if config.place else {}
    return {**data, **{name: config.train.option(name) for name in OVERRIDES}}


def data_folder(config: PipelineConfig) -> str:
    """Return the folder of the data on the cluster. If `data` is a file, return the folder of the file.

    Raises InfeedError if `deploy.data` and `data` name files of different names.
    """
    there = config.deploy.data or config.span_data or config.data
    _, here = split_path(config.span_data) if config.span_data else split_data(config.data)
    if here is None:
        return there
    folder, file = split_path(there) if has_spans(there) else os.path.split(there)
    if file != here:
        do = "use the same file name in both settings, or folders in both"
        raise InfeedError(f"deploy.data ends with {file!r}, but data with {here!r}", where="deploy.data", do=do)
    return folder


def apply_settings(spec: Mapping[str, Any], deploy: Deploy, variables: Mapping[str, str] | None = None) -> None:
    """Write the settings of `deploy.resources`, and the environment `variables` of every node, into `spec`.

    Raises InfeedError if `deploy.resources` names a node that does not exist, or that runs in no container.
    """
    nodes = list(_containers(spec))
    check_names(deploy, [node.name for node, _ in nodes if not edits.is_inserted(node.name)])
    for node, container in nodes:
        resources = edits.resources_of(deploy, node.name)
        if limits := container_resources(resources):
            container["resources"] = limits
        reading = {disk.READING_VARIABLE: "direct"} if deploy.reading == "direct" else {}
        if given := {**resources.variables, **reading, **(variables or {})}:
            container["env"] = [{"name": name, "value": value} for name, value in given.items()]
        if resources.retries:
            node.spec["retryPolicy"] = {"maxRetryCount": resources.retries, **_BACKOFF}
        cached = node.cacheable if resources.cache is None else resources.cache
        node.spec["cachingOptions"] = {"enableCache": True} if cached else {}


def container_resources(resources: Resources) -> dict[str, Any]:
    """Return the ResourceSpec: cores, memory in units of 10^9 bytes, and accelerators. Empty by default.

    ResourceSpec has no field for ephemeral storage. Kubeflow's driver turns any accelerator name into a limit of the
    pod, so the storage is written as an accelerator.
    """
    spec: dict[str, Any] = {}
    for name, (field, unit) in _AMOUNTS.items():
        if (amount := resources.amount(name)) is not None:
            spec[field] = amount / unit
    if resources.accelerator is not None:
        count = str(resources.accelerators or 1)  # JSON of protobuf writes an int64 as a string
        spec["accelerator"] = {"type": resources.accelerator, "count": count}
    elif (amount := resources.amount("ephemeral_storage")) is not None:
        spec["accelerator"] = {"type": disk.RESOURCE, "count": str(int(amount))}
    return spec


def check_names(deploy: Deploy, nodes: list[str]) -> None:
    """Raise InfeedError if `deploy.resources` names a node that is not among `nodes`."""
    unknown = [name for name in deploy.resources if name not in (DEFAULT, *nodes)]
    if unknown:
        do = f"use {DEFAULT} or one of {', '.join(sorted(nodes))}"
        raise InfeedError(f"no node {unknown[0]!r} runs in a container", where="deploy.resources", do=do)


def _containers(spec: Mapping[str, Any]) -> Iterator[tuple[Task, Spec]]:
    """Yield every node that runs in a container, including nested DAGs. Callers change both values in place."""
    return ((task, task.container) for task in leaves(read_tasks(spec)) if task.container is not None)
