"""Intervals: published values, what they do at the ends, and how often they hold what is true."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from infeed.components.evaluation import intervals

TRIALS, ROWS = 400, 120


def test_the_interval_of_a_share_is_wilsons() -> None:
    # Newcombe (1998), Two-sided confidence intervals for the single proportion, table I: 81 of 263, 15 of 148, 1 of 29.
    assert intervals.of_share(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert intervals.of_share(15 / 148, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert intervals.of_share(1 / 29, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)


def test_a_score_without_an_error_has_an_interval_that_narrows_with_the_rows() -> None:
    few, many = intervals.of_share(1.0, 25), intervals.of_share(1.0, 2_500)
    assert few is not None
    assert many is not None
    assert few[1] == many[1] == 1.0
    assert few[0] == pytest.approx(25 / (25 + 1.96**2), abs=1e-4)
    assert few[0] < many[0] < 1.0
    of_auc = intervals.of_auc(1.0, 10, 15)
    assert of_auc is not None
    assert 0.7 < of_auc[0] < of_auc[1] == 1.0


@pytest.mark.parametrize(("positives", "negatives"), [(0, 9), (9, 0)])
def test_without_both_classes_there_is_no_interval_of_auc(positives: int, negatives: int) -> None:
    assert intervals.of_auc(math.nan, positives, negatives) is None
    assert intervals.of_share(math.nan, 0) is None


def test_a_class_that_is_never_called_has_no_interval_of_precision() -> None:
    found = intervals.of_class({(0, 0): 8, (1, 0): 2}, 1)
    assert found["precision"] is None
    assert found["recall"] == intervals.of_share(0.0, 2)


def drawn(draw: Any, shares: Any, rows: int = ROWS) -> dict[tuple[int, int], int]:
    counts = draw.multinomial(rows, shares.reshape(-1)).reshape(shares.shape)
    return {(of, said): int(count) for (of, said), count in np.ndenumerate(counts) if count}


@pytest.mark.parametrize("score", ["recall", "precision", "f1"])
@pytest.mark.parametrize(
    ("shares", "of"),
    [
        ([[0.6, 0.1], [0.05, 0.25]], lambda matrix: intervals.of_class(matrix, 1)),
        ([[0.3, 0.1, 0.02], [0.05, 0.2, 0.05], [0.03, 0.05, 0.2]], lambda matrix: intervals.of_means(matrix, -1)),
    ],
    ids=["a class", "means"],
)
def test_intervals_of_a_class_and_of_means_hold_the_truth_in_95_of_100_trials(shares: Any, of: Any, score: str) -> None:
    shares = np.array(shares)
    right, actual, called = np.diag(shares), shares.sum(1), shares.sum(0)
    parts = {"recall": right / actual, "precision": right / called, "f1": 2 * right / (actual + called)}
    truth = parts[score][1] if len(shares) == 2 else parts[score].mean()
    draw = np.random.default_rng(0)
    found = [of(drawn(draw, shares))[score] for _ in range(TRIALS)]
    assert 0.92 < holds(found, truth) < 0.98


def test_rows_of_a_class_that_the_model_does_not_know_count_as_called_only() -> None:
    matrix = {(0, 0): 30, (0, 1): 5, (1, 1): 40, (1, 0): 4}
    known, unknown = intervals.of_means(matrix, -1), intervals.of_means({**matrix, (-1, 0): 20}, -1)
    assert unknown["recall"] == pytest.approx(known["recall"])
    assert unknown["precision"] != pytest.approx(known["precision"])


def test_without_an_error_means_over_classes_have_the_interval_of_a_share_of_as_many_rows() -> None:
    found = intervals.of_means({(0, 0): 5, (1, 1): 5}, -1)
    assert found["recall"] == found["precision"] == found["f1"] == intervals.of_share(1.0, 10)
    rare = intervals.of_means({(0, 0): 1_000, (1, 1): 2}, -1)["recall"]
    assert rare is not None
    assert rare[0] < 0.7


def test_intervals_of_auc_and_of_errors_hold_the_truth_in_95_of_100_trials() -> None:
    draw, areas, errors = np.random.default_rng(0), [], []
    for _ in range(TRIALS):
        positive, negative = draw.normal(1.5, size=40), draw.normal(size=80)
        areas.append(intervals.of_auc(float((positive[:, None] > negative).mean()), 40, 80))
        squares = draw.normal(size=ROWS) ** 2
        errors.append(intervals.of_mean_square(squares.mean(), squares.std() / math.sqrt(ROWS), ROWS))
    assert 0.92 < holds(areas, 0.5 * (1 + math.erf(1.5 / 2))) < 0.985
    assert 0.91 < holds(errors, 1.0) < 0.98


def test_few_rows_and_a_model_without_an_error_have_no_interval_of_errors() -> None:
    assert intervals.of_mean_square(1.0, 0.1, 10) is None
    assert intervals.of_mean_square(0.0, 0.0, 1_000) is None
    assert intervals.of_r2(math.nan, math.nan, 1_000) is None


def test_the_interval_of_r2_ends_below_1() -> None:
    found = intervals.of_r2(0.98, 0.02, 50)
    assert found is not None
    assert found[0] < 0.98 < found[1] < 1


def holds(found: list[Any], truth: float) -> float:
    inside = Counter(interval[0] <= truth <= interval[1] for interval in found if interval)
    return inside[True] / len(found)
