from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infeed.components.errors import InfeedError
from infeed.pipelines.project.decisions import choose_blessing, why
from infeed.pipelines.project.survey import survey_table
from infeed.pipelines.surveys import TableSurvey


def survey(tmp_path: Path, **rows: int) -> TableSurvey:
    lines = [f"{number % 7},{name}" for name, count in rows.items() for number in range(count)]
    (tmp_path / "data.csv").write_text("\n".join(["x,y", *lines]) + "\n")
    return survey_table(str(tmp_path / "data.csv"), "y")


@pytest.mark.parametrize(
    ("rows", "metric", "positive", "bound"),
    [
        ({"a": 60, "b": 40}, "accuracy", None, 0.6),
        ({"ok": 90, "fraud": 10}, "auc", "fraud", 0.5),
        ({"a": 80, "b": 10, "c": 10}, "f1", None, 2 * 0.8 / 1.8 / 3),  # always `a`: F1 of a, and 0 of the others
        ({"a": 50, "b": 40, "c": 10}, "accuracy", None, 0.5),
    ],
)
def test_imbalanced_classes_are_judged_by_a_metric_that_sees_them(
    tmp_path: Path, rows: dict[str, int], metric: str, positive: str | None, bound: float
) -> None:
    blessing = choose_blessing(survey(tmp_path, **rows), {})
    assert (blessing.metric, blessing.positive, blessing.bound) == (metric, positive, pytest.approx(bound))


def test_the_choice_is_told_with_its_reason(tmp_path: Path) -> None:
    found = survey(tmp_path, ok=90, fraud=10)
    words = "auc of 'fraud', at least 0.5: always predicting 'ok' has an accuracy of 90.0%"
    assert why(found, choose_blessing(found, {})) == words
    assert why(found, choose_blessing(found, {"metric": "accuracy"})) == "accuracy, at least 0.9"


def test_what_is_given_wins(tmp_path: Path) -> None:
    found = survey(tmp_path, ok=90, fraud=10)
    blessing = choose_blessing(found, {"metric": "recall", "positive": "ok", "bound": 0.7, "slack": None})
    assert (blessing.metric, blessing.positive, blessing.bound, blessing.slack) == ("recall", "ok", 0.7, 0.01)
    assert choose_blessing(found, {"metric": "f1"}).bound == pytest.approx(0.2 / 1.1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metric": "recall"}, "recall has no default bound(.|\n)*bound: 0.8"),
        ({"metric": "mse"}, "metric is 'mse', and this is a classification of 3 classes"),
        ({"metric": "auc"}, "metric is 'auc'(.|\n)*use one of accuracy, recall, precision, f1$"),
        ({"metric": "f1", "positive": "d"}, "there is no class 'd'(.|\n)*'a', 'b', 'c'"),
        ({"metric": "acuracy"}, "metric is 'acuracy'(.|\n)*use one of accuracy, auc"),
    ],
)
def test_a_metric_that_does_not_fit_is_told(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        choose_blessing(survey(tmp_path, a=30, b=30, c=30), given)
