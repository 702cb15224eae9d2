"""Stands in for Vertex AI: pipeline jobs and experiments over REST, as google-cloud-aiplatform 1 speaks it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from google.cloud.aiplatform_v1.types import Context, PipelineJob, Schedule
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2
from stand_in import Answer, Asked, StandIn

Frame = Mapping[str, Any]
"""A run at one moment: `state`, and for each task its state, with an error if it is a pair."""

_JOBS = r"/v1/projects/([^/]+)/locations/([^/]+)/pipelineJobs"
_STORE = "projects/[^/]+/locations/[^/]+/metadataStores/default"
_STORE_OF_P = "projects/p/locations/us-central1/metadataStores/default"
_CUSTOM_JOB = "projects/1/locations/us-central1/customJobs/{}"


class VertexServer(StandIn):
    """Plays one frame of `frames` for each time it is asked for a job, the last one from then on."""

    def __init__(self, frames: Sequence[Frame] = ()) -> None:
        self.frames = list(frames)
        self._jobs: dict[str, dict[str, Any]] = {}
        self.experiments: dict[str, list[str]] = {}
        self._asked_for: dict[str, int] = {}
        super().__init__()

    @property
    def names(self) -> list[str]:
        """Of the jobs that were made."""
        return list(self._jobs)

    def route(self, asked: Asked) -> Answer:
        if not asked.headers.get("Authorization", "").startswith("Bearer "):
            return error(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
        if asked.method == "POST" and re.fullmatch(_JOBS, asked.path):
            return self._create(asked)
        if asked.method == "POST" and re.fullmatch("/v1/projects/[^/]+/locations/[^/]+/schedules", asked.path):
            return self._create_schedule(asked)
        if asked.method == "POST" and asked.path.endswith(":cancel"):
            name = asked.path.removeprefix("/v1/").removesuffix(":cancel")
            return Answer({}) if name in self._jobs else error(404, "NOT_FOUND", f"{name} does not exist.")
        name = asked.path.removeprefix("/v1/")
        if asked.method == "GET" and name in self._jobs:
            return self._get(name)
        if asked.method == "GET" and re.fullmatch(f"/v1/{_STORE}", asked.path):
            return Answer({"name": _STORE_OF_P})
        if asked.method == "GET" and (found := re.fullmatch(f"/v1/{_STORE}/contexts/([^/:]+)", asked.path)):
            return self._context(found[1])
        if found := re.fullmatch(f"/v1/{_STORE}/contexts(?:/([^/:]+):addContextChildren)?", asked.path):
            return self._list_under(found[1], asked) if found[1] else self._create_context(asked)
        return error(404, "NOT_FOUND", f"The PipelineJob {name} does not exist.")

    def _create_schedule(self, asked: Asked) -> Answer:
        schedule = json_format.ParseDict(asked.body, Schedule()._pb)
        if refusal := _refusal(asked.body["createPipelineJobRequest"]["pipelineJob"]):
            return error(400, "INVALID_ARGUMENT", refusal)
        assert len(schedule.cron.split()) == 5
        return Answer({**asked.body, "name": f"{asked.path.removeprefix('/v1/')}/7", "state": "ACTIVE"})

    def _create(self, asked: Asked) -> Answer:
        name = f"{asked.path.removeprefix('/v1/')}/{asked.query['pipelineJobId']}"
        assert re.fullmatch("[a-z][-a-z0-9]{0,127}", asked.query["pipelineJobId"])
        if name in self._jobs:
            return error(409, "ALREADY_EXISTS", f"{name} exists")
        if refusal := _refusal(asked.body):
            return error(400, "INVALID_ARGUMENT", refusal)
        self._jobs[name] = {**asked.body, "name": name, "state": "PIPELINE_STATE_PENDING"}
        return Answer(self._jobs[name])

    def _create_context(self, asked: Asked) -> Answer:
        name = asked.query["contextId"]
        if name in self.experiments:
            return error(409, "ALREADY_EXISTS", f"{name} exists")
        made = Context.from_json(json.dumps(asked.body), ignore_unknown_fields=False)
        assert made.schema_title == "system.Experiment"
        self.experiments[name] = []
        return Answer({**asked.body, "name": f"{_STORE_OF_P}/contexts/{name}"})

    def _context(self, name: str) -> Answer:
        if name not in ("run", *self.experiments):
            return error(404, "NOT_FOUND", f"{name} does not exist")
        titles = {"run": "system.PipelineRun"}
        return Answer(
            {
                "name": f"{_STORE_OF_P}/contexts/{name}",
                "schemaTitle": titles.get(name, "system.Experiment"),
                "schemaVersion": "0.0.1",
                "metadata": {},
            }
        )

    def _list_under(self, experiment: str, asked: Asked) -> Answer:
        self.experiments[experiment] += asked.body["childContexts"]
        return Answer({})

    def _get(self, name: str) -> Answer:
        asked = self._asked_for[name] = self._asked_for.get(name, -1) + 1
        frame = self.frames[min(asked, len(self.frames) - 1)]
        tasks = [_task(number, task, said) for number, (task, said) in enumerate(frame.items()) if task[0].isupper()]
        detail = {
            "taskDetails": tasks,
            "pipelineRunContext": {"name": f"{_STORE_OF_P}/contexts/run"} if asked else None,
        }
        job = {**self._jobs[name], "state": f"PIPELINE_STATE_{frame['state']}", "jobDetail": detail}
        if "error" in frame:
            job["error"] = {"code": 9, "message": frame["error"]}
        return Answer(job)


def error(code: int, status: str, message: str, reason: str | None = None) -> Answer:
    """As Google's APIs write it: https://cloud.google.com/apis/design/errors."""
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "googleapis.com"}]
    body = {"code": code, "message": message, "status": status, "details": details if reason else []}
    return Answer({"error": body}, code)


def _refusal(body: Any) -> str | None:
    """Parsed by the client library's own message, and its pipeline by kfp's: an unknown field raises."""
    job = PipelineJob.from_json(json.dumps(body), ignore_unknown_fields=False)
    spec = json_format.ParseDict(body["pipelineSpec"], pipeline_spec_pb2.PipelineSpec())
    if not job.runtime_config.gcs_output_directory.startswith("gs://"):
        return "runtime_config.gcs_output_directory must be a Cloud Storage path"
    given = job.runtime_config.parameter_values if spec.schema_version == "2.1.0" else job.runtime_config.parameters
    unknown = set(given) - set(spec.root.input_definitions.parameters)
    return f"unknown parameters {sorted(unknown)}" if unknown else None


def _task(number: int, name: str, said: str | tuple[str, str]) -> dict[str, Any]:
    state, message = said if isinstance(said, tuple) else (said, None)
    made = {
        "taskId": str(number),
        "taskName": name,
        "state": state,
        "createTime": "2025-03-01T12:00:00Z",
        "executorDetail": {"containerDetail": {"mainJob": _CUSTOM_JOB.format(100 + number)}},
    }
    if state not in ("PENDING", "RUNNING"):
        made |= {"startTime": "2025-03-01T12:00:00Z", "endTime": "2025-03-01T12:01:30.5Z"}
    return {**made, "error": {"code": 9, "message": message}} if message else made
