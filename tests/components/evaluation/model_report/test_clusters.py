"""Sums of groups of rows: the metrics without each group are those of the other rows."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import f1_score, precision_recall_fscore_support

from infeed.components.base import schema
from infeed.components.evaluation.model_report.clusters import (
    ClusterSums,
    best_guess,
    classes_of,
    groups_of,
    scores_of_sets,
    terms_of,
)
from infeed.components.evaluation.model_report.collected import Scored, Sums
from infeed.components.evaluation.model_report.options import ModelReport
from infeed.components.evaluation.model_report.scores import Scores, make_scores, of_sets, unproven
from infeed.components.evaluation.pairs import Array

TWO = ModelReport("classification", ("no", "yes"), scored_class=1, split_by=("city", "year"))
THREE = replace(TWO, classes=("a", "b", "c"), scored_class=None)
ROWS, GROUPS = 600, 9


def columns_of(group: Array) -> dict[str, Any]:
    """Text and number; an empty list where the row has no value."""
    return {
        "city": pa.array([[f"c{one // 3}".encode()] if one // 3 else [] for one in group.tolist()]),
        "year": pa.array([[1990 + one % 3] for one in group.tolist()]),
    }


def scored(classes: int, groups: int = GROUPS, rows: int = ROWS) -> tuple[Array, Scored]:
    draw = np.random.default_rng(4)
    labels, scores = draw.integers(-1, classes, rows), draw.dirichlet(np.ones(classes), rows)
    scores = np.round(scores * 64) / 64  # as the bins of the area under the curve have edges of their own
    group = draw.permutation(np.arange(rows) % groups)
    return group, Scored(labels, scores, scores.argmax(axis=1), np.zeros(rows))


def part_of(rows: Scored, places: Array) -> Scored:
    return Scored(rows.labels[places], rows.scores[places], rows.predicted[places], rows.losses[places])


def sums_of(group: Array, rows: Scored, report: ModelReport, parts: int = 4) -> ClusterSums:
    found = ClusterSums()
    for places in np.array_split(np.arange(len(group)), parts):
        one = ClusterSums()
        one.add(groups_of(columns_of(group[places]), report.split_by, len(places)), part_of(rows, places), report)
        found.merge(one)
    return found


@pytest.mark.parametrize("report", [TWO, THREE], ids=["one class", "means"])
def test_without_a_group_the_scores_are_those_of_the_other_rows(report: ModelReport) -> None:
    from sklearn import metrics as sklearn

    group, rows = scored(len(report.classes))
    found = sums_of(group, rows, report).left_out(report)
    expected: dict[str, list[float]] = {name: [] for name in found}
    for left in range(GROUPS):
        some = part_of(rows, np.flatnonzero(group != left))
        known = some.labels >= 0
        expected["accuracy"].append((some.labels == some.predicted).mean())
        options: dict[str, Any] = {"average": "macro", "zero_division": 0.0}
        if report.scored_class is not None:
            options = {"pos_label": 1, "zero_division": 0.0}
            known = np.full(len(known), True)
        given = some.labels if report.scored_class is None else some.labels == 1
        called = some.predicted if report.scored_class is None else some.predicted == 1
        of_all = {"recall": sklearn.recall_score(given[known], called[known], **options)}
        of_all["precision"] = (
            sklearn.precision_score(given, called, labels=[0, 1, 2], **options)
            if report.scored_class is None
            else sklearn.precision_score(given, called, **options)
        )
        for name, value in of_all.items():
            expected[name].append(value)
        if "auc" in found:
            binned = np.clip(some.scores[:, 1] * 200, 0, 199).astype(int)
            expected["auc"].append(sklearn.roc_auc_score(some.labels == 1, binned))
    for name, values in expected.items():
        if values:
            assert sorted(found[name]) == pytest.approx(sorted(values)), name


def test_a_regression_without_a_group_has_the_errors_of_the_other_rows() -> None:
    report = ModelReport("regression", split_by=("city", "year"))
    group, _ = scored(2)
    draw = np.random.default_rng(0)
    labels = draw.normal(size=ROWS)
    rows = Scored(labels, (labels + 1)[:, None], labels + draw.normal(size=ROWS), np.zeros(ROWS))
    found = sums_of(group, rows, report).left_out(report)
    errors = rows.predicted - labels
    expected = [1 - (errors[group != one] ** 2).mean() / labels[group != one].var() for one in range(GROUPS)]
    assert sorted(found["r2"]) == pytest.approx(sorted(expected))
    assert sorted(found["rmse"]) == pytest.approx(
        sorted(np.sqrt((errors[group != one] ** 2).mean()) for one in range(GROUPS))
    )


def by_group(sums: ClusterSums) -> dict[int, list[float]]:
    return {group: one.tolist() for group, one in sums.sums.items()}


def test_groups_are_found_whatever_the_batches_and_more_than_a_thousand_share_sums() -> None:
    group, rows = scored(2)
    one, other = sums_of(group, rows, TWO, 1), sums_of(group, rows, TWO, 60)
    assert len(one) == len(other) == GROUPS
    assert by_group(one) == by_group(other)
    many, rows = scored(2, groups=3_000, rows=6_000)
    several, whole = (sums_of(many, rows, TWO, parts) for parts in (7, 1))
    assert several.are_joined
    assert 900 <= len(several) <= 1_000
    assert by_group(several) == by_group(whole)
    assert sum(sums[:3].sum() for sums in several.sums.values()) == 6_000


def test_sums_of_sets_do_not_depend_on_the_parts_and_are_few_for_many_classes() -> None:
    draw, report = np.random.default_rng(0), ModelReport("multilabel")
    labels, called = (draw.random((1_500, 10_000)) < 0.01 for _ in range(2))
    rows, group = Scored(labels, np.zeros([1_500, 1]), called, np.zeros(1_500)), draw.permutation(1_500)
    found = []
    for bounds in ([0, 1_500], [0, 20, 1_490, 1_500]):
        sums = ClusterSums()
        for part in map(np.arange, bounds[:-1], bounds[1:]):
            one = ClusterSums()
            one.add(group[part], part_of(rows, part), report)
            sums.merge(one)
        found.append(sums)
    assert len(found[0]) == 66
    assert by_group(found[0]) == by_group(found[1])


def test_a_column_that_no_row_of_a_batch_has_is_missing_in_each() -> None:
    columns = {"city": pa.array([None, None, [b"c1"]]), "year": pa.array([[1990]] * 3)}
    missing, same, other = groups_of(columns, TWO.split_by, 3).tolist()
    assert missing == same != other
    assert groups_of({"year": columns["year"]}, TWO.split_by, 3).tolist() == [missing] * 3


@pytest.mark.parametrize("report", [TWO, THREE, ModelReport("regression"), ModelReport("multilabel")], ids=str)
@pytest.mark.parametrize("unit", [1.0, 0.001])
def test_a_row_of_weight_3_counts_as_three_rows_and_the_unit_of_weights_does_not_matter(
    report: ModelReport, unit: float
) -> None:
    draw, (group, rows) = np.random.default_rng(1), scored(max(len(report.classes), 2))
    if report.task == "multilabel":
        labels, called = draw.random((2, ROWS, 4)) < 0.3
        rows = Scored(labels, labels * 1.0, called, rows.losses)
    if report.task == "regression":
        rows = Scored(draw.normal(size=ROWS), rows.scores[:, :1], rows.scores[:, 0], rows.losses)
    times = draw.integers(1, 4, ROWS)
    weighted, repeated = ClusterSums(), ClusterSums()
    weighted.add(group, rows, report, times * unit)
    repeated.add(np.repeat(group, times), part_of(rows, np.repeat(np.arange(ROWS), times)), report)
    assert (weighted.rows, repeated.rows) == (ROWS, times.sum())
    expected = repeated.left_out(report)
    for name, each in weighted.left_out(report).items():
        np.testing.assert_allclose(each, expected[name], rtol=1e-6, err_msg=name)


REPORT = ModelReport("multilabel", ("a", "b", "c", "d"), metrics=("f1", "recall", "precision"))
RATES = np.array([0.6, 0.3, 0.1, 0.05])


def rows_of_sets(rows: int, seed: int, noise: float = 0.8) -> tuple[Any, Any]:
    """Labels and predictions, bool [rows, 4]. Errors of one row are alike, so its classes are not independent."""
    draw = np.random.default_rng(seed)
    hard = draw.normal(size=(rows, 1))
    labels = draw.random((rows, 4)) < RATES
    return labels, labels ^ (draw.normal(size=(rows, 4)) + 1.5 * hard > 3 - noise)


def scored_sets(labels: Any, predicted: Any, report: ModelReport = REPORT) -> Scores:
    """Scores as the evaluation gives them, of rows that arrive in parts."""
    clusters, rows = ClusterSums(), len(labels)
    for part in np.array_split(np.arange(rows), 3):
        one = Scored(labels[part], np.zeros([len(part), 4]), predicted[part], np.zeros(len(part)))
        clusters.add(part, one, report)
    sums = scores_of_sets(terms_of(labels, predicted).sum(axis=0))
    metrics = {name: float(sums[name]) for name in report.metrics}
    return make_scores(report, "test", rows, of_sets(metrics, rows, report, clusters), clusters)


def test_the_scores_are_those_of_scikit_learn() -> None:
    labels, predicted = rows_of_sets(400, 1)
    sums = terms_of(labels, predicted).sum(axis=0)
    found = scores_of_sets(sums)
    for average, prefix in (("micro", ""), ("macro", "macro_")):
        precision, recall, f1, _ = precision_recall_fscore_support(labels, predicted, average=average)
        for name, value in (("precision", precision), ("recall", recall), ("f1", f1)):
            assert found[prefix + name] == pytest.approx(value), prefix + name
    each = precision_recall_fscore_support(labels, predicted, average=None)
    by_name = {one.name: one for one in classes_of(sums, REPORT)}
    for number, name in enumerate(REPORT.classes):
        one = by_name[name]
        assert (one.precision, one.recall, one.f1, one.rows) == pytest.approx([values[number] for values in each])
        assert one.interval is not None
        assert one.interval[0] < one.f1 < one.interval[1]
    errors = [one.missed + one.added for one in classes_of(sums, REPORT)]
    assert errors == sorted(errors, reverse=True)


def test_a_class_without_rows_is_not_in_the_means_and_has_no_interval_of_its_own() -> None:
    labels, predicted = rows_of_sets(400, 1)
    labels[:, 3] = predicted[:, 3] = False
    sums = terms_of(labels, predicted).sum(axis=0)
    assert scores_of_sets(sums)["macro_f1"] == pytest.approx(f1_score(labels[:, :3], predicted[:, :3], average="macro"))
    *_, last = classes_of(sums, REPORT)
    assert (last.name, last.f1, last.interval) == ("d", 0, None)
    grouped = classes_of(sums, replace(REPORT, split_by=("city",)))
    assert [one.interval for one in grouped] == [None] * 4


def test_the_guess_is_the_best_of_all_sets() -> None:
    labels, _ = rows_of_sets(300, 2)
    sums = terms_of(labels, labels).sum(axis=0)
    chosen = [list(one) for size in (1, 2, 3, 4) for one in combinations(range(4), size)]
    every = [np.isin(np.arange(4), one) & np.ones([300, 1], bool) for one in chosen]
    best = max(f1_score(labels, one, average="micro") for one in every)
    value, by = best_guess(sums, 300, REPORT)
    assert value == pytest.approx(best)
    assert by == "always 'a', 'b'"


@pytest.mark.parametrize("rows", [150, 2_500])
def test_intervals_hold_the_score_of_many_rows(rows: int) -> None:
    many = scored_sets(*rows_of_sets(300_000, 0)).metrics
    tries = [scored_sets(*rows_of_sets(rows, seed)) for seed in range(1, 101)]
    for name in ("f1", "recall", "precision", "macro_f1"):
        held = sum(one.intervals[name][0] <= many[name] <= one.intervals[name][1] for one in tries)
        assert held >= 88, name
    widths = np.mean([np.diff(one.intervals["f1"]) for one in tries])
    spread = 2 * 1.96 * np.std([one.metrics["f1"] for one in tries])
    assert widths == pytest.approx(spread, rel=0.2)  # nor are they too wide


def test_a_score_without_errors_has_an_interval_and_few_rows_are_cautioned() -> None:
    labels, _ = rows_of_sets(60, 3)
    found = scored_sets(labels, labels)
    low, high = found.intervals["f1"]
    assert 0.9 < low < high == 1
    assert found.groups == 0
    assert "60 test rows" in found.caution


def test_a_model_that_predicts_like_the_guess_is_not_proven_better() -> None:
    labels, predicted = rows_of_sets(500, 4)
    assert unproven(scored_sets(labels, predicted), REPORT) == ""
    always = np.isin(np.arange(4), [0, 1]) & np.ones([500, 1], bool)
    assert "always 'a'" in unproven(scored_sets(labels, always), REPORT)


def test_a_model_that_predicts_no_class_has_no_precision() -> None:
    labels, _ = rows_of_sets(300, 5)
    metrics = {"f1": 0.0, "recall": 0.0, "precision": math.nan}
    clusters = ClusterSums()
    clusters.add(np.arange(300), Scored(labels, labels * 0.0, np.zeros_like(labels), np.zeros(300)), REPORT)
    found = make_scores(REPORT, "test", 300, of_sets(metrics, 300, REPORT, clusters), clusters)
    assert {name: found.metrics.get(name) for name in metrics} == {"f1": 0.0, "recall": 0.0, "precision": None}
    assert schema.read(Scores, json.loads(json.dumps(asdict(found)))) == found
    assert "clearly better" in unproven(found, REPORT)


def test_weights_of_rows_count_in_the_means_and_in_the_guess() -> None:
    labels, predicted = rows_of_sets(300, 6)
    weights = np.random.default_rng(6).gamma(1.0, 0.01, 300)
    clusters = ClusterSums()
    rows = Scored(labels, labels * 0.0, predicted, np.zeros(300))
    clusters.add(np.arange(300), rows, REPORT, weights)
    metrics = {"f1": f1_score(labels, predicted, average="micro", sample_weight=weights)}
    found = make_scores(REPORT, "test", 300, of_sets(metrics, float(weights.sum()), REPORT, clusters), clusters)
    macro = f1_score(labels, predicted, average="macro", sample_weight=weights)
    assert found.metrics["macro_f1"] == pytest.approx(macro)
    low, high = found.intervals["f1"]
    assert low < metrics["f1"] < high
    best = [np.arange(4) < size for size in (1, 2, 3, 4)]
    guesses = [f1_score(labels, one & np.ones([300, 1], bool), average="micro", sample_weight=weights) for one in best]
    assert found.guesses["f1"].value == pytest.approx(max(guesses))


def test_other_metrics_of_sets_have_no_mean_over_the_classes() -> None:
    labels, predicted = rows_of_sets(300, 6)
    clusters = ClusterSums()
    clusters.add(np.arange(300), Scored(labels, labels * 0.0, predicted, np.zeros(300)), REPORT)
    metrics, _, guesses = of_sets({"auc": 0.9, "f1": 0.8}, 300, REPORT, clusters)
    assert metrics.keys() == {"auc", "f1", "macro_f1"}
    assert guesses.keys() == {"f1"}


def test_one_group_is_too_few_to_show_anything() -> None:
    labels, predicted = rows_of_sets(300, 6)
    report, clusters = replace(REPORT, split_by=("city",)), ClusterSums()
    clusters.add(np.zeros(300, np.int64), Scored(labels, labels * 0.0, predicted, np.zeros(300)), report)
    found = make_scores(report, "test", 300, of_sets({"f1": 0.99}, 300, report, clusters), clusters)
    assert found.groups == 1
    assert "1 group" in found.caution
    assert "1 group" in unproven(found, report)


def test_a_baseline_that_knows_none_of_the_shown_classes_has_no_curves() -> None:
    labels = np.eye(4, dtype=bool)
    report = replace(REPORT, shown_classes=(7, 8))
    assert len(Sums.of(Scored(labels, labels * 1.0, labels, np.zeros(4)), report).buckets) == 0


def test_a_set_is_not_right_where_the_model_predicts_nan() -> None:
    labels = np.zeros((3, 4), bool)
    scores = np.array([[0.1] * 4, [np.nan] * 4, [0.1, np.nan, 0.1, 0.1]])
    assert Scored(labels, scores, scores > 0.5, np.zeros(3)).is_right.tolist() == [True, False, False]


def test_without_sums_of_rows_there_are_only_the_metrics() -> None:
    metrics = {"f1": 0.5, "recall": 0.4, "precision": 0.7}
    found = make_scores(REPORT, "test", 400, of_sets(metrics, 400, REPORT, None))
    assert (found.metrics, found.intervals, found.guesses) == (metrics, {}, {})
