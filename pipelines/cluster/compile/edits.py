"""Changes of a compiled job: steps that inspect inputs, resolvers, long parameters, and the archive of the project."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infeed.components.base.errors import InfeedError
from infeed.components.base.units import size
from infeed.components.dataset import files
from infeed.components.engine import project_archive
from infeed.components.engine.beam_runner import Named
from infeed.components.kubeflow.message import ARGUMENT, is_packed, pack
from infeed.pipelines.cluster.job.compiled import IN_PLACE, STEP, Task, archive_beside, leaves, read_tasks
from infeed.pipelines.deploy.options import BASE_MODEL, TRAINER, Deploy, Resources
from infeed.pipelines.project.own_files import check_size, ignoring, names_of

if TYPE_CHECKING:
    from tfx.orchestration.pipeline import Pipeline

# Kubeflow's backend runs no drivers. Its cache key of an ExampleGen holds only the parameters, so new files in the same
# folder would hit the cache. The inserted step is never cached and passes the state of the files as a parameter. A step
# before the node of a base model does the same for the newest version in the serving folder.
SUFFIX = "-input"
VERSIONS = "infeed.components.trainer.versions"
"""Module of the step that finds the newest pushed model."""
VERSION = "base_model"
"""Output parameter of this step: the folder of the version, or the serving folder if nothing has been pushed."""
_MODULE = "infeed.components.kubeflow.input_state"
_TYPES = {"input_config": "STRING", "input_fingerprint": "STRING", "span": "NUMBER_INTEGER"}
_INPUTS = {"input_base": "--input-base", "input_config": "--config", "range_config": "--range-config"}


def insert_input_state(spec: Mapping[str, Any], node: Task) -> None:
    """Insert the step before `node`, an ExampleGen of the root DAG, and remove the node's driver. Changes `spec`."""
    assert node.container is not None, "only a container has a driver"
    name = f"{node.name}{SUFFIX}"
    given = node.spec["inputs"]["parameters"]
    read = {key: copy.deepcopy(given[key]) for key in _INPUTS if key in given}  # YAML writes shared objects as aliases
    arguments = [word for key in read for word in (_INPUTS[key], f"{{{{$.inputs.parameters['{key}']}}}}")]
    _insert(spec, node, name, _MODULE, arguments, _TYPES, read)
    node.container.pop("lifecycle")
    for key, kind in _TYPES.items():
        node.spec["inputs"]["parameters"][key] = _output(name, key)
        node.component["inputDefinitions"]["parameters"][key] = {"parameterType": kind}


def insert_version(spec: Mapping[str, Any], node: Task) -> None:
    """Insert the step that finds the newest pushed model before the node of the base model. Changes `spec`."""
    name, given = f"{TRAINER}{SUFFIX}", node.spec["inputs"]["parameters"]
    arguments = ["--serving", "{{$.inputs.parameters['serving']}}"]
    _insert(spec, node, name, VERSIONS, arguments, {VERSION: "STRING"}, {"serving": given["serving"]})
    given["serving"] = _output(name, VERSION)


def _output(producer: str, key: str) -> dict[str, Any]:
    return {"taskOutputParameter": {"producerTask": producer, "outputParameterKey": key}}


def _insert(
    spec: Mapping[str, Any],
    node: Task,
    name: str,
    module: str,
    arguments: Sequence[str],
    outputs: Mapping[str, str],
    inputs: Mapping[str, Any],
) -> None:
    """Insert a step before `node` that runs a Python module with `arguments` and the file of each output."""
    assert node.container is not None, "see `insert_input_state`"
    spec["root"]["dag"]["tasks"][name] = {
        "taskInfo": {"name": name},
        "componentRef": {"name": name},
        "cachingOptions": {},
        "inputs": {"parameters": inputs},
    }
    spec["components"][name] = {
        "executorLabel": f"{name}_executor",
        "inputDefinitions": {"parameters": {key: {"parameterType": "STRING"} for key in inputs}},
        "outputDefinitions": {"parameters": {key: {"parameterType": kind} for key, kind in outputs.items()}},
    }
    written = [word for key in outputs for word in (f"--{key}", f"{{{{$.outputs.parameters['{key}'].output_file}}}}")]
    container = {"image": node.container["image"], "command": ["python", "-m", module], "args": [*arguments, *written]}
    spec["deploymentSpec"]["executors"][f"{name}_executor"] = {"container": container}
    node.spec["dependentTasks"] = [*node.spec.get("dependentTasks", ()), name]


