"""What a report keeps is bounded, and the same in any order of work."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn import metrics
from sklearn.calibration import calibration_curve

from infeed.components.base.errors import InfeedError
from infeed.components.evaluation.model_report import collected
from infeed.components.evaluation.model_report.collected import (
    BUCKETS,
    SAMPLE,
    WORST,
    Collected,
    Curve,
    calibration_error,
)
from infeed.components.evaluation.model_report.options import ModelReport

TWO = ModelReport("classification")
Collect = Callable[..., Collected]


def test_counts_are_those_of_scikit_learn(collect: Collect, records: list[bytes], two_classes: Any) -> None:
    labels, scores = two_classes
    sums = collect(TWO, records, labels, scores).sums[""]
    matrix = metrics.confusion_matrix(labels, scores[:, 1] > 0.5)
    assert np.array_equal(sums.matrix, [*matrix, [0, 0]])
    assert sums.loss / sums.rows == pytest.approx(metrics.log_loss(labels, scores), rel=1e-6)
    curve = Curve.of(sums.buckets[0])
    assert curve is not None
    assert curve.auc == pytest.approx(metrics.roc_auc_score(labels, scores[:, 1]), abs=1e-4)
    assert curve.average_precision == pytest.approx(metrics.average_precision_score(labels, scores[:, 1]), abs=1e-3)
    tn, fp, fn, tp = matrix.ravel()
    assert curve.at(0.5) == pytest.approx((tp / (tp + fn), fp / (fp + tn), tp / (tp + fp)))
    share, sure = calibration_curve(labels, scores[:, 1], n_bins=10)
    rows, sum_sure, right = sums.bins.T
    assert right / rows == pytest.approx(share)
    assert sum_sure / rows == pytest.approx(sure)
    assert calibration_error(sums.bins) == pytest.approx(np.average(np.abs(share - sure), weights=rows))


def test_several_classes_have_a_curve_each_and_unknown_labels_a_row(collect: Collect, records: list[bytes]) -> None:
    draw = np.random.default_rng(1)
    labels, scores = draw.integers(-1, 4, 3000), draw.dirichlet(np.ones(4), 3000)
    sums = collect(TWO, records, labels, scores).sums[""]
    assert sums.matrix[:-1].sum() == (labels >= 0).sum()
    assert sums.matrix[-1].sum() == (labels < 0).sum()
    for number, buckets in enumerate(sums.buckets):
        curve = Curve.of(buckets)
        assert curve is not None
        assert curve.auc == pytest.approx(metrics.roc_auc_score(labels == number, scores[:, number]), abs=1e-3)


def test_counts_of_sets_are_those_of_scikit_learn(collect: Collect, records: list[bytes], sets: Any) -> None:
    labels, scores = sets
    report = ModelReport("multilabel", threshold=0.4)
    found = collect(report, records, labels, scores)
    sums, predicted = found.sums[""], scores > 0.4
    actual, called, right = np.split(sums.sets, 3)
    matrices = metrics.multilabel_confusion_matrix(labels, predicted)
    np.testing.assert_array_equal(right, matrices[:, 1, 1])
    np.testing.assert_array_equal(actual - right, matrices[:, 1, 0])
    np.testing.assert_array_equal(called - right, matrices[:, 0, 1])
    assert sums.exact == metrics.accuracy_score(labels, predicted, normalize=False)
    assert sums.loss / sums.rows == pytest.approx(metrics.log_loss(labels.ravel(), scores.ravel()), rel=1e-6)
    curve = Curve.of(sums.buckets[3])
    assert curve is not None
    assert curve.auc == pytest.approx(metrics.roc_auc_score(labels[:, 3], scores[:, 3]), abs=1e-4)
    share, sure = calibration_curve(labels.ravel(), scores.ravel(), n_bins=10)
    assert calibration_error(sums.bins) == pytest.approx(
        np.average(np.abs(share - sure), weights=sums.bins[:, 0]), rel=1e-3
    )
    swapped = sum(((labels[:, 0] == 1) & ~predicted[:, 0] & (labels[:, 1] == 0) & predicted[:, 1]).tolist())
    assert sums.matrix[0, 1] == swapped > 0
    assert len(found.clusters) <= 1_000
    np.testing.assert_array_equal(found.clusters.total, sums.sets)


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_the_sample_and_the_worst_rows_do_not_depend_on_the_ranges(
    collect: Collect, records: list[bytes], two_classes: Any, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collected, "SAMPLE_BYTES", 50_000)
    labels, scores = two_classes
    whole = collect(TWO, records, labels, scores, batch=3000)
    found = Collected()
    for rows in np.array_split(np.arange(3000), parts):
        chosen = slice(rows[0], rows[-1] + 1)
        one = Collected()
        for start in range(chosen.start, chosen.stop, 100):
            part = slice(start, min(start + 100, chosen.stop))
            batch = collected.Batch("x/Split-eval/shard-0", start, records[part])
            observed = collected.Observed(len(batch.records), labels[part, None], scores[part], None)
            one.add(batch, {"": observed}, TWO)
        found.merge(one)
    assert found.worst is not None
    assert found.sample is not None
    assert whole.worst is not None
    assert whole.sample is not None
    assert found.worst.places == whole.worst.places
    assert found.sample.places == whole.sample.places
    assert found.sample.records == whole.sample.records
    assert 0 < sum(map(len, found.sample.records)) <= 50_000
    losses = -np.log(scores[np.arange(3000), labels])
    assert [number for _, number in found.worst.places] == np.argsort(-losses)[:WORST].tolist()


def test_rows_beyond_the_sample_are_dropped(collect: Collect, records: list[bytes], two_classes: Any) -> None:
    found = collect(TWO, records, *two_classes)
    assert found.sample is not None
    assert len(found.sample) == SAMPLE


def test_nan_is_counted_and_is_the_worst(collect: Collect, records: list[bytes]) -> None:
    predictions, labels = np.zeros((3000, 1)), np.ones(3000)
    predictions[17] = np.nan
    found = collect(ModelReport("regression"), records, labels, predictions)
    assert found.sums[""].nans == 1
    assert found.sums[""].errors.tolist() == [-2999, 2999, 2999]
    assert found.worst is not None
    assert found.worst.places[0] == ("shard-0", 17)


def test_a_number_above_1_is_no_probability(collect: Collect, records: list[bytes]) -> None:
    with pytest.raises(InfeedError, match=r"predicts 7") as caught:
        collect(TWO, records, np.zeros(3000, np.int64), np.full((3000, 1), 7.0))
    assert caught.value.where.startswith("model_report.task")


def counts(**rows: tuple[int, int]) -> np.ndarray:  # type: ignore[type-arg]
    found = np.zeros((BUCKETS, 2), np.int64)
    for place, given in {"low": 0, "high": BUCKETS - 1}.items():
        found[given] = rows.get(place, (0, 0))
    return found


def test_a_perfect_model_and_one_that_knows_nothing() -> None:
    perfect, nothing = Curve.of(counts(low=(5, 0), high=(0, 3))), Curve.of(counts(low=(5, 3)))
    assert perfect is not None
    assert nothing is not None
    assert (perfect.auc, perfect.average_precision) == (1.0, 1.0)
    assert (nothing.auc, nothing.average_precision) == (0.5, 3 / 8)
    assert perfect.at(0.5) == (1.0, 0.0, 1.0)
    assert nothing.at(0.5)[:2] == (0.0, 0.0)
    assert math.isnan(nothing.at(0.5)[2])


@pytest.mark.parametrize("rows", [(5, 0), (0, 5), (0, 0)])
def test_one_class_alone_has_no_curve(rows: tuple[int, int]) -> None:
    assert Curve.of(counts(low=rows)) is None


def test_calibration_error_is_the_weighted_gap() -> None:
    assert calibration_error(np.array([[30, 27.0, 24.0], [10, 2.0, 4.0], [0, 0, 0]])) == pytest.approx(5 / 40)
