"""Curves of hand-made counts; `test_collected` compares them with scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest

from infeed.components.evaluation.model_report.collected import BUCKETS
from infeed.components.evaluation.model_report.curves import Curve, calibration_error


def counts(**rows: tuple[int, int]) -> np.ndarray:  # type: ignore[type-arg]
    found = np.zeros((BUCKETS, 2), np.int64)
    for place, given in {"low": 0, "high": BUCKETS - 1}.items():
        found[given] = rows.get(place, (0, 0))
    return found


def test_a_perfect_model_and_one_that_knows_nothing() -> None:
    perfect, nothing = Curve.of(counts(low=(5, 0), high=(0, 3))), Curve.of(counts(low=(5, 3)))
    assert perfect is not None
    assert nothing is not None
    assert (perfect.auc, perfect.average_precision) == (1.0, 1.0)
    assert (nothing.auc, nothing.average_precision) == (0.5, 3 / 8)
    assert perfect.at(0.5) == (1.0, 0.0, 1.0)
    assert nothing.at(0.5)[:2] == (0.0, 0.0)
    assert math.isnan(nothing.at(0.5)[2])


@pytest.mark.parametrize("rows", [(5, 0), (0, 5), (0, 0)])
def test_one_class_alone_has_no_curve(rows: tuple[int, int]) -> None:
    assert Curve.of(counts(low=rows)) is None


def test_calibration_error_is_the_weighted_gap() -> None:
    assert calibration_error(np.array([[30, 27.0, 24.0], [10, 2.0, 4.0], [0, 0, 0]])) == pytest.approx(5 / 40)
