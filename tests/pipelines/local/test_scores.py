"""Scores of a run: rows, intervals, what guessing scores on the same rows, and when to be careful."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from infeed.components.evaluation import intervals
from infeed.pipelines.config import Blessing, PipelineConfig
from infeed.pipelines.local.scores import Guess, Scores, make_scores, of_classes, of_errors
from infeed.pipelines.surveys import ColumnSurvey, TableSurvey

MATRIX = {(0, 0): 250, (0, 1): 20, (1, 1): 25, (1, 0): 5}


@pytest.fixture
def config(taxi: PipelineConfig) -> PipelineConfig:
    label = ColumnSurvey("y", "bytes", 1_000, 0, 2, 0.5, 0.5, 900)
    survey = TableSurvey((), label, "classification", 1_000, ("no", "yes"), (900, 100))
    return dataclasses.replace(taxi, survey=survey, splits={"train": 3, "eval": 1, "test": 1})


def judged_by(config: PipelineConfig, metric: Any, **given: Any) -> PipelineConfig:
    return dataclasses.replace(config, blessing=Blessing(metric, 0.5, **given))


def scores_of(metrics: dict[str, float], matrix: dict[tuple[int, int], float], config: PipelineConfig) -> Scores:
    return make_scores(config, round(sum(matrix.values())), *of_classes(metrics, matrix, config))


def test_accuracy_stands_beside_the_share_of_the_commonest_class_of_the_same_rows(config: PipelineConfig) -> None:
    found = scores_of({"accuracy": 275 / 300}, MATRIX, config)
    assert (found.split, found.rows) == ("test", 300)
    assert found.guesses == {"accuracy": Guess(270 / 300, "always 'no'")}
    assert found.intervals == {"accuracy": intervals.of_share(275 / 300, 300)}


def test_a_class_that_is_not_the_commonest_of_the_survey_is_not_named(config: PipelineConfig) -> None:
    found = scores_of({"accuracy": 0.5}, {(0, 0): 1, (1, 1): 1, (1, 0): 9}, config)
    assert found.guesses["accuracy"] == Guess(10 / 11, "always the commonest class")


def test_scores_of_one_class_have_intervals_and_auc_and_f1_a_guess(config: PipelineConfig) -> None:
    names = ("auc", "accuracy", "recall", "precision", "f1")
    found = scores_of(dict.fromkeys(names, 0.9), MATRIX, judged_by(config, "auc", positive="yes"))
    assert found.intervals.keys() == set(names)
    assert found.intervals["auc"] == intervals.of_auc(0.9, 30, 270)
    assert found.guesses["auc"].value == 0.5
    assert found.guesses["f1"] == Guess(pytest.approx(2 * 30 / (30 + 300)), "always 'yes'")


def test_means_over_classes_have_intervals_and_f1_the_guess_of_the_commonest(config: PipelineConfig) -> None:
    names = ("f1", "accuracy", "recall", "precision")
    found = scores_of(dict.fromkeys(names, 0.7), MATRIX, judged_by(config, "f1"))
    assert found.intervals.keys() == set(names)
    assert found.guesses["f1"].value == pytest.approx(2 * 0.9 / 1.9 / 2)


ERRORS = {"mse": 4.0, "mae": 1.5, "r2": 0.75}
BESIDE = {"label_variance": 16.0, "mse_standard_error": 0.2, "r2_standard_error": 0.02}


def test_a_regression_has_rmse_and_r2_beside_what_the_mean_scores(config: PipelineConfig) -> None:
    found = make_scores(judged_by(config, "mse"), 400, *of_errors(ERRORS, BESIDE, 400))
    assert list(found.metrics.items()) == [("rmse", 2.0), ("r2", 0.75), ("mse", 4.0), ("mae", 1.5)]
    values = {name: guess.value for name, guess in found.guesses.items()}
    assert values == {"rmse": 4.0, "r2": 0.0, "mse": 16.0}
    assert found.intervals["rmse"] == pytest.approx(tuple(math.sqrt(x) for x in found.intervals["mse"]))
    # The variance of |error| is 4 - 1.5^2.
    assert found.intervals["mae"] == intervals.of_mean_square(1.5, math.sqrt(1.75 / 400), 400)


def test_a_label_that_is_constant_in_the_scored_rows_has_no_interval_of_r2(config: PipelineConfig) -> None:
    undefined = {"label_variance": 0.0, "mse_standard_error": 0.2, "r2_standard_error": math.nan}
    found = make_scores(judged_by(config, "mse"), 400, *of_errors({**ERRORS, "r2": math.nan}, undefined, 400))
    assert "r2" not in found.intervals


@pytest.mark.parametrize(
    ("accuracy", "commonest", "rows", "words"),
    [
        (0.95, 0.6, 3_000, ""),
        (0.95, 0.6, 60, "60 test rows are few: on other rows the accuracy may be anywhere from 0.8"),
        (0.75, 0.6, 200, "200 test rows are few"),
        (0.91, 0.9, 1_500, "1,500 test rows do not tell this model from always 'no'"),
    ],
)
def test_a_score_that_says_little_is_cautioned(
    config: PipelineConfig, accuracy: float, commonest: float, rows: int, words: str
) -> None:
    wrong = (1 - accuracy) * rows
    matrix = {(0, 0): commonest * rows - wrong, (0, 1): wrong, (1, 1): (1 - commonest) * rows}
    caution = scores_of({"accuracy": accuracy}, matrix, config).caution
    assert caution.startswith(words)
    assert bool(caution) == bool(words)


def test_so_few_rows_that_there_is_no_interval_are_reported(config: PipelineConfig) -> None:
    found = make_scores(judged_by(config, "mse"), 5, *of_errors(ERRORS, BESIDE, 5))
    assert not found.intervals
    assert found.caution.startswith("5 test rows are too few for an interval")
