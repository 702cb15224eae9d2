"""Sums of groups of rows: the metrics without each group are those of the other rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.evaluation.model_report.clusters import ClusterSums, groups_of
from infeed.components.evaluation.model_report.collected import Scored
from infeed.components.evaluation.model_report.options import ModelReport
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
