"""What a task takes: constants, inputs of the dag it is in, outputs of the tasks before it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from infeed.components.errors import InfeedError
from infeed.pipelines.local.nodes import NodeState
from infeed.pipelines.rehearse import placeholders, values
from infeed.pipelines.rehearse.dag import Spec, Task
from infeed.pipelines.rehearse.store import Artifact
from infeed.pipelines.rehearse.values import Value


@dataclass(frozen=True)
class Bundle:
    """Parameters and artifacts by key: what goes into a task or comes out of it."""

    parameters: Mapping[str, Value] = field(default_factory=dict)
    artifacts: Mapping[str, Sequence[Artifact]] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """What became of a task; `note` is what else there is to say in a few words."""

    state: NodeState
    outputs: Bundle = Bundle()
    error: str = ""
    note: str = ""

    @property
    def succeeded(self) -> bool:
        return self.state in (NodeState.DONE, NodeState.CACHED)


@dataclass(frozen=True)
class Scope:
    """A dag while it runs.

    Attributes:
      job: values of the whole job by the names that placeholders and runtime parameters use.
      inputs: of the dag.
      results: of the tasks in it so far.
    """

    job: Mapping[str, Any]
    inputs: Bundle
    results: Mapping[str, Result]


def gather(task: Task, scope: Scope) -> Bundle:
    """The inputs of a task; optional ones that nobody gives are left out.

    Raises:
      InfeedError: an input that is not optional has no value.
    """
    given = task.spec.get("inputs", {})
    declared = task.component.get("inputDefinitions", {})
    artifacts = {key: _artifacts(source, scope) for key, source in given.get("artifacts", {}).items()}
    parameters = {
        **{key: spec.get("defaultValue") for key, spec in declared.get("parameters", {}).items()},
        **{k: v for k, source in given.get("parameters", {}).items() if (v := _parameter(source, scope)) is not None},
    }
    for kind, found in (("parameters", parameters), ("artifacts", artifacts)):
        _check_given(kind, found, given, declared.get(kind, {}), task)
    known = Bundle(_present(parameters), _present(artifacts))
    return _with_placeholders(known, given.get("parameters", {}), declared.get("parameters", {}), scope)


def dag_outputs(task: Task, results: Mapping[str, Result]) -> Bundle:
    """What a dag hands out of what its tasks made; of several branches, the one that ran."""
    outputs = task.component["dag"].get("outputs", {})
    parameters = {key: _selected(spec, results) for key, spec in outputs.get("parameters", {}).items()}
    artifacts: dict[str, list[Artifact]] = {}
    for key, spec in outputs.get("artifacts", {}).items():
        for selector in spec.get("artifactSelectors", ()):
            made = results[selector["producerSubtask"]].outputs.artifacts
            artifacts.setdefault(key, []).extend(made.get(selector["outputArtifactKey"], ()))
    return Bundle(_present(parameters), artifacts)


def _parameter(source: Spec, scope: Scope) -> Value:
    if "componentInputParameter" in source:
        return scope.inputs.parameters.get(source["componentInputParameter"])
    if "taskOutputParameter" in source:
        output = source["taskOutputParameter"]
        return scope.results[output["producerTask"]].outputs.parameters.get(output["outputParameterKey"])
    if "taskFinalStatus" in source:
        return _final_status(source["taskFinalStatus"]["producerTask"], scope)
    runtime = source["runtimeValue"]
    if "runtimeParameter" in runtime:
        return scope.job["parameters"].get(runtime["runtimeParameter"])
    return values.constant(runtime)


def _artifacts(source: Spec, scope: Scope) -> Sequence[Artifact] | None:
    if "componentInputArtifact" in source:
        return scope.inputs.artifacts.get(source["componentInputArtifact"])
    output = source["taskOutputArtifact"]
    return scope.results[output["producerTask"]].outputs.artifacts.get(output["outputArtifactKey"])


def _final_status(producer: str, scope: Scope) -> dict[str, Any]:
    """PipelineTaskFinalStatus, as exit handlers are told of the dag before them."""
    result = scope.results[producer]
    return {
        "state": "SUCCEEDED" if result.succeeded else "FAILED",
        "error": {"code": 0 if result.succeeded else 9, "message": result.error},  # 9: gRPC's FAILED_PRECONDITION
        "pipelineJobResourceName": scope.job["pipeline_job_resource_name"],
        "pipelineTaskName": producer,
    }


def _check_given(kind: str, found: Mapping[str, Any], given: Spec, declared: Spec, task: Task) -> None:
    for key in given.get(kind, {}):
        if found.get(key) is None and not declared.get(key, {}).get("isOptional"):
            do = "mark the input optional, or see why the task that should give it did not"
            raise InfeedError(f"the input {key!r} has no value", where=f"task {task.node}", do=do)


def _with_placeholders(known: Bundle, sources: Spec, declared: Spec, scope: Scope) -> Bundle:
    """Constants may name other inputs of the task; and what is declared a string is handed over as one."""
    view = {**scope.job, "inputs": placeholders.inputs_view(known.parameters, known.artifacts)}
    parameters = dict(known.parameters)
    for key, value in known.parameters.items():
        if isinstance(value, str) and "runtimeValue" in sources.get(key, {}):
            parameters[key] = placeholders.fill(value, view)
        elif isinstance(value, dict) and values.declared_type(declared.get(key, {})) == "STRING":
            parameters[key] = json.dumps(value)  # TFX's exit handlers declare the final status so
    return Bundle(parameters, known.artifacts)


def _selected(spec: Spec, results: Mapping[str, Result]) -> Value:
    several = spec.get("valueFromOneof", {}).get("parameterSelectors", ())
    for selector in several or (spec["valueFromParameter"],):
        result = results[selector["producerSubtask"]]
        if result.succeeded:
            return result.outputs.parameters.get(selector["outputParameterKey"])
    return None


def _present(found: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if value is not None}
