"""Messages of a rehearsal, field by field beside those that real Kubeflow Pipelines handed to steps."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.cluster.job.compiled import Task
from infeed.pipelines.cluster.rehearse.backend import Kfp, handed, kept_value, read_strictly
from infeed.pipelines.cluster.rehearse.executor_io import Artifact, AttemptDir, TaskIO, executor_input, planned_outputs

RECORDED = sorted((Path(__file__).parents[3] / "data" / "kubeflow").glob("*/*.json"))
VERSIONS: dict[str, Kfp] = {"kfp-2.5.0": "2.5", "kfp-2.17.0": "2.17", "kfp-7b70c7b9": "2.17"}
OF_DRIVER = ("display_name", "store_session_info")


def of_recording(message: Any, kfp: Kfp) -> Any:
    """The message of a rehearsal for the step of a recording, with its artifacts and parameters."""
    given, outputs = message["inputs"], message["outputs"]
    named = {
        f"run/{key}/{one['metadata']['display_name']}": one
        for key, found in given.get("artifacts", {}).items()
        for one in found["artifacts"]
    }
    inputs = {name.split("/")[1]: [as_made(name, one)] for name, one in named.items()}
    declared = {key: found["artifacts"][0] for key, found in outputs["artifacts"].items() if key != "executor-logs"}
    definitions = {
        "artifacts": {key: {**one, "artifactType": one["type"]} for key, one in declared.items()},
        "parameters": {key: {"parameterType": "STRING"} for key in outputs.get("parameters", {})},
    }
    task = Task(("Step",), "Step", {}, {"outputDefinitions": definitions}, executor={"container": {}})
    logs = outputs["artifacts"]["executor-logs"]["artifacts"][0]["uri"]
    place = AttemptDir("/here", "run/Step", os.path.dirname(logs), kfp=kfp, pod="/")
    plain = executor_input(
        TaskIO(given.get("parameterValues", {}), inputs), planned_outputs(task, place), task, place, legacy=False
    )
    return handed(
        plain, kfp, place.logs, lambda name: int(named[f"run/{name.split('/')[1]}/{name.split('/')[2]}"]["name"])
    )


def as_made(name: str, recorded: Any) -> Artifact:
    """An artifact as its step has written it: with a type, and numbers with a fraction; the driver adds the rest."""
    written = {key: value for key, value in recorded["metadata"].items() if key not in OF_DRIVER}
    floats = {key: float(value) if isinstance(value, int) else value for key, value in written.items()}
    return Artifact(name, {"schemaTitle": "tfx.Any"}, recorded["uri"], floats)


def without_session(message: Any) -> Any:
    """The message without the credentials of the cluster's store, of which the provider stays."""
    copy = json.loads(json.dumps(message))
    for found in copy["inputs"].get("artifacts", {}).values():
        for one in found["artifacts"]:
            one["metadata"]["store_session_info"] = json.loads(one["metadata"]["store_session_info"])["Provider"]
    return copy


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name} {path.stem}")
def test_a_step_is_handed_what_a_real_driver_and_launcher_hand_over(path: Path) -> None:
    recorded = json.loads(path.read_text())["executor_input"]
    rehearsed = of_recording(recorded, VERSIONS[path.parent.name])
    assert without_session(rehearsed) == without_session(recorded)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (True, 1),
        (False, 0),
        (0.0, 0),
        (0.5, 0.5),
        ("a", "a"),
        ([1.0, "b"], {"list": [1, "b"]}),
        ({"a": 2.0}, {"struct": {"a": 2}}),
    ],
)
def test_metadata_keep_no_booleans_no_fractions_of_zero_and_no_plain_lists(value: Any, kept: Any) -> None:
    found = kept_value(value)
    assert (found, type(found)) == (kept, type(kept))


