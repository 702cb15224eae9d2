"""Groups of rows that a model predicts worse than the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.evaluation.model_report.groups import shown, worst_groups


def lists(values: object) -> pa.Array:
    return pa.array([[] if value is None else [value] for value in values])  # type: ignore[attr-defined]


def test_a_bad_value_and_a_bad_quarter_are_found_and_chance_is_not() -> None:
    draw = np.random.default_rng(0)
    city, size, noise = draw.choice([b"Bern", b"Chur"], 800), draw.normal(size=800), draw.normal(size=800)
    errors = (draw.random(800) < 0.1 + 0.4 * (city == b"Chur") + 0.3 * (size > np.quantile(size, 0.75))) * 1.0
    found = worst_groups({"city": lists(city), "size": lists(size), "noise": lists(noise)}, errors, errors)
    assert [group.column for group in found.worst] == ["city", "size"]
    worst, quarter = found.worst
    assert worst.values == "Chur"
    assert worst.rows == (city == b"Chur").sum()
    assert worst.error == errors[city == b"Chur"].mean()
    assert worst.other_loss == errors[city != b"Chur"].mean()
    assert quarter.values.startswith("above ")
    assert found.compared == 2 + 4 + 4


def test_missing_values_are_a_group_and_lists_are_none() -> None:
    losses = np.arange(100) % 3 + 5.0 * (np.arange(100) < 40)
    some = lists([None if row < 40 else row % 2 for row in range(100)])
    found = worst_groups({"some": some, "list": pa.array([[1, 2]] * 100)}, losses, losses)
    assert [(group.column, group.values, group.rows) for group in found.worst] == [("some", "missing", 40)]


def test_quarters_of_identifiers_keep_their_digits() -> None:
    numbers = np.arange(400) + 818991478302707712
    losses = (np.arange(400) >= 300) * 1.0 + np.arange(400) % 2
    (found,) = worst_groups({"id": lists(numbers.tolist())}, losses, losses).worst
    assert found.values == "above 818991478302708011"


@pytest.mark.parametrize(
    ("value", "text"),
    [(818991478302707712, "818991478302707712"), (np.int64(2013), "2013"), (np.float32(33.7), "33.7")],
)
def test_an_identifier_is_shown_with_all_its_digits(value: Any, text: str) -> None:
    assert shown(value) == text
