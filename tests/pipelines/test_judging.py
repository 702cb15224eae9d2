"""Metrics, thresholds and reports of a model with several outputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.resolve import Overrides, resolve

pytestmark = pytest.mark.tfx


@pytest.fixture
def homes(tmp_path: Path) -> PipelineConfig:
    """A config whose label `sold status` decides, beside a price and a set of tags."""
    rows = [
        {"x": i % 11, "price": i * 1.5, "sold status": "yn"[i % 3 == 0], "tags": ["a", "b"][: i % 3]} for i in range(60)
    ]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    project = read_project("tabular")
    given = Overrides(data=str(tmp_path / "data.jsonl"), label=("price", "sold status", "tags"), root=str(tmp_path))
    object.__setattr__(project.settings, "blessing", {"output": "sold status", "metric": "f1", "bound": 0.5})
    return resolve(project, given)


def test_every_output_has_its_metrics_and_one_has_the_threshold(homes: PipelineConfig) -> None:
    from infeed.pipelines.judging import eval_config

    made = eval_config(homes)
    assert dict(made.model_specs[0].label_keys) == {name: name for name in ("price", "sold status", "tags")}
    found = {
        (*spec.output_names, json.loads(metric.config)["name"]): metric
        for spec in made.metrics_specs
        for metric in spec.metrics
    }
    assert {("price", "mse"), ("price", "r2"), ("sold status", "f1"), ("sold status", "auc")} <= found.keys()
    assert {("tags", "f1"), ("tags", "recall"), ("tags", "precision"), ("example_count",)} <= found.keys()
    assert [name for name, metric in found.items() if metric.HasField("threshold")] == [("sold status", "f1")]
    assert found["tags", "f1"].class_name == "F1Score"


def test_the_report_of_the_output_that_decides_has_the_usual_name(homes: PipelineConfig) -> None:
    from infeed.pipelines.judging import model_reports

    found = {report.output: report.file for report in model_reports(homes)}
    assert found == {
        "sold status": "model_report",
        "price": "model_report-price",
        "tags": "model_report-tags",
    }
