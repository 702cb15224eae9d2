from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.cluster.job.compiled import Task
from infeed.pipelines.cluster.rehearse.executor_io import (
    Artifact,
    AttemptDir,
    TaskIO,
    executor_input,
    fill,
    fill_arguments,
    finished_outputs,
    inputs_view,
    output_values,
    planned_outputs,
    read_output,
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
