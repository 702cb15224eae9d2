"""R2 and the standard errors of R2 and the mean squared error, against scikit-learn and a bootstrap."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tfx

ROWS = 300


def drawn(offset: float = 0.0) -> tuple[Any, Any]:
    draw = np.random.default_rng(1)
    labels = offset + 3 * draw.normal(size=ROWS)
    return labels, labels + draw.normal(size=ROWS) - 0.4


def scored(labels: Any, predictions: Any, center: float = 0.0) -> tuple[float, ...]:
    from infeed.components.evaluation.error_moments import row_moments, scores

    return scores(row_moments(labels, predictions, np.ones(len(labels)), center).sum(axis=0))


def test_r2_is_that_of_scikit_learn_and_the_variance_that_of_the_labels() -> None:
    from sklearn.metrics import r2_score

    labels, predictions = drawn()
    r2, variance, _, _ = scored(labels, predictions)
    assert r2 == pytest.approx(r2_score(labels, predictions))
    assert variance == pytest.approx(labels.var())


def test_standard_errors_are_those_of_a_bootstrap() -> None:
    labels, predictions = drawn()
    draw = np.random.default_rng(2)
    takes = [draw.integers(0, ROWS, ROWS) for _ in range(1_000)]
    again = np.array([scored(labels[take], predictions[take])[0] for take in takes])
    errors = np.array([((labels - predictions)[take] ** 2).mean() for take in takes])
    _, _, mse_error, r2_error = scored(labels, predictions)
    assert mse_error == pytest.approx(errors.std(), rel=0.1)
    assert r2_error == pytest.approx(again.std(), rel=0.1)


def test_labels_far_from_zero_lose_no_digits_about_their_center() -> None:
    near, far = scored(*drawn()), scored(*drawn(1.7e9), center=1.7e9 + 0.5)
    assert far == pytest.approx(near, rel=1e-5)


def test_what_is_not_defined_is_nan() -> None:
    assert all(map(math.isnan, scored(np.empty(0), np.empty(0))))
    r2, variance, mse_error, r2_error = scored(np.ones(5), np.zeros(5))
    assert (variance, mse_error) == (0, 0)
    assert math.isnan(r2)
    assert math.isnan(r2_error)


def test_the_combiner_of_tfx_sums_what_batches_sum() -> None:
    from tensorflow_model_analysis.metrics import metric_types

    from infeed.components.evaluation.error_moments import ErrorMomentsCombiner, row_moments

    labels, predictions = drawn()
    key = metric_types.MetricKey(name="_moments")
    combiner = ErrorMomentsCombiner(key, None, 2.0)
    halves = [combiner.create_accumulator(), combiner.create_accumulator()]
    for row, (label, prediction) in enumerate(zip(labels, predictions, strict=True)):
        inputs = metric_types.StandardMetricInputs(
            labels=np.array([label]), predictions=np.array([prediction]), example_weights=np.array([1.0])
        )
        halves[row % 2] = combiner.add_input(halves[row % 2], inputs)
    (found,) = combiner.extract_output(combiner.merge_accumulators(halves)).values()
    assert found == pytest.approx(row_moments(labels, predictions, np.ones(ROWS), 2.0).sum(axis=0))
