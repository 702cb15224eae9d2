"""Small compiled jobs, as a compiler would write them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import yaml

IMAGE = "registry.example/taxi:1"


def spec(**changes: Any) -> dict[str, Any]:
    """Of schema 2.1: ExampleGen, then Trainer, then Pusher inside a condition."""
    made = {
        "pipelineInfo": {"name": "taxi"},
        "schemaVersion": "2.1.0",
        "sdkVersion": "tfx-1.16.0",
        "defaultPipelineRoot": "gs://bucket/taxi",
        "deploymentSpec": {
            "executors": {f"{name}_executor": _executor() for name in ("ExampleGen", "Trainer", "Pusher")}
        },
        "components": {
            **{name: {"executorLabel": f"{name}_executor"} for name in ("ExampleGen", "Trainer", "Pusher")},
            "condition": {"dag": {"tasks": {"Pusher": _task("Pusher")}}},
        },
        "root": {
            "inputDefinitions": {
                "parameters": {
                    "data": {"parameterType": "STRING"},
                    "epochs": {"parameterType": "NUMBER_INTEGER", "defaultValue": 5.0},
                    "rate": {"parameterType": "NUMBER_DOUBLE", "defaultValue": 0.1},
                    "augment": {"parameterType": "BOOLEAN", "defaultValue": True},
                }
            },
            "dag": {
                "tasks": {
                    "condition": _task("condition", after=["Trainer"]),
                    "Trainer": _task("Trainer", after=["ExampleGen"]),
                    "ExampleGen": _task("ExampleGen"),
                }
            },
        },
    }
    return {**copy.deepcopy(made), **changes}


def spec_2_0() -> dict[str, Any]:
    """The same of schema 2.0, which has other names for types."""
    made = spec(schemaVersion="2.0.0")
    made["root"]["inputDefinitions"]["parameters"] = {"epochs": {"type": "INT"}, "data": {"type": "STRING"}}
    return made


def of_steps(*names: str) -> dict[str, Any]:
    """Of schema 2.1: these steps, one after the other."""
    dag = {
        "tasks": {name: _task(name, after=list(before)) for name, before in zip(names, [(), *zip(names)], strict=False)}
    }
    return {
        "pipelineInfo": {"name": "js"},
        "schemaVersion": "2.1.0",
        "deploymentSpec": {"executors": {f"{name}_executor": _executor() for name in names}},
        "components": {name: {"executorLabel": f"{name}_executor"} for name in names},
        "root": {"dag": dag},
    }


def with_accelerator(kind: str) -> dict[str, Any]:
    """The deploymentSpec of a job whose Trainer wants one of these."""
    trainer = _executor()
    trainer["container"]["resources"] = {"accelerator": {"type": kind, "count": "1"}}
    return {"executors": {"Trainer_executor": trainer}}


def write_yaml(path: Path, *documents: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump_all(documents))
    return path


def write_json(path: Path, made: dict[str, Any], **runtime: Any) -> Path:
    runtime = {"gcsOutputDirectory": "gs://bucket/taxi", **runtime}
    path.write_text(json.dumps({"displayName": "taxi", "pipelineSpec": made, "runtimeConfig": runtime}))
    return path


def _executor() -> dict[str, Any]:
    return {"container": {"image": IMAGE, "command": ["python", "-m", "step"], "args": ["{{$}}"]}}


def _task(name: str, after: list[str] | None = None) -> dict[str, Any]:
    made = {"taskInfo": {"name": name}, "componentRef": {"name": name}, "cachingOptions": {"enableCache": True}}
    return {**made, "dependentTasks": after} if after else made
