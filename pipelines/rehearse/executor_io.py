"""What a step is handed and what it hands back: the messages ExecutorInput and ExecutorOutput, as JSON.

https://github.com/kubeflow/pipelines/blob/master/api/v2alpha1/pipeline_spec.proto; artifacts and output parameters are
laid out as Kubeflow's launcher does it (backend/src/v2/component/launcher_v2.go).
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infeed.components.errors import InfeedError
from infeed.pipelines.rehearse import placeholders, values
from infeed.pipelines.rehearse.dag import Task
from infeed.pipelines.rehearse.scope import Bundle
from infeed.pipelines.rehearse.store import Artifact


@dataclass(frozen=True)
class Place:
    """Where one attempt writes.

    Attributes:
      folder: its own; each artifact is a file or folder in it, named by its key.
      name: of the step in the store, the first part of its artifacts' names.
    """

    folder: str
    name: str

    @property
    def output_file(self) -> str:
        """Where the step writes its ExecutorOutput, and its driver before it."""
        return os.path.join(self.folder, "executor_output.json")

    def parameter_file(self, key: str) -> str:
        """Where a container that knows nothing of ExecutorOutput writes an output parameter."""
        return os.path.join(self.folder, "output_parameters", key)


def planned_outputs(task: Task, place: Place) -> dict[str, Artifact]:
    """The artifacts that the step is to write, by key."""
    declared = task.component.get("outputDefinitions", {}).get("artifacts", {})
    return {
        key: Artifact(
            name=f"{place.name}/{key}",
            type=spec["artifactType"],
            uri=os.path.join(place.folder, key),
            metadata=spec.get("metadata", {}),
        )
        for key, spec in declared.items()
    }


def executor_input(inputs: Bundle, outputs: Mapping[str, Artifact], task: Task, place: Place, legacy: bool) -> Any:
    """The ExecutorInput message.

    Args:
      outputs: of the step, by key.
      legacy: types every parameter, as schema 2.0 does.
    """
    if legacy:
        parameters = {"parameters": {key: values.to_legacy(value) for key, value in inputs.parameters.items()}}
    else:
        parameters = {"parameterValues": _whole(dict(inputs.parameters))}
    return {
        "inputs": {
            **parameters,
            "artifacts": {k: {"artifacts": [a.to_json() for a in found]} for k, found in inputs.artifacts.items()},
        },
        "outputs": {
            "parameters": {key: {"outputFile": place.parameter_file(key)} for key in _output_parameters(task)},
            "artifacts": {key: {"artifacts": [artifact.to_json()]} for key, artifact in outputs.items()},
            "outputFile": place.output_file,
        },
    }


def view(message: Any, inputs: Bundle, outputs: Mapping[str, Artifact], job: Mapping[str, Any]) -> placeholders.View:
    """What the placeholders of the step's command line stand for."""
    files = {key: {"output_file": spec["outputFile"]} for key, spec in message["outputs"]["parameters"].items()}
    return {
        **job,
        "": message,
        "inputs": placeholders.inputs_view(inputs.parameters, inputs.artifacts),
        "outputs": {
            "parameters": files,
            "artifacts": {key: placeholders.artifact_view(artifact) for key, artifact in outputs.items()},
            "output_file": message["outputs"]["outputFile"],
        },
    }


def read_output(place: Place) -> Any:
    """The ExecutorOutput that was written; an empty one where there is none."""
    try:
        with open(place.output_file, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return {}
    except ValueError as error:
        do = "the step is to write an ExecutorOutput in JSON"
        raise InfeedError(f"not JSON: {error}", where=place.output_file, do=do) from error


def output_values(output: Any) -> dict[str, Any]:
    """The parameters in an ExecutorOutput, in either schema."""
    legacy = {key: values.legacy_value(typed) for key, typed in output.get("parameters", {}).items()}
    return {**legacy, **output.get("parameterValues", {})}


def finished_outputs(planned: Mapping[str, Artifact], output: Any, task: Task, place: Place) -> Bundle:
    """The outputs as planned, with what the step says about them.

    Raises:
      InfeedError: it did not write one of its output parameters.
    """
    given = output_values(output)
    parameters = {
        key: given[key] if key in given else _read_parameter(key, spec, place)
        for key, spec in _output_parameters(task).items()
    }
    return Bundle(parameters, {key: [artifact] for key, artifact in updated(planned, output).items()})


def updated(planned: Mapping[str, Artifact], output: Any) -> dict[str, Artifact]:
    """Artifacts with the URI and metadata that an ExecutorOutput gives them."""
    said = {key: found["artifacts"][0] for key, found in output.get("artifacts", {}).items() if found.get("artifacts")}
    return {
        key: dataclasses.replace(
            artifact,
            uri=said.get(key, {}).get("uri") or artifact.uri,
            metadata={**artifact.metadata, **said.get(key, {}).get("metadata", {})},
        )
        for key, artifact in planned.items()
    }


def _output_parameters(task: Task) -> Mapping[str, Any]:
    found: Mapping[str, Any] = task.component.get("outputDefinitions", {}).get("parameters", {})
    return found


def _read_parameter(key: str, spec: Mapping[str, Any], place: Place) -> Any:
    path = place.parameter_file(key)
    if not os.path.isfile(path):
        raise InfeedError(f"the step did not write its output parameter {key!r}", where=path, do="write it there")
    with open(path, encoding="utf-8") as file:
        return values.parse(file.read(), values.declared_type(spec), key)


def _whole(value: Any) -> Any:
    """3.0 as 3: protobuf's JSON, through which the cluster passes everything, knows no other way to write it."""
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
