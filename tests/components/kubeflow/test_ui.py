"""Artifacts for Kubeflow's user interface; `test_launch_tfx` sees them written by a pipeline."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from infeed import ingest
from infeed.components.kubeflow import ui
from infeed.components.kubeflow.message import ROOT_VARIABLE

EVALUATOR = "infeed.components.evaluation.component.EvaluatorExecutor"
EXAMPLE_GEN = "infeed.components.example_gen.executor.Executor"
STATISTICS = "infeed.components.statistics.component.StatisticsExecutor"
REPORT = "infeed.components.input_report.component.InputReportExecutor"


def test_only_steps_with_results_show_some() -> None:
    assert {
        name: spec["artifactType"]["schemaTitle"] for name, spec in ui.outputs_of(EVALUATOR, ("a", "b")).items()
    } == {
        "ui_metrics": "system.Metrics",
        "ui_confusion_matrix": "system.ClassificationMetrics",
        "ui_model_report": "system.HTML",
    }
    assert ui.outputs_of(EVALUATOR, ()).keys() == {"ui_metrics", "ui_model_report"}
    assert ui.outputs_of(REPORT, ()).keys() == {"ui_report"}
    assert ui.outputs_of(STATISTICS, ()).keys() == {"ui_statistics"}
    assert ui.outputs_of(EXAMPLE_GEN, (), pictures=True).keys() == {"ui_pictures"}
    assert ui.outputs_of(EXAMPLE_GEN, ()) == {}
    assert ui.outputs_of("tfx.components.pusher.executor.Executor", ("a", "b")) == {}


def test_tfx_never_sees_them() -> None:
    message: dict[str, Any] = {
        "outputs": {
            "artifacts": {"report": {"artifacts": [{"uri": "/r"}]}, "ui_report": {"artifacts": [{"uri": "/u"}]}}
        }
    }
    of_tfx, shown = ui.split(message)
    assert of_tfx["outputs"]["artifacts"].keys() == {"report"}
    assert shown == {"ui_report": {"uri": "/u"}}
    assert ui.split(of_tfx) == (of_tfx, {})


@pytest.mark.parametrize(
    ("shown", "output", "page"),
    [("ui_report", "report", "report.html"), ("ui_model_report", "evaluation", "model_report.html")],
)
def test_a_report_is_one_file(tmp_path: Path, shown: str, output: str, page: str) -> None:
    (tmp_path / output).mkdir()
    given = {shown: {"name": "1", "uri": str(tmp_path / "shown")}}
    ui.fill(given, {output: str(tmp_path / output)})
    assert "no report" in (tmp_path / "shown").read_text()
    (tmp_path / output / page).write_text("<html>")
    found = ui.fill(given, {output: str(tmp_path / output)})
    assert (tmp_path / "shown").read_text() == "<html>"
    assert found[shown]["artifacts"][0]["uri"] == str(tmp_path / "shown")


@pytest.mark.slow  # starts two commands
def test_statistics_and_pictures_are_pages(tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    for label in "ab":
        (tmp_path / "images" / label).mkdir(parents=True)
        Image.new("RGB", (4, 4), "red").save(tmp_path / "images" / label / "1.png")
    ingest(str(tmp_path / "images"), str(dataset))
    shown = {name: {"name": name, "uri": str(tmp_path / name)} for name in ("ui_statistics", "ui_pictures")}
    ui.fill(shown, {"examples": str(dataset)})
    assert "image/encoded" in (tmp_path / "ui_statistics").read_text()
    assert "data:image/png;base64,iVBOR" in (tmp_path / "ui_pictures").read_text()
    ui.fill({"ui_pictures": shown["ui_pictures"]}, {"examples": str(tmp_path / "none")})
    assert "no such file" in (tmp_path / "ui_pictures").read_text()


def test_a_step_without_tfx_writes_its_metrics_and_pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ui, "metrics", lambda folder: {f"accuracy of {folder}": 0.9})
    output = tmp_path / "new" / "output.json"
    artifact = {"name": "ui_metrics", "uri": "s3://bucket/m", "metadata": {}}
    page = {"name": "ui_model_report", "uri": "s3://bucket/page", "metadata": {}}
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    artifacts = {"ui_metrics": {"artifacts": [artifact]}, "ui_model_report": {"artifacts": [page]}}
    outputs = {"outputFile": str(output), "artifacts": artifacts}
    ui.write_shown(json.dumps({"inputs": {}, "outputs": outputs}), evaluation="/evaluation")
    filled = {**artifact, "metadata": {"accuracy of /evaluation": 0.9}}
    artifacts["ui_metrics"] = {"artifacts": [filled]}
    assert json.loads(output.read_text()) == {"artifacts": artifacts}
    assert "no report" in (tmp_path / "s3" / "bucket" / "page").read_text()


def test_a_command_is_a_step_whose_output_is_shown_if_it_succeeds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(ui, "_INFEED", (sys.executable, "-c", "import sys; sys.exit(sys.argv[1] == 'fail')"))
    monkeypatch.setattr(ui, "write_shown", lambda message, **places: shown.append((message, places)))
    with pytest.raises(SystemExit) as ended:
        ui.main(["{}", "evaluation", "/e", "fail"])
    assert (ended.value.code, shown) == (1, [])
    ui.main(["{}", "evaluation", "/e", "evaluate", "taxi"])
    assert shown == [("{}", {"evaluation": "/e"})]


@pytest.mark.tfx
def test_the_matrix_is_as_kfp_logs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow_model_analysis as tfma
    from kfp import dsl

    value = tfma.proto.metrics_for_slice_pb2.MetricValue()
    matrix = value.multi_class_confusion_matrix_at_thresholds.matrices.add()
    for actual, predicted, count in ((0, 0, 5.0), (0, 1, 1.0), (1, 1, 3.0), (-1, 0, 9.0)):
        matrix.entries.add(actual_class_id=actual, predicted_class_id=predicted, num_weighted_examples=count)
    monkeypatch.setattr(ui, "_values", lambda evaluation: [("confusion_matrix", value)])
    logged = dsl.ClassificationMetrics()
    logged.log_confusion_matrix(["benign", "malignant"], [[5, 1], [0, 3]])
    assert ui.confusion_matrix("evaluation", ["benign", "malignant"]) == logged.metadata["confusionMatrix"]