def test_an_imported_artifact_has_no_display_name() -> None:
    task = Task(("Step",), "Step", {}, {}, executor={"container": {}})
    place = AttemptDir("/here", "run/Step", "s3://bucket/run/Step/1", kfp="2.17", pod="/")
    given = TaskIO({}, {"schema": [Artifact("run/Imported/", {"schemaTitle": "tfx.Schema"}, "s3://bucket/schema")]})
    message = handed(executor_input(given, {}, task, place, legacy=False), "2.17", place.logs, lambda name: 7)
    [schema] = message["inputs"]["artifacts"]["schema"]["artifacts"]
    assert (schema["name"], schema["metadata"].keys()) == ("7", {"store_session_info"})


def output(**artifact: Any) -> str:
    return json.dumps({"artifacts": {"model": {"artifacts": [artifact]}}})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (output(metadata={"loss": float("nan")}), "NaN"),
        (output(metadata={"loss": float("inf")}), "Infinity"),
        (output(metadata={"loss": None}), "null"),
        (output(path="/x"), "'path'"),
        ('{"exitCode": 1}', "'exitCode'"),
        (output(uri="s3://bucket/elsewhere/model"), "'s3://bucket/elsewhere/model'"),
        (output(uri="s3://bucket/run-10/model"), "'s3://bucket/run-10/model'"),
    ],
)
def test_the_launcher_refuses_what_protobufs_json_does_not_have(text: str, named: str) -> None:
    with pytest.raises(InfeedError, match="launcher refuses") as caught:
        read_strictly(text, "output.json", "s3://bucket/run-1")
    assert named in caught.value.what
    assert caught.value.where == "output.json"


def test_what_the_launcher_takes_is_read() -> None:
    text = output(name="model", uri="s3://bucket/run-1/Trainer/model", metadata={"loss": 0.5}, customProperties={})
    assert read_strictly(text, "", "s3://bucket/run-1") == json.loads(text)


LEARN = """
[logs] = outputs["artifacts"].pop("executor-logs")["artifacts"]
values["seen"] = [os.path.isfile(logs["uri"]), os.path.basename(logs["uri"]), os.path.basename(outputs["outputFile"])]
outputs["artifacts"]["model"]["artifacts"][0].setdefault("name", "unnamed")
print("hello")
write('model', json.dumps(values["seen"] + [outputs["artifacts"]["model"]["artifacts"][0]["name"]]), good=True)
"""


@pytest.mark.parametrize("kfp", get_args(Kfp))
def test_a_rehearsed_step_meets_the_launcher_of_the_version(jobs: ModuleType, tmp_path: Path, kfp: Kfp) -> None:
    tell = jobs.step("write('seen', json.dumps(source('model')), **{})", takes={"model": "learn.model"}, gives=["seen"])
    tell_named = tell["executor"]["container"]["command"]
    tell_named[-1] = tell_named[-1].replace('"name": target["name"], ', "")
    learn = jobs.step(LEARN, gives=["model"], parameters={"n": 1})
    rehearsal = jobs.run(jobs.job({"learn": learn, "tell": tell}), tmp_path, target="kubeflow", kfp=kfp)
    assert rehearsal.report.succeeded, rehearsal.report.failed
    logs = "executor-logs-0" if kfp == "2.17" else "executor-logs"
    name = "model" if kfp in ("2.15", "2.17") else "unnamed"
    assert json.loads(jobs.text(rehearsal, "learn", "model")) == [True, logs, "output_metadata.json", name]
    [model] = rehearsal.outputs["learn"]["model"]
    assert Path(model.uri).with_name(logs).read_text() == "hello\n"
    seen = json.loads(jobs.text(rehearsal, "tell", "seen"))
    assert (seen["name"], seen["type"]) == ("1", {"instanceSchema": ""})
    assert (seen["metadata"]["good"], seen["metadata"]["display_name"]) == (1, "model")


def test_a_step_whose_output_the_launcher_refuses_fails(jobs: ModuleType, tmp_path: Path) -> None:
    learn = jobs.step("write('model', 'weights', loss=float('nan'))", gives=["model"])
    rehearsal = jobs.run(jobs.job({"learn": learn}), tmp_path, target="kubeflow")
    assert rehearsal.report.failed is not None
    assert "invalid value NaN" in (rehearsal.report.failed.error or "")
