"""Options of the model report."""

from __future__ import annotations

import pytest

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.evaluation.model_report.options import ModelReport


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"task": "ranking"}, "task"),
        ({"task": "classification", "threshold": 1.0}, "threshold"),
        ({"task": "classification", "positive": 2}, "positive"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, object], where: str) -> None:
    with pytest.raises(InfeedError) as caught:
        schema.read(ModelReport, given, "model_report")
    assert where in caught.value.where


def test_options_come_back_equal_and_classes_without_names_have_numbers() -> None:
    report = ModelReport("classification", ("a",), metrics=("auc",))
    assert schema.read(ModelReport, schema.to_plain(report)) == report
    assert [report.name_of(number) for number in (0, 1)] == ["a", "class 1"]
