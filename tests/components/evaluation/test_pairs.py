"""Rows of several models: an earlier model misses the classes that only the newer one knows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from infeed.components.evaluation.pairs import Observed, with_all_classes


def observed(labels: Any, predictions: Any) -> Observed:
    return Observed(len(labels), labels, predictions, None)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 1 << 16))
def test_an_earlier_model_of_sets_is_scored_on_the_labels_that_it_does_not_know(
    known: int, more: int, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    labels = (draw.random((50, known + more)) < 0.4).astype(np.float32)
    predictions = draw.random((50, known)).astype(np.float32)
    one, other = observed(labels, labels), observed(labels[:, :known], predictions)
    found = with_all_classes({"": one, "baseline": other})
    assert found[""] is one
    its = found["baseline"]
    assert its.labels is not None
    assert its.predictions is not None
    assert its.labels.dtype == its.predictions.dtype == np.float32
    right = np.concatenate([predictions > 0.5, np.zeros((50, more), bool)], axis=1)
    for average in ("micro", "samples"):
        scores = [f1_score(of, right, average=average, zero_division=0.0) for of in (labels, its.labels)]
        assert scores[0] == pytest.approx(scores[1])


@pytest.mark.parametrize("width", [1, 3])
def test_models_of_the_same_labels_keep_them(width: int) -> None:
    one = observed(np.zeros((4, width)), np.zeros((4, 5)))
    several = replace(one, labels=None, predictions=None, outputs={"birds": one})
    found = with_all_classes({"": several, "baseline": several})
    assert found["baseline"].of("birds") is one