def is_inserted(node: str) -> bool:
    """Report whether the compiler adds the node. Only the other nodes can have settings in `deploy.resources`."""
    return node.endswith(SUFFIX) or node == BASE_MODEL


def resources_of(deploy: Deploy, node: str) -> Resources:
    """Return the resources of a node. A node of this module inherits those of its node, except cpu, memory and disk."""
    if not is_inserted(node):
        return deploy.resources_of_step(node)
    found = deploy.resources_of_step(TRAINER if node == BASE_MODEL else node.removesuffix(SUFFIX))
    machine = ("cpu", "cpu_request", "memory", "memory_request", "accelerator", "accelerators")
    cache = None if node == BASE_MODEL else False
    return dataclasses.replace(found, cache=cache, **dict.fromkeys((*machine, "ephemeral_storage", "shared_memory")))


# Kubeflow's backend rejects every job that has a resolver. An optional input that a resolver would fill, such as the
# baseline model of an Evaluator, stays empty, as in the first run of a pipeline.
_NO_RESOLVERS = "give the artifact by an Importer, or compile with --target vertex, which runs resolvers"


def inputs_of_resolvers(pipeline: Pipeline) -> list[str]:
    """Return the optional inputs that resolvers would fill, such as `Evaluator.baseline_model`.

    Raises InfeedError if a component requires such an input.
    """
    from tfx.dsl.components.common.resolver import Resolver

    resolvers, found = {node.id for node in pipeline.components if isinstance(node, Resolver)}, []
    for node in pipeline.components:
        for key, channel in node.inputs.items() if node.id not in resolvers else ():
            if getattr(channel, "producer_component_id", None) not in resolvers:
                continue
            if not node.spec.INPUTS[key].optional:
                what = f"{node.id} requires {key} of a resolver, and Kubeflow's backend runs no resolvers"
                raise InfeedError(what, where=f"node {node.id}", do=_NO_RESOLVERS)
            found.append(f"{node.id}.{key}")
    return found


def remove_resolvers(spec: Mapping[str, Any]) -> None:
    """Remove the resolvers of the root DAG, and the inputs that they would fill. Changes `spec`.

    Raises InfeedError if the condition of a task names such an input.
    """
    tasks = list(leaves(read_tasks(spec)))
    resolvers = [task for task in tasks if "resolver" in (task.executor or {})]
    names = {task.name for task in resolvers}
    for task in tasks if names else ():
        task.spec["dependentTasks"] = [name for name in task.spec.get("dependentTasks", ()) if name not in names]
        artifacts = task.spec.get("inputs", {}).get("artifacts", {}) if task.name not in names else {}
        for key, source in list(artifacts.items()):
            if source.get("taskOutputArtifact", {}).get("producerTask") not in names:
                continue
            if f"'{key}'" in task.spec.get("triggerPolicy", {}).get("condition", ""):
                what = f"the condition of {task.name} depends on a resolver, and Kubeflow's backend runs no resolvers"
                raise InfeedError(what, where=f"node {task.name}", do=_NO_RESOLVERS)
            del artifacts[key], task.component["inputDefinitions"]["artifacts"][key]
    for task in resolvers:
        del spec["root"]["dag"]["tasks"][task.name], spec["components"][task.spec["componentRef"]["name"]]
        del spec["deploymentSpec"]["executors"][task.component["executorLabel"]]


LIMIT = 128 << 10
"""Bytes of one argument, with its final zero byte: MAX_ARG_STRLEN, https://man7.org/linux/man-pages/man2/execve.2.html."""
_LONG_PARAMETER = 8 << 10  # bytes of a parameter; shorter ones stay readable
_BYTES_OF_ARTIFACTS = 16 << 10  # bytes reserved in the message for artifacts with their types and metadata


