"""ROC and precision-recall curves, calibration, and areas, from sums over rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from infeed.components.evaluation.model_report.collected import LOGIT_STEP, LOGITS
from infeed.components.evaluation.pairs import Array


@dataclass(frozen=True)
class Curve:
    """Curve of one class against all others, as the threshold falls from 1 to 0."""

    thresholds: Array  # minimum probabilities that count as the class, descending
    found: Array  # share of the class above the threshold: recall, the true positive rate
    alarms: Array  # share of the other rows above the threshold: the false positive rate
    precision: Array  # share of the class among the rows above the threshold
    positives: int  # rows
    negatives: int

    @classmethod
    def of(cls, buckets: Array) -> Curve | None:
        """Return the curve of a class from `Sums.buckets`. None if all rows, or no rows, are of the class."""
        filled = np.flatnonzero(buckets.sum(axis=1))[::-1]
        negatives, positives = buckets[filled].cumsum(axis=0).T
        if not len(filled) or not positives[-1] or not negatives[-1]:
            return None
        thresholds = 1 / (1 + np.exp(LOGITS - filled * LOGIT_STEP))
        found, alarms = positives / positives[-1], negatives / negatives[-1]
        precision = positives / (positives + negatives)
        return cls(thresholds, found, alarms, precision, int(positives[-1]), int(negatives[-1]))

    @property
    def auc(self) -> float:
        """Return the area under the ROC curve, by the trapezoidal rule."""
        alarms, found = np.append(0, self.alarms), np.append(0, self.found)
        return float(np.sum(np.diff(alarms) * (found[1:] + found[:-1]) / 2))

    @property
    def average_precision(self) -> float:
        """Return the average precision: precisions weighted by the rise of the recall, as in scikit-learn."""
        return float(np.sum(np.diff(np.append(0, self.found)) * self.precision))

    def at(self, threshold: float) -> tuple[float, float, float]:
        """Return recall, false positive rate and precision at a threshold."""
        # The edge of a bucket and the threshold may differ by rounding.
        above = int(np.sum(self.thresholds >= threshold - 1e-9))
        if not above:
            return 0.0, 0.0, math.nan
        last = above - 1
        return float(self.found[last]), float(self.alarms[last]), float(self.precision[last])


def calibration_error(bins: Array) -> float:
    """Return the expected calibration error: the mean gap between confidence and accuracy, weighted by bin size.

    Guo, Pleiss, Sun, Weinberger (2017), On Calibration of Modern Neural Networks, ICML, equation 3.
    """
    rows, sure, right = bins.T
    return float(np.abs(sure - right).sum() / max(1.0, rows.sum()))
