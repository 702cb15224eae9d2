from __future__ import annotations

import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.cluster.job.compiled import Task
from infeed.pipelines.cluster.rehearse.executor_io import (
    Artifact,
    AttemptDir,
    Kfp,
    TaskIO,
    executor_input,
    fill,
    fill_arguments,
    finished_outputs,
    handed,
    inputs_view,
    kept_value,
    output_values,
    planned_outputs,
    read_output,
    read_strictly,
    updated,
    view,
)

MODEL = {"schemaTitle": "tfx.Model"}
DATA = Artifact("run/load/data", {"schemaTitle": "tfx.Examples"}, "/there/data", {"span": 1})
OUTPUTS = {
    "artifacts": {"model": {"artifactType": MODEL, "metadata": {"kind": "small"}}},
    "parameters": {"loss": {"parameterType": "NUMBER_DOUBLE"}},
}
TASK = Task(("learn",), "learn", {}, {"outputDefinitions": OUTPUTS}, executor={"container": {}})
INPUTS = TaskIO({"epochs": 3.0, "rate": 0.5, "name": "a"}, {"data": [DATA]})


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptDir:
    return AttemptDir(str(tmp_path), "run/learn")


def test_outputs_lie_in_the_folder_of_the_attempt_and_are_named_by_the_step(attempt: AttemptDir) -> None:
    expected = Artifact("run/learn/model", MODEL, f"{attempt.folder}/model", {"kind": "small"})
    assert planned_outputs(TASK, attempt) == {"model": expected}


def test_a_step_is_handed_its_inputs_and_where_to_write(attempt: AttemptDir) -> None:
    planned = planned_outputs(TASK, attempt)
    message = executor_input(INPUTS, planned, TASK, attempt, legacy=False)
    assert message["inputs"]["parameterValues"] == {"epochs": 3, "rate": 0.5, "name": "a"}
    assert message["inputs"]["artifacts"] == {"data": {"artifacts": [DATA.to_json()]}}
    assert message["outputs"] == {
        "parameters": {"loss": {"outputFile": f"{attempt.folder}/output_parameters/loss"}},
        "artifacts": {"model": {"artifacts": [planned["model"].to_json()]}},
        "outputFile": f"{attempt.folder}/executor_output.json",
    }


def test_whole_numbers_deep_inside_are_written_as_such(attempt: AttemptDir) -> None:
    inputs = TaskIO({"layers": [8.0, {"units": 4.0, "on": True}]})
    message = executor_input(inputs, {}, TASK, attempt, legacy=False)
    assert json.dumps(message["inputs"]["parameterValues"]) == '{"layers": [8, {"units": 4, "on": true}]}'


def test_schema_2_0_has_a_type_at_each_value(attempt: AttemptDir) -> None:
    message = executor_input(INPUTS, {}, TASK, attempt, legacy=True)
    assert message["inputs"]["parameters"] == {
        "epochs": {"intValue": "3"},
        "rate": {"doubleValue": 0.5},
        "name": {"stringValue": "a"},
    }


def test_placeholders_see_inputs_outputs_and_the_job(attempt: AttemptDir) -> None:
    planned = planned_outputs(TASK, attempt)
    message = executor_input(INPUTS, planned, TASK, attempt, legacy=False)
    seen = view(message, INPUTS, planned, {"pipeline_root": "/root"})
    assert fill("{{$.pipeline_root}} {{$.inputs.artifacts['data'].uri}}", seen) == "/root /there/data"
    assert fill("{{$.outputs.artifacts['model'].path}}", seen) == f"{attempt.folder}/model"
    assert fill("{{$.outputs.parameters['loss'].output_file}}", seen) == attempt.parameter_file("loss")
    assert json.loads(fill("{{$}}", seen)) == message


def said(attempt: AttemptDir, output: Any) -> None:
    Path(attempt.output_file).write_text(json.dumps(output))


