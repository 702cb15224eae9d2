"""Compiled jobs made by hand: each step is a Python script that is handed an ExecutorInput, as TFX's steps are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infeed.pipelines.cluster.job.compiled import CompiledJob
from infeed.pipelines.cluster.rehearse.rehearsal import Rehearsal, RehearseOptions, rehearse
from infeed.pipelines.console.nodes import NodeReport

# What the scripts may call. Values of schema 2.0 come with their types.
HELPERS = """
import json, os, sys
given = json.loads(sys.argv[1])
inputs, outputs, said = given["inputs"], given["outputs"], {"artifacts": {}, "parameterValues": {}}
values = inputs.get("parameterValues", inputs.get("parameters"))

def source(key):
    return inputs["artifacts"][key]["artifacts"][0]

def read(key):
    return open(source(key)["uri"]).read()

def write(key, text, **metadata):
    [target] = outputs["artifacts"][key]["artifacts"]
    open(target["uri"], "w").write(text)
    said["artifacts"][key] = {"artifacts": [{"name": target["name"], "uri": target["uri"], "metadata": metadata}]}

def end():
    json.dump(said, open(outputs["outputFile"], "w"))
"""
MODEL = {"instanceSchema": "title: tfx.Model\ntype: object\n"}


def step(
    script: str = "",
    *,
    takes: Mapping[str, str] | None = None,
    gives: Mapping[str, Any] | Sequence[str] = (),
    parameters: Mapping[str, Any] | None = None,
    returns: Mapping[str, str] | None = None,
    driver: str | None = None,
    cache: bool = True,
    retries: int = 0,
    **more: Any,
) -> dict[str, Any]:
    """One step.

    Args:
      takes: input key -> "producer.key".
      gives: keys of output artifacts, with their types where that matters.
      parameters: constants, or sources such as `{"componentInputParameter": "x"}`.
      returns: type of each output parameter.
      more: of the PipelineTaskSpec, as it is.
    """
    container = {"image": "image:1", **_command(script)}
    if driver is not None:
        container["lifecycle"] = {"preCacheCheck": _command(driver)}
    return {
        "executor": {"container": container},
        "component": _component(takes or {}, gives, parameters or {}, returns or {}),
        "task": {
            "inputs": {
                "artifacts": {key: _artifact_source(source) for key, source in (takes or {}).items()},
                "parameters": {key: _parameter_source(value) for key, value in (parameters or {}).items()},
            },
            "cachingOptions": {"enableCache": cache},
            "retryPolicy": {"maxRetryCount": retries, "backoffDuration": "3600s"},
            **more,
        },
    }


def job(
    steps: Mapping[str, Mapping[str, Any]], parameters: Mapping[str, Any] | None = None, schema: str = "2.1.0"
) -> CompiledJob:
    """A job of these steps; `parameters` are the definitions of its own."""
    root: dict[str, Any] = {"dag": {"tasks": {}}, "inputDefinitions": {"parameters": dict(parameters or {})}}
    spec: dict[str, Any] = {"components": {}, "deploymentSpec": {"executors": {}}, "root": root}
    for name, parts in steps.items():
        root["dag"]["tasks"][name] = {"componentRef": {"name": f"comp-{name}"}, **parts["task"]}
        spec["components"][f"comp-{name}"] = {"executorLabel": f"exec-{name}", **parts["component"]}
        spec["deploymentSpec"]["executors"][f"exec-{name}"] = parts["executor"]
    return CompiledJob({**spec, "pipelineInfo": {"name": "small"}, "schemaVersion": schema})


def run(compiled: CompiledJob, root: Path, **options: Any) -> Rehearsal:
    """Rehearses in `root`."""
    return rehearse(compiled, RehearseOptions(root=str(root), **options), lambda nodes: None)


def states(rehearsal: Rehearsal) -> dict[str, str]:
    """State of each node, in the order of execution."""
    return {node.name: node.state.value for node in rehearsal.report.nodes}


def node(rehearsal: Rehearsal, name: str) -> NodeReport:
    [found] = [node for node in rehearsal.report.nodes if node.name == name]
    return found


def text(rehearsal: Rehearsal, name: str, key: str) -> str:
    """What the step wrote."""
    [artifact] = rehearsal.outputs[name][key]
    return Path(artifact.uri).read_text()


def _command(script: str) -> dict[str, Any]:
    return {"command": ["python", "-S", "-c", f"{HELPERS}\n{script}\nend()"], "args": ["{{$}}"]}


def _component(takes: Any, gives: Any, parameters: Any, returns: Any) -> dict[str, Any]:
    types = {int: "NUMBER_INTEGER", float: "NUMBER_DOUBLE", bool: "BOOLEAN", list: "LIST"}
    types_of = {key: types.get(type(value), "STRING") for key, value in parameters.items()}
    given = dict(gives) if isinstance(gives, Mapping) else dict.fromkeys(gives, MODEL)
    return {
        "inputDefinitions": {
            "artifacts": {key: {"artifactType": MODEL} for key in takes},
            "parameters": {key: {"parameterType": kind} for key, kind in types_of.items()},
        },
        "outputDefinitions": {
            "artifacts": {key: {"artifactType": kind} for key, kind in given.items()},
            "parameters": {key: {"parameterType": kind} for key, kind in returns.items()},
        },
    }


def _artifact_source(source: str) -> dict[str, Any]:
    producer, key = source.split(".")
    return {"taskOutputArtifact": {"producerTask": producer, "outputArtifactKey": key}}


def _parameter_source(value: Any) -> Any:
    return value if isinstance(value, dict) else {"runtimeValue": {"constant": value}}
