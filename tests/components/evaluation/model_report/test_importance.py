"""Permutation importance, with scikit-learn as the oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.inspection import permutation_importance

from infeed.components.dataset.decode_columns import decode_columns
from infeed.components.evaluation.model_report.importance import importances, rows_for


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
