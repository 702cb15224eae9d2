"""What becomes of each column, decided from a survey of the data."""

from __future__ import annotations

from typing import Any

from infeed.components import Feature, Label, Vocabulary, ZScore
from infeed.pipelines.survey import ColumnSurvey, TableSurvey

# A rarer word is seen too seldom to learn an embedding from.
MAX_VOCABULARY = 10_000


def features(survey: TableSurvey) -> list[Feature]:
    """Numbers are scaled, words looked up in a vocabulary; columns that can teach nothing are left out."""
    used = [_feature(column) for column in survey.columns if not column.useless]
    return [*used, Label(survey.label.name, task=survey.task)]


def hparams(survey: TableSurvey) -> dict[str, Any]:
    """The label's scale, so that a regression starts from the mean instead of from 0."""
    return {"label_mean": survey.label.mean, "label_std": survey.label.std} if survey.task == "regression" else {}


def _feature(column: ColumnSurvey) -> Feature:
    output = column.name.replace("/", "_")  # Keras takes no slash in the name of an input
    if column.type == "bytes":
        return Vocabulary(column.name, output=output, size=MAX_VOCABULARY)
    return ZScore(column.name, output=output)