def test_what_the_step_says_of_an_artifact_wins_over_the_plan(attempt: AttemptDir) -> None:
    told = {"artifacts": {"model": {"artifacts": [{"uri": "/elsewhere", "metadata": {"blessed": 1}}]}}}
    found = updated(planned_outputs(TASK, attempt), told)["model"]
    assert (found.uri, found.metadata) == ("/elsewhere", {"kind": "small", "blessed": 1})
    assert updated(planned_outputs(TASK, attempt), {"artifacts": {"model": {"artifacts": []}}})["model"].uri.endswith(
        "/model"
    )


@pytest.mark.parametrize("output", [{"parameterValues": {"loss": 0.5}}, {"parameters": {"loss": {"doubleValue": 0.5}}}])
def test_a_parameter_comes_in_either_schema(attempt: AttemptDir, output: Any) -> None:
    assert output_values(output) == {"loss": 0.5}
    finished = finished_outputs(planned_outputs(TASK, attempt), output, TASK, attempt)
    assert (finished.parameters, list(finished.artifacts)) == ({"loss": 0.5}, ["model"])


def test_a_container_that_knows_no_executor_output_writes_a_file(attempt: AttemptDir) -> None:
    path = Path(attempt.parameter_file("loss"))
    with pytest.raises(InfeedError, match=r"did not write its output parameter 'loss'\n.*output_parameters/loss"):
        finished_outputs({}, {}, TASK, attempt)
    path.parent.mkdir()
    path.write_text("0.25\n")
    assert finished_outputs({}, {}, TASK, attempt).parameters == {"loss": 0.25}
    path.write_text("much")
    with pytest.raises(InfeedError, match=r"'much' is not a number\n  where: parameter loss"):
        finished_outputs({}, {}, TASK, attempt)


def test_nothing_said_is_an_empty_output_and_nonsense_is_told(attempt: AttemptDir) -> None:
    assert read_output(attempt) == {}
    said(attempt, {"artifacts": {}})
    assert read_output(attempt) == {"artifacts": {}}
    Path(attempt.output_file).write_text("{")
    with pytest.raises(InfeedError, match=r"not JSON: (.|\n)*executor_output\.json"):
        read_output(attempt)


VIEW = {
    "": {"inputs": {}},
    "pipeline_job_name": "taxi-1",
    "inputs": inputs_view(
        TaskIO({"n": 3.0, "s": "text"}, {"m": [Artifact("1", {}, "/runs/m", {"span": 4})], "none": []})
    ),
    "outputs": {"parameters": {"p": {"output_file": "/runs/p"}}},
}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{{$}}", '{"inputs": {}}'),
        ("--n={{$.inputs.parameters['n']}} {{$.inputs.parameters['s']}}", "--n=3 text"),
        ("{{$.inputs.artifacts['m'].uri}}/x", "/runs/m/x"),
        ("{{$.inputs.artifacts['m'].path}}", "/runs/m"),
        ("{{$.inputs.artifacts['m'].metadata['span']}}", "4"),
        ("{{$.outputs.parameters['p'].output_file}}", "/runs/p"),
        ("{{$.pipeline_job_name}}", "taxi-1"),
        ("${HOME} {{ x }} {}", "${HOME} {{ x }} {}"),
    ],
)
def test_placeholders_become_values(text: str, filled: str) -> None:
    assert fill(text, VIEW) == filled


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(InfeedError, match=r"\{\{\$.inputs.artifacts\['none'\].uri\}\}"):
        fill("{{$.inputs.artifacts['none'].uri}}", VIEW)


def test_a_value_artifact_has_a_value(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("12")
    rows = Artifact("1", {"instanceSchema": "title: tfx.Integer\ntype: object\n"}, str(tmp_path / "rows"))
    view = {"inputs": inputs_view(TaskIO({}, {"rows": [rows]}))}
    assert fill("{{$.inputs.artifacts['rows'].value}}", view) == "12"


def test_kfps_structures_become_arguments() -> None:
    concat = '{"Concat": ["--n=", "{{$.inputs.parameters[\'n\']}}"]}'
    given = '{"IfPresent": {"InputName": "s", "Then": ["--s", "{{$.inputs.parameters[\'s\']}}"]}}'
    absent = '{"IfPresent": {"InputName": "none", "Then": ["--x"], "Else": ["--y"]}}'
    assert fill_arguments([concat, given, absent], VIEW) == ["--n=3", "--s", "text", "--y"]


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
