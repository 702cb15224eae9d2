"""Metrics for TFMA: R2 of a regression, and standard errors of R2 and the mean squared error.

TFMA has only the squared correlation, which ignores a constant offset of the predictions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
from tensorflow_model_analysis.metrics import metric_types, metric_util

Array = npt.NDArray[Any]


class RSquared(metric_types.Metric):
    """Coefficient of determination, with the inputs of its interval.

    In addition to `name`, it gives `label_variance` (the mean squared error of guessing the mean),
    `mse_standard_error` and `r2_standard_error`.

    Args:
      center: approximate mean of the labels. Moments are computed about it, so that labels far from 0 lose no digits.
    """

    def __init__(self, center: float = 0.0, name: str = "r2") -> None:
        super().__init__(metric_util.merge_per_key_computations(_computations), center=center, name=name)


metric_types.register_metric(RSquared)


def _computations(
    center: float = 0.0,
    name: str = "r2",
    eval_config: Any = None,
    model_name: str = "",
    output_name: str = "",
    sub_key: Any = None,
    example_weighted: bool = False,
) -> Any:
    of: dict[str, Any] = {"model_name": model_name, "output_name": output_name, "sub_key": sub_key}
    of["example_weighted"] = example_weighted
    moments = metric_types.MetricKey(name=f"_error_moments_{center}", **of)
    keys = {
        told: metric_types.MetricKey(name=told, **of)
        for told in (name, "label_variance", "mse_standard_error", "r2_standard_error")
    }

    def result(metrics: Mapping[Any, Any]) -> dict[Any, float]:
        return dict(zip(keys.values(), scores(metrics[moments]), strict=True))

    return [
        metric_types.MetricComputation(
            keys=[moments], preprocessors=None, combiner=ErrorMomentsCombiner(moments, eval_config, center)
        ),
        metric_types.DerivedMetricComputation(keys=list(keys.values()), result=result),
    ]


def row_moments(labels: Array, predictions: Array, weights: Array, center: float) -> Array:
    """Return each row's contribution to the sums that `scores` takes: float64 [rows, 9]."""
    label = labels.astype(np.float64).reshape(-1) - center
    square = (labels.astype(np.float64) - predictions.astype(np.float64)).reshape(-1) ** 2
    ones = np.ones_like(label)
    of_labels = [label, label**2, label**3, label**4]
    terms = np.stack([ones, square, square**2, *of_labels, square * label, square * label**2], axis=-1)
    return np.asarray(terms * weights.astype(np.float64).reshape(-1, 1))


def scores(sums: Array) -> tuple[float, float, float, float]:
    """Return R2, the variance of the labels, and the standard errors of the mean squared error and of R2.

    R2 is 1 - E[e^2] / Var(y). By the delta method its variance is that of (e^2 - (1 - R2) (y - mean)^2) / Var(y), over
    the number of rows. All are NaN if they are not defined: without rows, or with a constant label.
    """
    rows = sums[0]
    if not rows:
        return math.nan, math.nan, math.nan, math.nan
    mse, square, mean, *powers = (sums[1:] / rows).tolist()
    second, third, fourth, crossed, crossed_square = powers
    variance = max(0.0, second - mean**2)
    mse_error = math.sqrt(max(0.0, square - mse**2) / rows)
    if not variance:
        return math.nan, variance, mse_error, math.nan
    left = mse / variance
    about_mean = fourth - 4 * mean * third + 6 * mean**2 * second - 3 * mean**4
    both = crossed_square - 2 * mean * crossed + mean**2 * mse
    spread = max(0.0, square - 2 * left * both + left**2 * about_mean)
    return 1 - left, variance, mse_error, math.sqrt(spread / rows) / variance


class ErrorMomentsCombiner(beam.CombineFn):
    """Sums of powers of labels and errors, row by row, for TFX's own executor."""

    def __init__(self, key: Any, eval_config: Any, center: float) -> None:
        self._key, self._eval_config, self.center = key, eval_config, center
        self.settings = SimpleNamespace(key=key, example_weighted=key.example_weighted)

    def create_accumulator(self) -> Array:
        return np.zeros(9)

    def add_input(self, accumulator: Array, element: Any) -> Array:
        pairs = metric_util.to_label_prediction_example_weight(
            element,
            eval_config=self._eval_config,
            model_name=self._key.model_name,
            output_name=self._key.output_name,
            sub_key=self._key.sub_key,
            example_weighted=self._key.example_weighted,
        )
        rows = [row_moments(label, prediction, weight, self.center) for label, prediction, weight in pairs]
        return self.merge_accumulators([accumulator, *(row.sum(axis=0) for row in rows)])

    def merge_accumulators(self, accumulators: Iterable[Array]) -> Array:
        return np.asarray(np.sum(list(accumulators), axis=0))

    def extract_output(self, accumulator: Array) -> dict[Any, Array]:
        return {self._key: accumulator}
