"""Stands in for the API server of Kubeflow Pipelines: the REST API v2beta1, as far as a run needs it.

What it refuses, the real one refuses, in the same words: backend/src/apiserver/template/v2_template.go and
backend/src/v2/compiler/argocompiler/argo.go of https://github.com/kubeflow/pipelines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import kfp_server_api
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2
from stand_in import Answer, Asked, StandIn

Frame = Mapping[str, Any]
"""A run at one moment: `state`, maybe the `history` of states, and the state of each step: {"Trainer": "RUNNING"}."""

CANCELLED: Frame = {"state": "FAILED", "history": ["PENDING", "RUNNING", "CANCELING", "FAILED"]}
_PREFIX = "/apis/v2beta1"
_NUMBERS = {"NUMBER_INTEGER": (int, float), "NUMBER_DOUBLE": (int, float), "STRING": str, "BOOLEAN": bool}


class KfpServer(StandIn):
    """Plays one frame of `frames` for each time it is asked for a run, the last one from then on.

    Args:
      token: what a request has to bear, if anything.
      multi_user: whether a run needs a namespace.
    """

    def __init__(self, frames: Sequence[Frame] = (), *, token: str | None = None, multi_user: bool = False) -> None:
        self.frames = list(frames)
        self._token = token
        self._multi_user = multi_user
        self._experiments: dict[str, dict[str, Any]] = {}
        self._runs: dict[str, dict[str, Any]] = {}
        super().__init__()

    @staticmethod
    def refusal(code: int, message: str) -> Answer:
        return Answer({"error": message, "code": 3, "message": message, "details": []}, code)

    def route(self, asked: Asked) -> Answer:
        if self._token and asked.headers.get("Authorization") != f"Bearer {self._token}":
            return self.refusal(401, "Request not authenticated: missing or wrong token")
        if asked.path == f"{_PREFIX}/healthz":
            return Answer({"commit_sha": "0", "tag_name": "2.5.0", "multi_user": self._multi_user})
        if asked.path == f"{_PREFIX}/experiments":
            return self._create_experiment(asked) if asked.method == "POST" else self._list_experiments(asked)
        if asked.path == f"{_PREFIX}/runs" and asked.method == "POST":
            return self._create_run(asked.body)
        if asked.path == f"{_PREFIX}/recurringruns" and asked.method == "POST":
            return self._create_recurring(asked.body)
        if asked.path.startswith(f"{_PREFIX}/runs/") and asked.path.endswith(":terminate"):
            self.frames = [CANCELLED]
            return Answer({})
        if found := re.fullmatch(rf"{_PREFIX}/runs/([^/]+)", asked.path):
            return self._get_run(found[1])
        return self.refusal(404, "Not Found")

    def _create_experiment(self, asked: Asked) -> Answer:
        _check_fields(asked.body, kfp_server_api.V2beta1Experiment)
        name = asked.body["display_name"]
        self._experiments[name] = {"experiment_id": f"experiment-{len(self._experiments)}", **asked.body}
        return Answer(self._experiments[name])

    def _list_experiments(self, asked: Asked) -> Answer:
        wanted = json.loads(asked.query["filter"])["predicates"][0]["stringValue"]
        found = self._experiments.get(wanted)
        return Answer({"experiments": [found]} if found else {})

    def _create_run(self, body: Any) -> Answer:
        _check_fields(body, kfp_server_api.V2beta1Run)
        if why := _refusal(body):
            return self.refusal(400, f"Failed to create a run: InvalidInputError: {why}")
        run_id = f"run-{len(self._runs)}"
        self._runs[run_id] = {**body, "run_id": run_id, "state": "PENDING", "asked": 0}
        return Answer(self._public(run_id))

    def _create_recurring(self, body: Any) -> Answer:
        _check_fields(body, kfp_server_api.V2beta1RecurringRun)
        if why := _refusal(body):
            return self.refusal(400, f"Failed to create a recurring run: InvalidInputError: {why}")
        if len(body["trigger"]["cron_schedule"]["cron"].split()) != 6:
            return self.refusal(400, "Schedule cron is not a supported format")
        return Answer({**body, "recurring_run_id": "recurring-0"})

    def _get_run(self, run_id: str) -> Answer:
        run = self._runs[run_id]
        frame = self.frames[min(run["asked"], len(self.frames) - 1)]
        run["asked"] += 1
        run["state"] = frame["state"]
        run["state_history"] = [{"state": state} for state in frame.get("history", [frame["state"]])]
        run["error"] = {"message": frame["error"]} if "error" in frame else None
        run["run_details"] = {"task_details": [task for name in frame for task in self._tasks(name, frame)]}
        return Answer(self._public(run_id))

    def _public(self, run_id: str) -> dict[str, Any]:
        return {name: value for name, value in self._runs[run_id].items() if name != "asked"}

    def _tasks(self, name: str, frame: Frame) -> list[dict[str, Any]]:
        """A step's three nodes of Argo's: the driver, the step, and the pod below it."""
        if name in ("state", "error", "history"):
            return []
        return [_task(f"{name}-driver", "SUCCEEDED"), _task(name, frame[name]), _task("executor", frame[name])]


def _task(name: str, state: str) -> dict[str, Any]:
    """As toApiPipelineTaskDetail in backend/src/apiserver/server/api_converter.go: no pod of its own, and no error."""
    began = datetime.now(timezone.utc) - timedelta(seconds=90)
    ended = datetime(1970, 1, 1, tzinfo=timezone.utc) if state == "RUNNING" else began + timedelta(seconds=90)
    return {
        "run_id": "run-0",
        "display_name": name,
        "state": state,
        "create_time": "2025-03-01T12:00:00Z",
        "start_time": began.isoformat(),
        "end_time": ended.isoformat(),
        "child_tasks": [],
    }


def _check_fields(body: Any, model: Any) -> None:
    """That every field exists in kfp's own model, and holds what the model can hold."""
    assert set(body) <= set(model.attribute_map.values()), f"unknown fields in {sorted(body)}"
    client = kfp_server_api.ApiClient()
    client._ApiClient__deserialize(body, model)


def _refusal(body: Any) -> str | None:
    spec, platform = body["pipeline_spec"], None
    if "pipeline_spec" in spec:
        spec, platform = spec["pipeline_spec"], spec["platform_spec"]
    parsed = json_format.ParseDict(spec, pipeline_spec_pb2.PipelineSpec())
    if platform is not None:
        json_format.ParseDict(platform, pipeline_spec_pb2.PlatformSpec())
    deployment = json_format.ParseDict(
        json_format.MessageToDict(parsed.deployment_spec), pipeline_spec_pb2.PipelineDeploymentConfig()
    )
    if parsed.schema_version != "2.1.0":
        return f"KFP only supports schema version 2.1.0, but the pipeline spec has version {parsed.schema_version}"
    if any(executor.HasField("resolver") for executor in deployment.executors.values()):
        return "resolver not implemented yet"
    return _parameter_refusal(parsed, body.get("runtime_config", {}).get("parameters", {}))


def _parameter_refusal(spec: Any, given: Mapping[str, Any]) -> str | None:
    known = spec.root.input_definitions.parameters
    for name, value in given.items():
        if name not in known:
            return f"parameter {name} provided is not required by pipeline"
        kind = pipeline_spec_pb2.ParameterType.ParameterTypeEnum.Name(known[name].parameter_type)
        if not isinstance(value, _NUMBERS[kind]):
            return f"input parameter {name} requires type {kind}"
    for name in known:
        if name not in given and not known[name].HasField("default_value"):
            return f"parameter {name} is not optional, yet has neither default value nor user provided value"
    return None
