"""The files of the report, its options and its plots. Covers `options` and `plots`."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.evaluation.model_report import plots
from infeed.components.evaluation.model_report.findings import ModelFindings
from infeed.components.evaluation.model_report.importance import Importance
from infeed.components.evaluation.model_report.options import HTML, JSON, ModelReport
from infeed.components.evaluation.model_report.page import MetricLine, ModelPage
from infeed.components.evaluation.model_report.scores import Guess, Scores


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


def test_the_page_begins_with_the_metric_that_decides_its_interval_and_the_guess(findings: ModelFindings) -> None:
    """Of a model that finds no row of a rare class, the share of right rows says little."""
    scores = Scores(
        "test",
        857,
        {"auc": 0.692, "accuracy": 0.942},
        {"auc": (0.611, 0.763), "accuracy": (0.924, 0.956)},
        {"auc": Guess(0.5, "guessing"), "accuracy": Guess(0.942, "always 'no'")},
        "50 test rows of class 'yes' are few: score it on more rows",
    )
    report = replace(findings.report, metrics=("auc", "accuracy"))
    lines = (MetricLine("auc", 0.692, None, "at least 0.5"), MetricLine("accuracy", 0.942))
    page = ModelPage(replace(findings, report=report), "test", False, lines, {}, scores, "its AUC is in doubt")
    assert page.headline == "AUC 0.692 (0.611 to 0.763) on 857 test rows; guessing scores 0.5."
    html = page.to_html()
    check_page(html)
    first = html[html.index("<h1>") : html.index("<h2>")]
    assert "50 test rows of class" in first
    assert "its AUC is in doubt" in first
    assert "%" not in first
    assert [(row.name, row.value, row.interval, row.guess) for row in page._metric_rows()] == [
        ("AUC", "0.692", "0.611 to 0.763", "0.5 (guessing)"),
        ("Accuracy", "0.942", "0.924 to 0.956", "0.942 (always 'no')"),
    ]
    assert json.loads(page.to_json())["scores"]["intervals"]["auc"] == [0.611, 0.763]


def test_a_regression_has_the_root_of_its_mean_square_in_one_notation_with_separators(
    collect: Callable[..., Any], records: list[bytes]
) -> None:
    draw = np.random.default_rng(0)
    labels = draw.normal(200_000, 40_000, 3000)
    report = ModelReport("regression", metrics=("mse", "mae"))
    predictions = (labels + draw.normal(0, 20_000, 3000))[:, None]
    collected = collect(report, records, labels, predictions)
    findings = ModelFindings.of(report, collected, ["label"], ["a"], lambda _: predictions)
    scores = Scores("test", 3000, {"rmse": 20_000.0, "mse": 4e8}, {"rmse": (19_000.0, 21_000.0), "mse": (3.6e8, 4.4e8)})
    page = ModelPage(findings, "test", True, (MetricLine("mse", 4e8, 9e8, "at most 1,600,000,000"),), {}, scores)
    assert page.headline == "RMSE 20,000 ± 1,000 on 3,000 test rows."
    assert [(row.name, row.value, row.baseline) for row in page._metric_rows()] == [
        ("RMSE", "20,000", "30,000"),
        ("MSE", "400,000,000", "900,000,000"),
    ]
    html = page.to_html()
    check_page(html)
    assert not re.findall(r"\de\+\d", html)
    assert ">200,000<" in html  # a tick
    assert all("," in row.label for row in findings.worst)


def test_many_classes_come_by_their_frequency(collect: Callable[..., Any], records: list[bytes]) -> None:
    draw = np.random.default_rng(0)
    labels = np.where(np.arange(3000) % 3 == 0, draw.integers(0, 12, 3000), 11)
    scores = draw.dirichlet(np.ones(12), 3000)
    names = tuple(f"class with a long name {one}" for one in range(12))
    report = ModelReport("classification", names, shown_classes=(11, *range(9)))
    findings = ModelFindings.of(report, collect(report, records, labels, scores), ["label"], ["a"], lambda _: scores)
    page = ModelPage(findings, "eval", None, (), {})
    matrix = page._matrix()
    assert matrix[0][0] == names[11]
    rows = [sum(count for count, _ in cells) for _, cells in matrix]
    assert rows == sorted(rows, reverse=True)
    assert matrix[0][1][0][0] == ((labels == 11) & (scores.argmax(axis=1) == 11)).sum()
    assert next(iter(findings.curves)) == names[11]
    assert len(findings.curves) == 10
    assert "10 most frequent of 12 classes" in page.to_html()


def test_rows_that_are_all_right_are_the_least_certain_ones(collect: Callable[..., Any], records: list[bytes]) -> None:
    labels = np.arange(3000) % 2
    scores = np.where(labels[:, None] == [0, 1], 0.9, 0.1)
    report = ModelReport("classification")
    findings = ModelFindings.of(report, collect(report, records, labels, scores), ["label"], ["a"], lambda _: scores)
    html = ModelPage(findings, "eval", None, (), {}).to_html()
    assert "The 20 least certain rows" in html
    assert "Wrong labels" not in html


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
    findings = ModelFindings.of(report, collected, ["label"], ["a"], lambda _: predictions)
    page = ModelPage(findings, "eval", None, (MetricLine("m", float("nan")),), {})
    html = page.to_html()
    check_page(html)
    assert html.count("<svg") == {"regression": 3, "several": 3, "one label": 1, "many": 3}[kind]
    assert json.loads(page.to_json())["metrics"][0]["value"] is None


def test_the_page_of_sets_has_each_class_and_pairs_of_a_missed_and_an_added_one(
    findings_of_sets: ModelFindings, tmp_path: Path
) -> None:
    scores = Scores(
        "test", 3000, {"f1": 0.71, "macro_f1": 0.61}, {"f1": (0.70, 0.72)}, {"f1": Guess(0.6, "always 'a'")}
    )
    page = ModelPage(findings_of_sets, "test", None, (MetricLine("f1", 0.71, 0.7),), {}, scores)
    page.write(str(tmp_path))
    html, found = (tmp_path / HTML).read_text(), json.loads((tmp_path / JSON).read_text())
    check_page(html)
    assert html.count("<svg") == 4
    assert "F1 0.710 ± 0.010" in html
    assert "Macro F1" in html
    rare = next(one for one in found["classes"] if one["name"] == "rare")
    assert rare["recall"] == pytest.approx(1 - rare["missed"] / rare["rows"])
    assert f"<td>{rare['missed']}</td><td>{rare['added']}</td>" in html
    assert found["confusions"][0][2] >= found["confusions"][-1][2] > 0
    assert found["curves"].keys() == {"big", "old", "red", "rare"}
    assert len(found["worst_rows"]) == 20
    [[_, corrected], _] = found["both"]
    assert f"{corrected:,} mistake" in html
    assert "exactly the right set" in page.in_words


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"task": "ranking"}, "task"),
        ({"task": "classification", "threshold": 1.0}, "threshold"),
        ({"task": "classification", "positive": 2}, "positive"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, object], where: str) -> None:
    with pytest.raises(InfeedError) as caught:
        schema.read(ModelReport, given, "model_report")
    assert where in caught.value.where


def test_options_come_back_equal_and_classes_without_names_have_numbers() -> None:
    report = ModelReport("classification", ("a",), metrics=("auc",))
    assert schema.read(ModelReport, schema.to_plain(report)) == report
    assert [report.name_of(number) for number in (0, 1)] == ["a", "class 1"]


def test_errors_that_are_all_equal_have_a_histogram() -> None:
    ElementTree.fromstring(plots.residuals(np.zeros(10)))


def test_importances_beyond_twenty_columns_are_left_out_and_long_names_cut() -> None:
    svg = plots.importance([Importance(f"column {number} {'x' * 40}", 1.0 / (number + 1), 0.1) for number in range(30)])
    assert "column 0 " in svg
    assert "column 19 " in svg
    assert "column 20 " not in svg
    assert "x" * 30 not in svg