def shorten_parameters(task: Task, *, launcher: bool) -> None:
    """Compress the long parameters of a step in place, and select the entry point that decompresses them.

    The parameters of a step with a driver stay as they are, because TFX's driver reads them too. Without Kubeflow's
    launcher (`launcher`), artifacts keep their URIs. Raises InfeedError if an argument is still too long.
    """
    container = task.container
    assert container is not None, "only a container has arguments"
    given = task.spec.get("inputs", {}).get("parameters", {})
    expands = task.driver is None and ARGUMENT in container.get("args", ())  # only TFX's steps have this argument
    constants = [value.get("runtimeValue", {}) for value in given.values() if expands]
    texts = [value for value in constants if isinstance(value.get("constant"), str)]
    long = [value for value in texts if len(value["constant"]) > _LONG_PARAMETER]
    for value in long:
        value["constant"] = pack(value["constant"])
    if long:
        container["command"] = [*STEP, *(() if launcher else (IN_PLACE,))]
    words = [*container.get("command", ()), *container.get("args", ())]
    lengths = {f"parameter {name}": len(json.dumps(value).encode()) for name, value in given.items()}
    lengths |= {"the config" if is_packed(word) else f"argument {word[:40]}": len(word.encode()) for word in words}
    # The launcher passes all parameters in one argument, so their sum counts, and each word of the command by itself.
    message = sum(length for name, length in lengths.items() if name.startswith("parameter")) + _BYTES_OF_ARTIFACTS
    name, longest = max(lengths.items(), key=lambda item: item[1], default=("", 0))
    if max(message, longest) >= LIMIT:
        what = f"{name} has {size(longest)}, and a step takes {size(LIMIT)} in one argument"
        do = "use fewer columns (--columns), or shorter names of columns"
        raise InfeedError(what, where=f"step {task.node}", do=do)


_TRAINING = "ai_platform_training_args"  # key in the custom_config of a Trainer that starts a custom job


def ship_project(tasks: Iterable[Task], folder: Path, exclude: Sequence[str], *, root: str, job_file: str) -> None:
    """Write the archive of a project beside the job file, and set its URI in the steps that use it.

    Only these steps name the archive, so a changed file does not invalidate the cache of the others.
    The URI is in the folder `project` below `root`, the folder of everything that the pipeline writes; `infeed submit`
    uploads the archive. Raises InfeedError if the project is too large, or Beam's workers on a cluster need its files.
    """
    ignored = ignoring((*exclude, Path(job_file).name, archive_beside("*").name))
    do = "exclude it: deploy.exclude: [{}], or keep data outside the folder"
    check_size(folder, ignored, project_archive.MOST_BYTES, do)
    archive = project_archive.pack(folder, names_of(folder, ignored))
    place = files.join(root, "project", f"{project_archive.digest(archive)}{project_archive.SUFFIX}")
    for task in tasks:
        _name_archive(place, task)
    files.write_bytes(str(archive_beside(job_file)), archive)


def _name_archive(place: str, task: Task) -> None:
    container, variable = task.container, {"name": project_archive.VARIABLE, "value": place}
    assert container is not None, "only a container runs the user's code"
    runner = Named.of([str(one) for one in container.get("args", ())])
    if runner.is_cluster:
        what = f"workers of {runner.short_name} run the project's code in {task.name}, and do not fetch its archive"
        do = "set deploy.project: image, so that the image of the workers holds the project"
        raise InfeedError(what, where="deploy.project", do=do)
    container["env"] = [*container.get("env", ()), variable]
    container["args"] = [*container.get("args", ()), f"{project_archive.OPTION}{place}"]
    if tuple(container["command"][: len(STEP)]) != STEP:  # TFX's own entry point, on Vertex AI
        container["command"] = [*STEP, IN_PLACE]
    # TFX starts the machines of a custom job from the step's parameters.
    value = task.spec.get("inputs", {}).get("parameters", {}).get("custom_config", {}).get("runtimeValue", {})
    config = json.loads(value["constant"]) if _TRAINING in str(value.get("constant")) else {}
    for pool in config.get(_TRAINING, {}).get("job_spec", {}).get("worker_pool_specs", ()):
        pool["container_spec"]["env"] = [*pool["container_spec"].get("env", ()), variable]
    if config:
        value["constant"] = json.dumps(config, sort_keys=True)
