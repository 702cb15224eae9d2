"""Messages of real Kubeflow Pipelines, in tests/data/kubeflow, as a step reads and answers them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.kubeflow import message, step, ui
from infeed.components.kubeflow.message import PathMap, local_path, pack, unpack

RECORDED = sorted((Path(__file__).parents[2] / "data" / "kubeflow").glob("*/*.json"))
OF_TFX = [path for path in RECORDED if "s3-kubeflow" in path.name]
recorded_of_tfx = pytest.mark.parametrize("path", OF_TFX, ids=lambda path: f"{path.parent.name} {path.stem}")


def command(path: Path) -> list[str]:
    found = json.loads(path.read_text())
    return [message.ARGUMENT, json.dumps(found["executor_input"]), *found["inputs_spec"]]


def test_versions_before_and_after_the_changes_of_the_driver_are_recorded() -> None:
    assert {path.parent.name for path in RECORDED} == {"kfp-2.5.0", "kfp-2.17.0", "kfp-7b70c7b9"}


@recorded_of_tfx
def test_the_drivers_own_output_is_left_out(path: Path) -> None:
    raw = json.loads(path.read_text())["executor_input"]["outputs"]["artifacts"]
    received, place = message.read(command(path))
    assert place == 1
    assert raw.keys() - received["outputs"]["artifacts"].keys() == {"executor-logs"}


@recorded_of_tfx
def test_inputs_get_back_the_types_that_the_compiler_wrote(path: Path) -> None:
    received, _ = message.read(command(path))
    for name, found in received["inputs"]["artifacts"].items():
        for artifact in found["artifacts"]:
            assert artifact["type"]["instanceSchema"].startswith("title: tfx."), name


@pytest.mark.tfx
@recorded_of_tfx
def test_tfxs_own_parser_takes_all_artifacts(path: Path) -> None:
    from google.protobuf import json_format
    from kfp.pipeline_spec import pipeline_spec_pb2
    from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_entrypoint_utils as utils

    received, _ = message.read(command(path))
    of_tfx, _ = ui.split(received)
    parsed = json_format.Parse(json.dumps(of_tfx), pipeline_spec_pb2.ExecutorInput(), ignore_unknown_fields=True)
    for artifacts in (parsed.inputs.artifacts, parsed.outputs.artifacts):
        for name, [artifact] in utils.parse_raw_artifact_dict(artifacts, {}).items():
            assert artifact.type_name != "Artifact", name
            if name == "model_blessing":
                assert artifact.get_json_value_custom_property("blessed") == 1


def test_lists_and_objects_that_ml_metadata_wrapped_are_as_they_were_written() -> None:
    metadata = {"words": {"list": ["a"]}, "sizes": {"struct": {"list": 1}}, "plain": {"list": [], "more": 1}, "zero": 0}
    given = {"inputs": {"artifacts": {"x": {"artifacts": [{"uri": "u", "metadata": metadata}]}}}, "outputs": {}}
    received, _ = message.read([message.ARGUMENT, json.dumps(given)])
    [artifact] = received["inputs"]["artifacts"]["x"]["artifacts"]
    assert artifact["metadata"] == {"words": ["a"], "sizes": {"list": 1}, "plain": {"list": [], "more": 1}, "zero": 0}


def test_values_are_changed_inside_of_lists_and_objects() -> None:
    data = {"a": [1, {"b": "two", "c": None}]}
    changed = message.mapped(data, lambda one: one + 1 if isinstance(one, int) else one)
    assert changed == {"a": [2, {"b": "two", "c": None}]}
    assert data == {"a": [1, {"b": "two", "c": None}]}


def test_an_input_without_artifacts_has_an_empty_list() -> None:
    given = {"inputs": {"artifacts": {"base_model": {}}}, "outputs": {}}
    received, _ = message.read([message.ARGUMENT, json.dumps(given)])
    assert received["inputs"]["artifacts"] == {"base_model": {"artifacts": []}}


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(st.dictionaries(st.text(), VALUES))
def test_an_output_holds_neither_nan_nor_null(output: dict[str, Any]) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    def nulls(value: Any) -> bool:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return value is None or any(map(nulls, inner))

    assert not nulls(json.loads(message.accepted(output), parse_constant=refuse))


def test_numbers_that_json_lacks_are_text() -> None:
    assert json.loads(message.accepted({"auc": math.nan, "loss": math.inf, "rows": 3, "note": None})) == {
        "auc": "nan",
        "loss": "inf",
        "rows": 3,
    }


def test_machines_of_a_job_do_not_touch_the_log_of_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is a file that exists before the step, and its name counts the attempts."""
    monkeypatch.setenv("INFEED_LAUNCHER_ROOT", str(tmp_path))
    made: list[str] = []
    monkeypatch.setattr(step.cluster_job, "run", lambda options, name, make: made.append(name))
    job = json.dumps({"options": {"machines": 2}, "pod": {"spec": {"containers": [{}]}}})
    for attempt in range(2):
        log = f"s3://b/run/executor-logs-{attempt}"
        outputs = {
            "executor-logs": {"artifacts": [{"type": {"schemaTitle": "system.Artifact"}, "uri": log}]},
            "model": {"artifacts": [{"uri": "s3://b/run/model"}]},
        }
        file = tmp_path / "s3" / "b" / "run" / f"executor-logs-{attempt}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        received = {"inputs": {}, "outputs": {"artifacts": outputs, "outputFile": "x"}}
        step.main(["--job", job, message.ARGUMENT, json.dumps(received)])
        assert file.is_file()
    assert made[0] == made[1]


