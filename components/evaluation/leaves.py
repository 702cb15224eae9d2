"""TFMA's computations over rows, vectorized over batches. TFMA derives all other metrics from them.

A leaf replaces a combiner of TFMA, and returns the same results under the same keys. It computes `terms` [rows, ...]
once per batch, sums the terms of each slice to a total, and merges totals. Apart from float rounding, results do not
depend on the batch size.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from tensorflow_model_analysis.metrics import calibration_histogram, metric_util, multi_class_confusion_matrix_metrics

from infeed.components.base.errors import InfeedError
from infeed.components.evaluation import error_moments
from infeed.components.evaluation.pairs import Array, BeyondError, Observed, Subject, flat, fractional
from infeed.components.seams import tfma as tfma_seam

Terms = tuple[Array, ...]
Batch = Mapping[str, Observed]  # by model name


class Leaf(abc.ABC):
    """Vectorized combiner of TFMA. Raises AttributeError if the combiner has not all settings."""

    needs_pairs: ClassVar[bool] = True  # whether the leaf reads labels and predictions, or only weights

    def __init__(self, combiner: Any) -> None:
        self.combiner, self.settings = combiner, settings_of(combiner)
        self.subject = Subject.of(self.settings)

    def check(self) -> None:
        """Raise AttributeError, before rows are read, if the results cannot be computed with this version of TFMA."""
        self.results(self.example())

    @abc.abstractmethod
    def terms(self, batch: Batch) -> Terms:
        """Return the contribution of each row: arrays [rows, ...]."""

    @abc.abstractmethod
    def total(self, terms: Terms) -> Any:
        """Return the total of several rows."""

    @abc.abstractmethod
    def example(self) -> Any:
        """Return an arbitrary total, for a check."""

    def merge(self, one: Any, other: Any) -> Any:
        """Return the sum of both totals. May modify `one`."""
        return one + other

    @abc.abstractmethod
    def results(self, total: Any) -> dict[Any, Any]:
        """Return the results of the combiner by TFMA's keys."""


class _Sums(Leaf):
    """Leaf whose total is the sum of its only term, [rows] or [rows, n]. `sums` are field names of the accumulator."""

    sums: ClassVar[tuple[str, ...]] = ()

    def example(self) -> Any:
        return np.ones(len(self.sums))

    def total(self, terms: Terms) -> Any:
        return terms[0].sum(axis=0, dtype=np.float64)

    def results(self, total: Any) -> dict[Any, Any]:
        found = self.combiner.create_accumulator()
        for name, value in zip(self.sums, total.tolist(), strict=True):
            getattr(found, name)  # raises AttributeError, whereas setattr would silently create an attribute
            setattr(found, name, value)
        return dict(self.combiner.extract_output(found))


class ExampleCount(_Sums):
    """Number of rows, or the sum of their weights."""

    needs_pairs = False

    def example(self) -> Any:
        return 1.0

    def terms(self, batch: Batch) -> Terms:
        return (self.subject.weights(batch),)

    def results(self, total: Any) -> dict[Any, Any]:
        return dict.fromkeys(self.settings.keys, float(total))


class MeanTotals(_Sums):
    """Sums of labels, predictions and weights, for calibration and both means."""

    sums = ("total_weighted_labels", "total_weighted_predictions", "total_weighted_examples")

    def terms(self, batch: Batch) -> Terms:
        pairs = flat(self.subject.pairs(batch))
        weights = pairs.weights.astype(np.float64)
        return (np.stack([weights * pairs.labels, weights * pairs.predictions, weights], -1).sum(axis=1),)


ERRORS: Mapping[str, Callable[[Array, Array], Array]] = {
    "MeanAbsoluteError": lambda label, prediction: np.abs(label - prediction),
    "MeanSquaredError": lambda label, prediction: (label - prediction).astype(np.float64) ** 2,
    "MeanAbsolutePercentageError": lambda label, prediction: (
        100 * np.where(label == 0, np.nan, np.abs((label - prediction) / label))
    ),
    "MeanSquaredLogarithmicError": lambda label, prediction: (
        np.abs(np.log(label + 1) - np.log(prediction + 1)).astype(np.float64) ** 2
    ),
}


class MeanError(_Sums):
    """Sums of errors and weights. As in TFMA, rows with NaN errors are excluded."""

    sums = ("total_regression_error", "total_example_weights")

    def terms(self, batch: Batch) -> Terms:
        pairs = flat(self.subject.pairs(batch))
        with np.errstate(divide="ignore", invalid="ignore"):
            errors = ERRORS[tfma_seam.kind_of(self.combiner)](pairs.labels, pairs.predictions).astype(np.float64)
        is_error = ~np.isnan(errors)
        weights = np.where(is_error, pairs.weights, 0.0)
        return (np.stack([np.where(is_error, errors, 0.0) * weights, weights], -1).sum(axis=1),)


