from __future__ import annotations

import pytest

from infeed.components import InfeedError, Label, LowerCase, Tokens, Vocabulary, ZScore
from infeed.pipelines.surveys import ColumnSurvey, TableSurvey
from infeed.templates.text import features as template


def column(name: str, *proposed: Vocabulary | ZScore) -> ColumnSurvey:
    return ColumnSurvey(name, "bytes", 4, 0, 4, 1.5, 0.5, 1, features=proposed)


def survey(*columns: ColumnSurvey) -> TableSurvey:
    return TableSurvey(columns, column("stars"), "regression", 4)


REVIEW = column("review", Vocabulary("review", clean=(LowerCase(), Tokens()), length=64))
CITY, TITLE = column("city", Vocabulary("city")), column("title")


def test_columns_that_hold_sentences_become_words_and_the_others_are_left_out() -> None:
    found = template.features(survey(CITY, REVIEW, TITLE))
    assert found == [template.sentence("review"), Label("stars", task="regression")]


def test_the_columns_that_the_user_names_are_read_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "TEXTS", ("title",))
    assert template.features(survey(REVIEW, TITLE))[:-1] == [template.sentence("title")]


def test_a_table_without_sentences_is_told_with_what_to_do() -> None:
    with pytest.raises(InfeedError, match=r"(?s)none of the columns contains sentences: city, title.*TEXTS"):
        template.features(survey(CITY, TITLE))


def test_a_regression_starts_at_the_mean_of_its_label() -> None:
    assert template.hparams(survey(REVIEW)) == {"scales": {"stars": [1.5, 0.5]}}
