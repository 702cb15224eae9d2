from __future__ import annotations

import pytest

from infeed.components import Fill, Label, ZScore
from infeed.pipelines.surveys import ColumnSurvey, TableSurvey
from infeed.templates.tabular import features as template


def column(name: str, *features: Fill | ZScore) -> ColumnSurvey:
    return ColumnSurvey(name, "float", 4, 0, 4, 1.5, 0.5, 1, features=features)


SURVEY = TableSurvey(
    (column("age", ZScore("age")), column("row"), column("rooms", ZScore("rooms"))), column("price"), "regression", 4
)


def test_columns_become_what_the_survey_proposes() -> None:
    assert template.features(SURVEY) == [ZScore("age"), ZScore("rooms"), Label("price", task="regression")]


def test_what_the_user_knows_better_takes_the_place_of_a_proposal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "OWN", {"rooms": [Fill("rooms", 0)], "age": []})
    assert template.features(SURVEY) == [Fill("rooms", 0), Label("price", task="regression")]


def test_a_regression_starts_at_the_mean_of_its_label() -> None:
    assert template.hparams(SURVEY) == {"label_mean": 1.5, "label_std": 0.5}
