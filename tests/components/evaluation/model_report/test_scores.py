"""Scores of a run: rows, intervals, what guessing scores on the same rows, and when to be careful."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from infeed.components.evaluation import intervals
from infeed.components.evaluation.model_report.clusters import ClusterSums
from infeed.components.evaluation.model_report.options import ModelReport
from infeed.components.evaluation.model_report.scores import (
    Guess,
    Scores,
    make_scores,
    of_classes,
    of_errors,
    unproven,
    with_interval,
)

MATRIX = {(0, 0): 250, (0, 1): 20, (1, 1): 25, (1, 0): 5}
CLASSES = ModelReport("classification", ("no", "yes"), metrics=("accuracy",))
NUMBERS = ModelReport("regression", metrics=("mse", "mae", "r2"))


def judged_by(metric: str, scored_class: int | None = None) -> ModelReport:
    return replace(CLASSES, metrics=(metric, "accuracy"), scored_class=scored_class)


def scores_of(metrics: dict[str, float], matrix: dict[tuple[int, int], float], report: ModelReport = CLASSES) -> Scores:
    return make_scores(report, "test", round(sum(matrix.values())), of_classes(metrics, matrix, report))


def test_accuracy_stands_beside_the_share_of_the_commonest_class_of_the_same_rows() -> None:
    found = scores_of({"accuracy": 275 / 300}, MATRIX)
    assert (found.split, found.rows) == ("test", 300)
    assert found.guesses == {"accuracy": Guess(270 / 300, "always 'no'")}
    assert found.intervals == {"accuracy": intervals.of_share(275 / 300, 300)}


def test_the_guess_is_a_class_that_the_model_knows() -> None:
    found = scores_of({"accuracy": 0.2}, {(-1, 0): 3, (1, 1): 1, (0, 1): 1, (1, 0): 1})
    assert found.guesses == {"accuracy": Guess(2 / 6, "always 'yes'")}


def test_scores_of_one_class_have_intervals_and_auc_and_f1_a_guess() -> None:
    names = ("auc", "accuracy", "recall", "precision", "f1")
    found = scores_of(dict.fromkeys(names, 0.9), MATRIX, judged_by("auc", 1))
    assert found.intervals.keys() == set(names)
    assert found.intervals["auc"] == intervals.of_auc(0.9, 30, 270)
    assert found.guesses["auc"].value == 0.5
    assert found.guesses["f1"] == Guess(pytest.approx(2 * 30 / (30 + 300)), "always 'yes'")


def test_means_over_classes_have_intervals_and_f1_the_guess_of_the_commonest() -> None:
    names = ("f1", "accuracy", "recall", "precision")
    found = scores_of(dict.fromkeys(names, 0.7), MATRIX, judged_by("f1"))
    assert found.intervals.keys() == set(names)
    assert found.guesses["f1"].value == pytest.approx(2 * 0.9 / 1.9 / 2)


ERRORS = {"mse": 4.0, "mae": 1.5, "r2": 0.75}
BESIDE = {"label_variance": 16.0, "mse_standard_error": 0.2, "r2_standard_error": 0.02}


def test_a_regression_has_rmse_and_r2_beside_what_the_mean_scores() -> None:
    found = make_scores(NUMBERS, "test", 400, of_errors(ERRORS, BESIDE, 400))
    assert list(found.metrics.items()) == [("rmse", 2.0), ("r2", 0.75), ("mse", 4.0), ("mae", 1.5)]
    values = {name: guess.value for name, guess in found.guesses.items()}
    assert values == {"rmse": 4.0, "r2": 0.0, "mse": 16.0}
    assert found.intervals["rmse"] == pytest.approx(tuple(math.sqrt(x) for x in found.intervals["mse"]))
    # The variance of |error| is 4 - 1.5^2.
    assert found.intervals["mae"] == intervals.of_mean_square(1.5, math.sqrt(1.75 / 400), 400)


def test_a_label_that_is_constant_in_the_scored_rows_has_no_r2() -> None:
    undefined = {"label_variance": 0.0, "mse_standard_error": 0.2, "r2_standard_error": math.nan}
    found = make_scores(NUMBERS, "test", 400, of_errors({**ERRORS, "r2": math.nan}, undefined, 400))
    assert found.metrics.keys() == {"rmse", "mse", "mae"}
    assert "r2" not in found.intervals
    assert "r2" not in found.guesses


@pytest.mark.parametrize(
    ("accuracy", "commonest", "rows", "words"),
    [
        (0.95, 0.6, 3_000, ""),
        (0.95, 0.6, 60, "60 test rows are few: score it on more rows"),
        (0.75, 0.6, 200, "200 test rows are few"),
        (0.91, 0.9, 1_500, "1,500 test rows do not distinguish this model from always 'no'"),
    ],
)
def test_a_score_that_says_little_is_cautioned(accuracy: float, commonest: float, rows: int, words: str) -> None:
    wrong = (1 - accuracy) * rows
    matrix = {(0, 0): commonest * rows - wrong, (0, 1): wrong, (1, 1): (1 - commonest) * rows}
    caution = scores_of({"accuracy": accuracy}, matrix).caution
    assert caution.startswith(words)
    assert bool(caution) == bool(words)


def test_so_few_rows_that_there_is_no_interval_are_reported() -> None:
    found = make_scores(NUMBERS, "test", 5, of_errors(ERRORS, BESIDE, 5))
    assert not found.intervals
    assert found.caution.startswith("5 test rows are too few for an interval")
    assert unproven(found, NUMBERS) == "5 test rows are too few to show whether it is better than always the mean"


@pytest.mark.parametrize(
    ("accuracy", "rows", "doubt"),
    [
        (0.95, 1_000, ""),
        (0.91, 1_000, "its accuracy, 0.891 to 0.926 by 1,000 test rows, is not clearly better than always 'no'"),
        (0.5, 1_000, "its accuracy, 0.469 to 0.531 by 1,000 test rows"),
        (0.95, 30, "its accuracy, 0.809 to 0.988 by 30 test rows"),
    ],
)
def test_a_model_is_in_doubt_unless_its_interval_is_better_than_the_guess(
    accuracy: float, rows: int, doubt: str
) -> None:
    wrong = round((1 - accuracy) * rows, 6)
    matrix = {(0, 0): 0.9 * rows - wrong, (0, 1): wrong, (1, 1): 0.1 * rows}
    found = unproven(scores_of({"accuracy": accuracy}, matrix), CLASSES)
    assert found.startswith(doubt)
    assert bool(found) == bool(doubt)


def test_an_error_has_to_be_below_that_of_the_mean() -> None:
    def doubt(mse: float) -> str:
        errors = {**ERRORS, "mse": mse, "r2": 1 - mse / 16}
        return unproven(make_scores(NUMBERS, "test", 400, of_errors(errors, BESIDE, 400)), NUMBERS)

    assert doubt(4.0) == ""
    assert doubt(15.9).startswith("its R²,")
    assert doubt(15.9).endswith("is not clearly better than always the mean, which scores 0")
    assert doubt(25.0)


def test_a_model_and_the_mean_are_compared_on_the_same_rows() -> None:
    """A few rows with large errors widen the interval of the RMSE, but they are as hard for the mean."""
    beside = {"label_variance": 17.1, "mse_standard_error": 1.9, "r2_standard_error": 0.014}
    errors = {"mse": 16.0, "mae": 2.63, "r2": 1 - 16.0 / 17.1}
    found = make_scores(NUMBERS, "test", 2_059, of_errors(errors, beside, 2_059))
    low, high = found.intervals["rmse"]
    assert low < found.guesses["rmse"].value < high
    assert unproven(found, NUMBERS) == ""
    assert "distinguish" not in found.caution


def test_recall_has_no_guess_and_no_doubt() -> None:
    report = judged_by("recall", 1)
    assert unproven(scores_of({"recall": 0.0}, MATRIX, report), report) == ""


@pytest.mark.parametrize(
    ("metric", "rows", "caution"),
    [
        ("auc", (1_500, 30), "30 test rows of class 'yes' are few"),
        ("auc", (30, 1_500), "30 test rows of class 'no' are few"),
        ("recall", (19_800, 200), "200 test rows of class 'yes' are few"),  # more than 100, and the interval is wide
        ("recall", (30, 1_500), ""),  # of 'yes'
        ("auc", (80, 120), "200 test rows are few"),  # no class is rare
        ("accuracy", (180, 20), "200 test rows do not distinguish this model from always 'no'"),
    ],
)
def test_a_caution_names_the_class_with_few_rows(metric: str, rows: tuple[int, int], caution: str) -> None:
    from tensorflow_model_analysis.proto import metrics_for_slice_pb2

    from infeed.components.evaluation.model_report.scores import read_scores

    record = metrics_for_slice_pb2.MetricsForSlice()

    def add(name: str) -> Any:
        entry = record.metric_keys_and_values.add()
        entry.key.name = name
        return entry.value

    add("example_count").double_value.value = sum(rows)
    add(metric).double_value.value = 0.7 if metric != "accuracy" else 0.9
    cells = add("confusion_matrix").multi_class_confusion_matrix_at_thresholds.matrices.add().entries
    no, yes = rows
    for actual, predicted, count in ((0, 0, no), (1, 0, round(yes * 0.3)), (1, 1, yes - round(yes * 0.3))):
        cells.add(actual_class_id=actual, predicted_class_id=predicted, num_weighted_examples=count)
    found = read_scores(record, judged_by(metric, 1), "test")
    assert found is not None
    assert found.caution.partition(":")[0] == caution


def rows_of_groups(groups: int, spread: float, seed: int = 1) -> tuple[Any, Any, Any]:
    """12 rows of each group, whose errors share a part."""
    draw = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), 12)
    labels = draw.normal(size=len(group)) * 3
    errors = np.repeat(draw.normal(size=groups) * spread, 12) + draw.normal(size=len(group)) * 0.5
    return group, labels, labels + errors


def clusters_of(group: Any, labels: Any, predictions: Any) -> ClusterSums:
    from infeed.components.evaluation.model_report.collected import Scored

    found = ClusterSums()
    for part in np.array_split(np.arange(len(group)), 5):
        rows = Scored(labels[part], predictions[part, None], predictions[part], np.zeros(len(part)))
        other = ClusterSums()
        other.add(group[part], rows, NUMBERS)
        found.merge(other)
    return found


def regression(group: Any, labels: Any, predictions: Any, *, by_group: bool) -> Scores:
    errors, variance = predictions - labels, labels.var()
    square, rows = errors**2, len(labels)
    metrics = {"mse": square.mean(), "mae": abs(errors).mean(), "r2": 1 - square.mean() / variance}
    beside = {
        "label_variance": variance,
        "mse_standard_error": square.std() / math.sqrt(rows),
        "r2_standard_error": square.std() / variance / math.sqrt(rows),
    }
    clusters = clusters_of(group, labels, predictions) if by_group else None
    report = replace(NUMBERS, split_by=("country",) if by_group else ())
    return make_scores(report, "test", rows, of_errors(metrics, beside, rows), clusters)


def test_intervals_of_groups_hold_the_score_of_many_groups_and_those_of_rows_do_not() -> None:
    _, labels, predictions = rows_of_groups(20_000, 1.5)
    true = math.sqrt(((predictions - labels) ** 2).mean())

    def held(*, by_group: bool) -> int:
        tries = [regression(*rows_of_groups(20, 1.5, seed), by_group=by_group) for seed in range(200)]
        return sum(one.intervals["rmse"][0] <= true <= one.intervals["rmse"][1] for one in tries)

    assert held(by_group=True) >= 178
    assert held(by_group=False) < 120


def test_few_groups_are_cautioned_by_their_number_and_column() -> None:
    found = regression(*rows_of_groups(20, 1.5), by_group=True)
    assert found.groups == 20
    assert found.caution == "20 groups of rows (country) are few: score it on more groups"
    tiny = regression(*rows_of_groups(4, 1.5), by_group=True)
    assert not tiny.intervals
    assert tiny.caution.startswith("4 groups of rows (country) are too few for an interval")


@pytest.mark.parametrize(
    ("name", "value", "interval", "shown"),
    [
        ("accuracy", 0.98648, (0.9728, 0.9933), "0.986 (0.973 to 0.993)"),
        ("accuracy", 0.934, (0.855, 0.972), "0.934 (0.855 to 0.972)"),  # 0.934 ± 0.058 would be 0.876 to 0.992
        ("accuracy", 0.765, (0.747, 0.783), "0.765 ± 0.018"),
        ("accuracy", 1.0, (0.9929, 1.0), "1.0000 (0.9929 to 1.0000)"),
        ("auc", 0.978, (0.873, 0.996), "0.978 (0.873 to 0.996)"),
        ("rmse", 52.14, (45.9, 59.1), "52.1 (45.9 to 59.1)"),
        ("rmse", 22_374.0, (21_200.0, 23_600.0), "22,374 ± 1,200"),
        ("mse", 2_715.3, (2_020.0, 3_410.0), "2,715 ± 695"),
        ("r2", -3.2, (-5.0, -1.4), "-3.2 ± 1.8"),
        ("mse", 2.5e-9, (2.0e-9, 3.0e-9), "2.5e-09 ± 5e-10"),
        ("mae", 0.3, None, "0.3"),
    ],
)
def test_as_many_digits_as_the_interval_lets_one_know(
    name: str, value: float, interval: tuple[float, float] | None, shown: str
) -> None:
    assert with_interval(name, value, interval) == shown
