"""The files of the report."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed.components.evaluation.model_report.findings import ModelFindings
from infeed.components.evaluation.model_report.options import HTML, JSON, ModelReport
from infeed.components.evaluation.model_report.page import MetricLine, ModelPage


@pytest.fixture
def page(findings: ModelFindings) -> ModelPage:
    lines = (MetricLine("accuracy", 0.75, 0.7, "at least 0.6"),)
    return ModelPage(findings, "test", True, lines, {"city = Chur": {"accuracy": 0.5}})


def check_page(html: str) -> None:
    """No scripts, no network, colors of the page only, well-formed figures without common ids."""
    assert not re.findall(r"<script|https?://(?!www\.w3\.org)|(?:fill|stroke): #", html)
    for svg in re.findall(r"<svg.*?</svg>", html, re.S):
        ElementTree.fromstring(svg)
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))


def test_the_page_and_the_numbers_agree(page: ModelPage, tmp_path: Path) -> None:
    page.write(str(tmp_path))
    html, found = (tmp_path / HTML).read_text(), json.loads((tmp_path / JSON).read_text())
    check_page(html)
    assert html.count("<svg") == 4
    assert found["rows"] == 3000
    assert f"{found['curves']['yes']['auc']:.4g}" in html
    assert f"{found['expected_calibration_error']:.4g}" in html
    assert f">{found['confusion_matrix'][0][1]}<small>" in html
    assert "city: Chur" in html
    assert "at least 0.6" in html
    assert len(found["worst_rows"]) == 20
    assert html == page.to_html()


@pytest.mark.parametrize("kind", ["regression", "several", "one label", "many"])
def test_every_kind_of_model_has_a_page(kind: str, collect: Callable[..., Any], records: list[bytes]) -> None:
    draw = np.random.default_rng(0)
    report = ModelReport("regression" if kind == "regression" else "classification")
    labels, predictions = draw.normal(size=3000), draw.normal(size=(3000, 1))
    if kind != "regression":
        classes = {"several": 4, "many": 600, "one label": 2}[kind]
        predictions = draw.dirichlet(np.ones(classes), 3000)
        labels = draw.integers(0, 1 if kind == "one label" else classes, 3000)
    collected = collect(report, records, labels, predictions)
    findings = ModelFindings.of(report, collected, "label", ["a"], lambda _: predictions)
    page = ModelPage(findings, "eval", None, (MetricLine("m", float("nan")),), {})
    html = page.to_html()
    check_page(html)
    assert html.count("<svg") == {"regression": 3, "several": 3, "one label": 1, "many": 3}[kind]
    assert json.loads(page.to_json())["metrics"][0]["value"] is None
