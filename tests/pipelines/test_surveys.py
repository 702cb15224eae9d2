from __future__ import annotations

import dataclasses

from infeed.pipelines.surveys import ColumnSurvey, ImageSurvey, Layout, TableSurvey

NUMBER = ColumnSurvey("x", "float", rows=100, missing=0, distinct=80, mean=2.0, std=3.0, commonest=5)


def test_what_a_model_has_to_beat() -> None:
    label = dataclasses.replace(NUMBER, commonest=60)
    assert TableSurvey((), label, "classification", 100, ("a", "b"), (60, 40)).guess == 0.6
    assert TableSurvey((), label, "regression", 100).guess == 9.0
    pictures = ImageSurvey(Layout((), {}), ("cat", "dog"), (30, 10), 40, 8, 8, 3, most=40)
    assert pictures.guess == 0.75