@pytest.mark.tfx
def test_pages_of_a_step_without_tfx_are_named_by_their_output_at_each_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFEED_LAUNCHER_ROOT", str(tmp_path))
    monkeypatch.setattr(ui, "metrics", lambda evaluation: {"accuracy": math.nan})
    monkeypatch.setattr(ui, "confusion_matrix", lambda evaluation, classes: {})
    for path in RECORDED:
        if path.name != "s3-kfp.Evaluator.json":
            continue
        received = json.loads(path.read_text())["executor_input"]
        received["outputs"]["outputFile"] = str(tmp_path / path.parent.name)
        ui.write_shown(json.dumps(received), evaluation=str(tmp_path))
        written = json.loads((tmp_path / path.parent.name).read_text())["artifacts"]
        assert {name: found["artifacts"][0]["name"] for name, found in written.items()} == {
            name: name for name in written
        }
        assert written["ui_metrics"]["artifacts"][0]["metadata"] == {"accuracy": "nan"}


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("gs://bucket/run/model", "/gcs/bucket/run/model"),
        ("s3://bucket/run/model", "/s3/bucket/run/model"),
        ("minio://mlpipeline/v2/artifacts/x/", "/minio/mlpipeline/v2/artifacts/x"),
    ],
)
def test_a_uri_has_the_path_of_the_launcher(uri: str, path: str) -> None:
    assert local_path(uri) == path


@pytest.mark.parametrize("uri", ["/mnt/data", "hdfs://host/x", "https://host/x"])
def test_other_places_have_none(uri: str) -> None:
    assert local_path(uri) is None


def test_a_rehearsal_moves_the_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFEED_LAUNCHER_ROOT", "/tmp/pod")
    assert local_path("s3://bucket/x") == "/tmp/pod/s3/bucket/x"


def test_messages_are_translated_both_ways() -> None:
    paths = PathMap.of(["s3://b/model", "s3://b/model2", "/here"])
    message = {"model": {"uri": "s3://b/model", "metadata": {"at": "s3://b/model/serving", "of": ["s3://b/model2", 3]}}}
    local = paths.to_local(message)
    assert local == {
        "model": {"uri": "/s3/b/model", "metadata": {"at": "/s3/b/model/serving", "of": ["/s3/b/model2", 3]}}
    }
    assert paths.to_uris(local) == message


@given(st.text())
def test_the_text_comes_back(text: str) -> None:
    assert pack(text).isascii()
    assert pack(text) == pack(text)
    assert unpack(pack(text)) == text


def test_other_values_stay() -> None:
    for value in ("plain", 3, 0.5, None, {"a": 1}):
        assert unpack(value) == value