class ErrorMoments(_Sums):
    """Sums of powers of labels and errors, for R2 and its interval."""

    def terms(self, batch: Batch) -> Terms:
        pairs = flat(self.subject.pairs(batch))
        return (error_moments.row_moments(pairs.labels, pairs.predictions, pairs.weights, self.combiner.center),)

    def example(self) -> Any:
        return self.combiner.create_accumulator()

    def results(self, total: Any) -> dict[Any, Any]:
        return dict(self.combiner.extract_output(total))


class CrossEntropy(_Sums):
    """Sums of cross entropies, each the mean (binary) or sum (categorical) over classes, and of weights."""

    sums = ("total_cross_entropy", "total_example_weights")

    def terms(self, batch: Batch) -> Terms:
        pairs = self.subject.pairs(batch)
        is_binary = tfma_seam.kind_of(self.combiner) == "BinaryCrossEntropy"
        smoothing, classes = self.settings.label_smoothing, 2 if is_binary else pairs.predictions.shape[1]
        labels = pairs.labels * (1.0 - smoothing) + smoothing / classes
        values, from_logits = pairs.predictions, self.settings.from_logits
        with np.errstate(divide="ignore", invalid="ignore"):
            # The form of TensorFlow, in which no exponential overflows.
            if is_binary and from_logits:
                entropies = (np.maximum(values, 0) - values * labels + np.log(1 + np.exp(-np.abs(values)))).mean(axis=1)
            elif is_binary:
                entropies = (-labels * np.log(values) - (1 - labels) * np.log(1 - values)).mean(axis=1)
            else:
                shares = np.exp(values) if from_logits else values
                shares = shares / shares.sum(axis=1, keepdims=True)
                logarithms = np.where(shares > 0, np.log(np.where(shares > 0, shares, 1)), 0)
                entropies = -(labels * logarithms).sum(axis=1)
        weights = pairs.weights.astype(np.float64)
        return (np.concatenate([entropies.astype(np.float64)[:, None] * weights, weights], axis=1),)


class BucketSums(Leaf):
    """Sums of labels, predictions and weights in buckets of the prediction, for AUC and similar metrics.

    The total is (numbers of the buckets that have rows, ascending, [n]; float64 sums [3, n]).
    """

    def example(self) -> Any:
        return np.ones(1, np.int64), np.ones([3, 1])

    def terms(self, batch: Batch) -> Terms:
        pairs = flat(self.subject.pairs(batch))
        if self.settings.fractional_labels:
            negative, positive = fractional(pairs)
            weights, labels = np.stack([negative, positive], -1), np.array([0.0, 1.0])
        else:
            weights, labels = pairs.weights[..., None], pairs.labels[..., None]
        predictions = pairs.predictions.astype(np.float64)[..., None]
        values = predictions if self.settings.prediction_based_bucketing else labels * 1.0
        if nans := int(np.isnan(values).sum()):
            what = "the model predicts NaN" if self.settings.prediction_based_bucketing else "the label is NaN"
            do = "find these rows, such as with infeed predict, and correct them, the features or the model"
            raise InfeedError(f"{what} in {nans:,} of {values.size:,} pairs of a label and a prediction", do=do)
        places = (values - self.settings.left) / self.settings.range * self.settings.num_buckets + 1
        buckets = np.clip(places, 0, self.settings.num_buckets + 1).astype(np.int64)
        return tuple(np.broadcast_arrays(buckets, labels, predictions, weights.astype(np.float64)))

    def total(self, terms: Terms) -> Any:
        buckets, labels, predictions, weights = (term.reshape(-1) for term in terms)
        if self.settings.fractional_labels:
            # As in TFMA, a pair without weight makes no bucket.
            counts = weights != 0
            buckets, labels, predictions, weights = (x[counts] for x in (buckets, labels, predictions, weights))
        return _by_bucket(buckets, np.stack([labels * weights, predictions * weights, weights]))

    def merge(self, one: Any, other: Any) -> Any:
        return _by_bucket(np.concatenate([one[0], other[0]]), np.concatenate([one[1], other[1]], axis=1))

    def results(self, total: Any) -> dict[Any, Any]:
        buckets = zip(total[0].tolist(), *total[1].tolist(), strict=True)
        return {self.settings.key: [calibration_histogram.Bucket(*bucket) for bucket in buckets]}


def _by_bucket(buckets: Array, sums: Array) -> tuple[Array, Array]:
    found, which = np.unique(buckets, return_inverse=True)
    which = which.reshape(-1)
    return found, np.stack([np.bincount(which, row, minlength=len(found)) for row in sums])


