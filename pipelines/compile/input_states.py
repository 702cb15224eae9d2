"""Steps that inspect the input of each file-based ExampleGen on Kubeflow, so that its cache works.

Kubeflow's backend runs no drivers, and knows an ExampleGen only by its parameters: new files in the same folder would
get old Examples from the cache. The inserted step, which is never cached, makes the state of the files a parameter.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

from infeed.components.kubeflow.input_state import OUTPUTS
from infeed.pipelines.deploy.options import Deploy, Resources
from infeed.pipelines.job.compiled import Task

SUFFIX = "-input"
_MODULE = "infeed.components.kubeflow.input_state"
_TYPES = {"input_config": "STRING", "input_fingerprint": "STRING", "span": "NUMBER_INTEGER"}
_INPUTS = {"input_base": "--input-base", "input_config": "--config", "range_config": "--range-config"}


def insert(spec: Mapping[str, Any], node: Task) -> None:
    """Insert the step before `node`, an ExampleGen with a driver, which this function removes.

    Args:
      spec: PipelineSpec, which this function changes in place.
      node: task in the root DAG.
    """
    assert node.container is not None, "only a container has a driver"
    name = f"{node.name}{SUFFIX}"
    given = node.spec["inputs"]["parameters"]
    read = {key: copy.deepcopy(given[key]) for key in _INPUTS if key in given}  # else YAML gets aliases
    spec["root"]["dag"]["tasks"][name] = {
        "taskInfo": {"name": name},
        "componentRef": {"name": name},
        "cachingOptions": {},
        "inputs": {"parameters": read},
    }
    spec["components"][name] = {
        "executorLabel": f"{name}_executor",
        "inputDefinitions": {"parameters": {key: {"parameterType": "STRING"} for key in read}},
        "outputDefinitions": {"parameters": {key: {"parameterType": kind} for key, kind in _TYPES.items()}},
    }
    arguments = [word for key in read for word in (_INPUTS[key], f"{{{{$.inputs.parameters['{key}']}}}}")]
    arguments += [
        word for key in OUTPUTS for word in (f"--{key}", f"{{{{$.outputs.parameters['{key}'].output_file}}}}")
    ]
    container = {"image": node.container["image"], "command": ["python", "-m", _MODULE], "args": arguments}
    spec["deploymentSpec"]["executors"][f"{name}_executor"] = {"container": container}
    _depend(node, name)


def _depend(node: Task, producer: str) -> None:
    """Take the parameters of `node` from the step, and remove its driver."""
    assert node.container is not None, "see `insert`"
    node.container.pop("lifecycle")
    for key, kind in _TYPES.items():
        source = {"taskOutputParameter": {"producerTask": producer, "outputParameterKey": key}}
        node.spec["inputs"]["parameters"][key] = source
        node.component["inputDefinitions"]["parameters"][key] = {"parameterType": kind}
    node.spec["dependentTasks"] = [*node.spec.get("dependentTasks", ()), producer]


def resources_of(deploy: Deploy, node: str) -> Resources:
    """Return the resources of a node. A step of this module has those of its ExampleGen, without machines."""
    found = deploy.resources_of_step(node.removesuffix(SUFFIX))
    if not node.endswith(SUFFIX):
        return found
    machine = ("cpu", "cpu_request", "memory", "memory_request", "accelerator", "accelerators")
    return dataclasses.replace(found, cache=False, **dict.fromkeys((*machine, "ephemeral_storage", "shared_memory")))
