"""Steps on Kubeflow that inspect a node's input from outside the pipeline, so that the cache notices changes.

Kubeflow's backend runs no drivers. Its cache key of an ExampleGen holds only the parameters, so new files in the same
folder would hit the cache. The inserted step is never cached and passes the state of the files as a parameter. A step
before the node of a base model does the same for the newest version in the serving folder.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from infeed.pipelines.cluster.job.compiled import Task
from infeed.pipelines.deploy.options import BASE_MODEL, TRAINER, Deploy, Resources

SUFFIX = "-input"
VERSIONS = "infeed.components.trainer.versions"
"""Module of the step that finds the newest pushed model."""
VERSION = "base_model"
"""Output parameter of this step: the folder of the version, or the serving folder if nothing has been pushed."""
_MODULE = "infeed.components.kubeflow.input_state"
_TYPES = {"input_config": "STRING", "input_fingerprint": "STRING", "span": "NUMBER_INTEGER"}
_INPUTS = {"input_base": "--input-base", "input_config": "--config", "range_config": "--range-config"}


def insert(spec: Mapping[str, Any], node: Task) -> None:
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
    assert node.container is not None, "see `insert`"
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
    files = [word for key in outputs for word in (f"--{key}", f"{{{{$.outputs.parameters['{key}'].output_file}}}}")]
    container = {"image": node.container["image"], "command": ["python", "-m", module], "args": [*arguments, *files]}
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
