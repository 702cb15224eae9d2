from __future__ import annotations

from pathlib import Path

import pytest

from infeed.components.errors import InfeedError
from infeed.pipelines.rehearse.executor_io import Artifact, TaskIO, fill, fill_arguments, inputs_view

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
    (tmp_path / "value").write_text("12")
    view = {"inputs": inputs_view(TaskIO({}, {"rows": [Artifact("1", {}, str(tmp_path))]}))}
    assert fill("{{$.inputs.artifacts['rows'].value}}", view) == "12"


def test_kfps_structures_become_arguments() -> None:
    concat = '{"Concat": ["--n=", "{{$.inputs.parameters[\'n\']}}"]}'
    given = '{"IfPresent": {"InputName": "s", "Then": ["--s", "{{$.inputs.parameters[\'s\']}}"]}}'
    absent = '{"IfPresent": {"InputName": "none", "Then": ["--x"], "Else": ["--y"]}}'
    assert fill_arguments([concat, given, absent], VIEW) == ["--n=3", "--s", "text", "--y"]
