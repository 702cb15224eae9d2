"""Permutation importance, with scikit-learn as the oracle, and groups of rows that a model predicts worse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import BaseEstimator
from sklearn.inspection import permutation_importance

from infeed.components.dataset.decode_columns import decode_columns
from infeed.components.evaluation.model_report.importance import importances, rows_for, shown, worst_groups


class _Model(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The formula of the fixture `predict`, of a table."""

    def fit(self, rows: Any, labels: Any) -> _Model:
        return self

    def predict_loss(self, rows: Any, labels: Any) -> Any:
        second = 1 / (1 + np.exp(-(2 * rows[:, 0] + rows[:, 1])))
        return -np.log(np.where(labels == 1, second, 1 - second))


def test_columns_rank_as_in_scikit_learn(
    records: list[bytes], two_classes: Any, predict: Callable[[Sequence[bytes]], Any]
) -> None:
    labels = two_classes[0]
    found = importances(records, ["a", "b", "c"], lambda given: -np.log(predict(given)[np.arange(len(given)), labels]))
    columns = decode_columns(records)
    table = np.stack([columns[name].flatten().to_numpy(zero_copy_only=False) for name in "abc"], axis=1)
    theirs = permutation_importance(
        _Model(), table, labels, scoring=lambda model, x, y: -model.predict_loss(x, y).mean(), random_state=0
    )
    assert [one.column for one in found] == ["a", "b", "c"]
    for one, mean in zip(found, theirs.importances_mean, strict=True):
        assert one.mean == pytest.approx(mean, rel=0.15, abs=1e-9)
    assert found[2].deviation == 0


@pytest.mark.parametrize(("columns", "rows"), [(1, 1000), (30, 666), (100, 200), (10_000, 200)])
def test_the_number_of_predictions_is_bounded(columns: int, rows: int) -> None:
    assert rows_for(columns) == rows


def test_a_few_rows_are_predicted_in_one_call_with_the_same_rises(
    records: list[bytes], two_classes: Any, predict: Callable[[Sequence[bytes]], Any]
) -> None:
    rows, calls = 40, list[int]()
    labels = two_classes[0][:rows]

    def losses(given: Sequence[bytes]) -> Any:
        calls.append(len(given))
        return -np.log(predict(given)[np.arange(len(given)), np.resize(labels, len(given))])

    found = {one.column: one for one in importances(records[:rows], ["a", "b", "c"], losses)}
    assert calls == [rows, 9 * rows]
    columns, random = decode_columns(records[:rows]), np.random.default_rng(0)
    table = np.stack([columns[name].flatten().to_numpy(zero_copy_only=False) for name in "abc"], axis=1)
    before = _Model().predict_loss(table, labels).mean()
    for place, name in enumerate("abc"):
        rises = []
        for _ in range(3):
            shuffled = table.copy()
            shuffled[:, place] = table[random.permutation(rows), place]
            rises.append(_Model().predict_loss(shuffled, labels).mean() - before)
        assert (found[name].mean, found[name].deviation) == pytest.approx(
            (np.mean(rises), np.std(rises, ddof=1)), abs=1e-6
        )


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