class ConfusionMatrices(Leaf):
    """Weights of true and false positives and negatives at thresholds.

    The total is float64 [4, thresholds]: tp, tn, fp, fn.
    """

    def example(self) -> Any:
        return np.ones([4, len(self._asked)])

    def __init__(self, combiner: Any) -> None:
        super().__init__(combiner)
        if self.settings.example_id_key:
            raise BeyondError("a metric lists examples (example_id_key)")
        _check_extraction(self.settings)
        self._asked = list(self.settings.thresholds)
        self._thresholds = np.asarray(self._asked, np.float64)

    def terms(self, batch: Batch) -> Terms:
        pairs = flat(self.subject.pairs(batch))
        if not self.settings.enable_fractional_labels:
            return pairs.labels, pairs.predictions, pairs.weights
        negative, positive = fractional(pairs)
        return pairs.predictions, negative, positive

    def total(self, terms: Terms) -> Any:
        if self.settings.enable_fractional_labels:
            predictions, negative, positive = terms
            return self._counts(predictions, negative, positive, self._thresholds)
        labels, predictions, weights = terms
        parts = []
        # As in TFMA, a label is positive if it is above the threshold of the prediction.
        for threshold in self._thresholds:
            is_positive = labels > threshold
            negative, positive = np.where(is_positive, 0.0, weights), np.where(is_positive, weights, 0.0)
            parts.append(self._counts(predictions, negative, positive, np.array([threshold])))
        return np.concatenate(parts, axis=1)

    def _counts(self, predictions: Array, negative: Array, positive: Array, thresholds: Array) -> Array:
        """Return the total for weights of labels 0 and 1. A NaN prediction is never above a threshold."""
        order = np.argsort(thresholds)
        back, values = np.argsort(order), predictions.reshape(-1).astype(np.float64)
        passed = np.searchsorted(thresholds[order], np.where(np.isnan(values), -np.inf, values), side="left")
        of_0, of_1 = (np.bincount(passed, one.reshape(-1), minlength=len(order) + 1) for one in (negative, positive))
        below_0, below_1 = (np.cumsum(one)[:-1][back] for one in (of_0, of_1))
        above_0, above_1 = (np.cumsum(one[::-1])[::-1][1:][back] for one in (of_0, of_1))
        return np.stack([above_1, below_0, above_0, below_1])

    def results(self, total: Any) -> dict[Any, Any]:
        found = self.combiner.extract_output(self.combiner.create_accumulator())
        entries = found[self.settings.key]
        for threshold, (tp, tn, fp, fn) in zip(self._asked, total.T.tolist(), strict=True):
            matrix = entries[threshold].matrix._replace(tp=tp, tn=tn, fp=fp, fn=fn)
            entries[threshold] = entries[threshold]._replace(matrix=matrix)
        return dict(found)


class ClassMatrices(Leaf):
    """Confusion matrix of classes. The total maps (threshold, actual, predicted) to a weight."""

    def example(self) -> Any:
        return {(threshold, 0, 0): 1.0 for threshold in self.settings.thresholds}

    def __init__(self, combiner: Any) -> None:
        super().__init__(combiner)
        _check_extraction(self.settings)
        if list(self.settings.thresholds) != sorted(self.settings.thresholds):
            raise BeyondError("thresholds of a confusion matrix are not ascending")

    def terms(self, batch: Batch) -> Terms:
        pairs = self.subject.pairs(batch, whole=True)
        if pairs.predictions.shape[1] < 2:
            raise ValueError("a confusion matrix of classes is requested, but the model predicts one number")
        actual = pairs.labels.argmax(axis=1) if pairs.labels.shape[1] > 1 else pairs.labels[:, 0].astype(np.int64)
        predicted = pairs.predictions.argmax(axis=1)
        return actual, predicted, pairs.predictions.max(axis=1), pairs.weights[:, 0].astype(np.float64)

    def total(self, terms: Terms) -> Any:
        actual, predicted, sure, weights = terms
        found: dict[tuple[float, int, int], float] = {}
        for threshold in self.settings.thresholds:
            nothing = multi_class_confusion_matrix_metrics.NO_PREDICTED_CLASS_ID
            called = np.where(sure <= threshold, nothing, predicted)
            cells, which = np.unique(np.stack([actual, called]), axis=1, return_inverse=True)
            sums = np.bincount(which.reshape(-1), weights, minlength=cells.shape[1])
            found.update(
                {(threshold, *cell): weight for cell, weight in zip(cells.T.tolist(), sums.tolist(), strict=True)}
            )
        return found

    def merge(self, one: Any, other: Any) -> Any:
        for cell, weight in other.items():
            one[cell] = one.get(cell, 0.0) + weight
        return one

    def results(self, total: Any) -> dict[Any, Any]:
        found = self.combiner.create_accumulator()
        for (threshold, actual, predicted), weight in total.items():
            entry = multi_class_confusion_matrix_metrics.MatrixEntryKey(actual, predicted)
            found.setdefault(threshold, {})[entry] = weight
        return dict(self.combiner.extract_output(found))


def settings_of(combiner: Any) -> Any:
    """Return the settings of a combiner, from TFMA or this package."""
    return getattr(combiner, "settings", None) or tfma_seam.settings_of(combiner)


def _check_extraction(settings: Any) -> None:
    if settings.extract_label_prediction_and_weight is not metric_util.to_label_prediction_example_weight:
        raise BeyondError("a metric has a custom pairing of labels and predictions")
