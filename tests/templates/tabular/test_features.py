from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pytest

from infeed.components import Fill, Label, Vocabulary, ZScore
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.pipelines.surveys import ColumnSurvey, TableSurvey
from infeed.templates.tabular import features as template


def column(name: str, *features: Fill | ZScore) -> ColumnSurvey:
    return ColumnSurvey(name, "float", 4, 0, 4, 1.5, 0.5, 1, features=features)


SURVEY = TableSurvey(
    (column("age", ZScore("age")), column("row"), column("rooms", ZScore("rooms"))), column("price"), "regression", 4
)


def test_columns_become_what_the_survey_proposes() -> None:
    assert template.features(SURVEY) == [ZScore("age"), ZScore("rooms"), Label("price", task="regression")]


@pytest.mark.parametrize(
    ("type_", "distinct", "expected"),
    [("int", 500, True), ("int", 64, False), ("int", 501, False), ("float", 500, False), ("int", None, False)],
)
def test_whole_numbers_that_many_rows_share_are_words_too(type_: Any, distinct: int | None, expected: bool) -> None:
    day = dataclasses.replace(column("day", ZScore("day")), type=type_, distinct=distinct)
    survey = dataclasses.replace(SURVEY, columns=(day,), rows=4_000)
    words = [Vocabulary("day", output="day_word")] if expected else []
    assert template.features(survey) == [ZScore("day"), *words, Label("price", task="regression")]


def test_what_the_user_knows_better_takes_the_place_of_a_proposal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "OWN", {"rooms": [Fill("rooms", 0)], "age": []})
    assert template.features(SURVEY) == [Fill("rooms", 0), Label("price", task="regression")]


def test_a_regression_starts_at_the_mean_of_its_label() -> None:
    assert template.hparams(SURVEY) == {"boundaries": {}, "places": 64, "scales": {"price": [1.5, 0.5]}}


def test_numbers_are_encoded_between_their_quantiles_in_the_unit_of_the_feature() -> None:
    ages = ColumnStatistics.of("age", pa.array([1.0, 1.0, 1.0, 3.0]))
    age = dataclasses.replace(SURVEY.columns[0], statistics=ages)
    survey = dataclasses.replace(SURVEY, columns=(age, *SURVEY.columns[1:]))
    assert template.hparams(survey)["boundaries"] == {"age": [-1.0, 3.0]}  # (1 - 1.5) / 0.5 and (3 - 1.5) / 0.5


def test_a_wide_table_is_not_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "MOST_ENCODED", 1)
    assert template.boundaries(SURVEY) == {}
