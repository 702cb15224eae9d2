"""Data for the report, collected batch by batch in bounded memory: sums, curves, the worst rows, and a sample.

Partial results merge in file order, like those of the metrics. The sample and the worst rows depend only on the rows,
so all engines keep the same rows.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.statistics.value_counts import hashed
from infeed.components.evaluation.batches import Batch
from infeed.components.evaluation.model_report.clusters import ClusterSums, groups_of, terms_of
from infeed.components.evaluation.model_report.options import ModelReport
from infeed.components.evaluation.pairs import Array, Observed

WORST = 20
SAMPLE, SAMPLE_BYTES = 2_000, 16 << 20
BINS = 10  # bins of the calibration
CURVES = 10  # maximum number of classes with curves
MATRIX_CLASSES = 500  # larger confusion matrices are not stored
LOGITS, LOGIT_STEP = 16.0, 0.01  # buckets of a probability: equal steps of its logit, so that rare classes have many
BUCKETS = round(2 * LOGITS / LOGIT_STEP)
_LEAST = 1e-7  # minimum probability in a loss, as in Keras


@dataclass(frozen=True)
class Scored:
    """Rows of a batch with the predictions of one model."""

    labels: Array  # class indices, int64 [rows], numbers, float64 [rows], or sets of classes, bool [rows, classes]
    scores: Array  # probability of each class, float64 [rows, classes], or predicted numbers, [rows, 1]
    predicted: Array  # as `labels`
    # Cross entropy, its mean over the classes of a set, or absolute error, float64 [rows]. Infinite for NaN predictions
    losses: Array

    @classmethod
    def of(cls, observed: Observed, report: ModelReport) -> Scored:
        """Return the rows. Raise InfeedError if a model of classes predicts a number that is not a probability."""
        assert observed.labels is not None, "the report requires labels"
        assert observed.predictions is not None, "and predictions"
        scores = observed.predictions.astype(np.float64)
        if report.task == "regression":
            labels = observed.labels[:, 0].astype(np.float64)
            losses = np.abs(labels - scores[:, 0])
            return cls(labels, scores, scores[:, 0], np.where(np.isnan(losses), np.inf, losses))
        labels = observed.labels
        outside = scores[(scores < 0) | (scores > 1 + 1e-3)]
        if outside.size:
            what = f"the model predicts {outside[0]:.4g}, which is not a probability"
            do = "select the output with probabilities, or use task='regression'"
            raise InfeedError(what, where="model_report.task, eval_config.model_specs.prediction_key", do=do)
        if report.task == "multilabel":
            is_class = labels > 0.5
            losses = -np.log(np.clip(np.where(is_class, scores, 1 - scores), _LEAST, 1)).mean(axis=1)
            return cls(is_class, scores, scores > report.threshold, np.where(np.isnan(losses), np.inf, losses))
        if scores.shape[1] == 1:
            scores = np.concatenate([1 - scores, scores], axis=1)
        numbers = labels.argmax(axis=1) if labels.shape[1] > 1 else labels[:, 0].astype(np.int64)
        is_two = scores.shape[1] == 2
        predicted = (scores[:, 1] > report.threshold).astype(np.int64) if is_two else scores.argmax(axis=1)
        known = (numbers >= 0) & (numbers < scores.shape[1])
        # An unknown class has the probability 0, so that its rows are among the worst.
        own = np.where(known, scores[np.arange(len(scores)), np.where(known, numbers, 0)], 0.0)
        losses = np.where(np.isnan(own), np.inf, -np.log(np.clip(own, _LEAST, 1)))
        return cls(np.where(known, numbers, -1), scores, predicted, losses)

    @property
    def is_right(self) -> npt.NDArray[np.bool_]:
        """Whether the class, the number, or the whole set of classes is right, bool [rows]. NaN is wrong."""
        same = np.asarray(self.labels == self.predicted)
        return np.asarray(same.all(axis=tuple(range(1, same.ndim))) & ~np.isnan(self.scores).any(axis=1))


@dataclass
class Sums:
    """Sums over rows for one model."""

    rows: int = 0
    nans: int = 0  # rows with NaN predictions
    loss: float = 0.0  # sum of the losses that are not NaN
    # int64 [classes + 1, classes], actual and predicted. The last row is for classes unknown to the model. For sets,
    # int64 [classes, classes]: rows that miss the first class and have the second one added
    matrix: Any = 0
    buckets: Any = 0  # int64 [curves, BUCKETS, 2]: negatives and positives of a class by its probability
    # float64 [BINS, 3] by confidence: rows, sum of confidences, number of correct rows. Of sets, each class of each row
    bins: Any = 0.0
    errors: Any = 0.0  # float64 [3], for a regression: sums of the error, its absolute value and its square
    sets: Any = 0  # int64 [3 x classes], for sets: sums of `clusters.terms_of`
    exact: int = 0  # rows whose whole set is right

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(mine + its for mine, its in zip(vars(self).values(), vars(other).values(), strict=True)))

    @classmethod
    def of(cls, rows: Scored, report: ModelReport) -> Sums:
        bad = np.isnan(rows.scores).any(axis=1)
        found = cls(len(bad), int(bad.sum()), float(rows.losses[~bad].sum()))
        # One NaN would make all sums NaN, so such rows are only counted.
        good = Scored(rows.labels[~bad], rows.scores[~bad], rows.predicted[~bad], rows.losses[~bad])
        if report.task == "regression":
            errors = good.predicted - good.labels
            found.errors = np.array([errors.sum(), np.abs(errors).sum(), np.square(errors).sum()])
            return found
        classes, are_sets = rows.scores.shape[1], report.task == "multilabel"
        shown = curve_classes(classes, report)
        found.bins = _bins(good, report)
        found.buckets = _buckets({one: good.labels[:, one] if are_sets else good.labels == one for one in shown}, good)
        if are_sets:
            found.sets = terms_of(good.labels, good.predicted).sum(axis=0)
            found.exact = int(good.is_right.sum())
        if classes > MATRIX_CLASSES:
            return found
        if are_sets:
            missed, added = good.labels & ~good.predicted, good.predicted & ~good.labels
            # Few rows have both, and float64 has a fast product of matrices.
            some = missed.any(axis=1) & added.any(axis=1)
            found.matrix = (missed[some].T.astype(np.float64) @ added[some]).astype(np.int64)
        else:
            cells = np.where(good.labels < 0, classes, good.labels) * classes + good.predicted
            found.matrix = np.bincount(cells, minlength=(classes + 1) * classes).reshape(classes + 1, classes)
        return found


def curve_classes(classes: int, report: ModelReport) -> list[int]:
    """Return the classes with curves: the positive class of two, or up to ten."""
    if classes == 2 and report.task == "classification":
        return [report.positive]
    return [one for one in report.shown_classes or range(classes) if one < classes][:CURVES]


def _buckets(is_class: Mapping[int, Array], rows: Scored) -> Array:
    """Return the buckets of some classes, given the rows of each, bool [rows]. A baseline may know no class."""
    found = np.zeros((len(is_class), BUCKETS, 2), np.int64)
    for number, (one, labels) in enumerate(is_class.items()):
        scores = rows.scores[:, one]
        with np.errstate(divide="ignore"):
            logits = np.log(scores) - np.log1p(-np.minimum(scores, 1))
        places = np.clip((logits + LOGITS) / LOGIT_STEP, 0, BUCKETS - 1).astype(np.int64)
        found[number] = np.bincount(2 * places + labels, minlength=2 * BUCKETS).reshape(BUCKETS, 2)
    return found


def _bins(rows: Scored, report: ModelReport) -> Array:
    """Return sums per bin of confidence: the probability of the positive class of two, or of the predicted one.

    Each class of a set counts, with its probability.
    """
    if report.task == "multilabel":
        sure, right = rows.scores.ravel(), rows.labels.ravel()
    elif rows.scores.shape[1] == 2:
        sure, right = rows.scores[:, report.positive], rows.labels == report.positive
    else:
        sure, right = rows.scores.max(axis=1, initial=0.0), rows.is_right
    places = np.searchsorted(np.linspace(0, 1, BINS + 1)[1:-1], sure)
    return np.stack([np.bincount(places, one, minlength=BINS) for one in (np.ones(len(sure)), sure, right * 1.0)], -1)


@dataclass(frozen=True)
class Kept:
    """Rows with the smallest keys, sorted."""

    keys: Array  # float64 [rows, 2]. The second key breaks ties
    places: tuple[tuple[str, int], ...]  # shard and record number of each row
    records: tuple[bytes, ...]  # serialized tf.Examples
    labels: Array  # see `Scored`
    scores: Array

    def __len__(self) -> int:
        return len(self.records)

    def merge(self, other: Kept, most: int, most_bytes: int | None = None) -> Kept:
        """Return the first rows of both: at most `most` rows and `most_bytes`, but at least one row."""
        keys = np.concatenate([self.keys, other.keys])
        order = np.lexsort((keys[:, 1], keys[:, 0]))[:most]
        records = self.records + other.records
        if most_bytes is not None:
            sizes = np.cumsum([len(records[row]) for row in order])
            order = order[: max(1, int(np.searchsorted(sizes, most_bytes, side="right")))]
        places = self.places + other.places
        return Kept(
            keys[order],
            tuple(places[row] for row in order),
            tuple(records[row] for row in order),
            np.concatenate([self.labels, other.labels])[order],
            np.concatenate([self.scores, other.scores])[order],
        )

    @classmethod
    def of(cls, batch: Batch, rows: Scored, keys: Array, most: int, before: Kept | None) -> Kept:
        """Return the rows of a batch that may be among the first `most`, given the earlier rows `before`."""
        full = before is not None and len(before) >= most
        chosen = np.flatnonzero(keys[:, 0] <= before.keys[-1, 0]) if full and before else np.arange(len(keys))
        chosen = chosen[np.lexsort((keys[chosen, 1], keys[chosen, 0]))[:most]]
        shard = batch.path.rsplit("/", 1)[-1]
        return cls(
            keys[chosen],
            tuple((shard, batch.start + int(row)) for row in chosen),
            tuple(batch.records[row] for row in chosen),
            rows.labels[chosen],
            rows.scores[chosen],
        )


@dataclass
class Collected:
    """Data that the report keeps of some rows."""

    sums: dict[str, Sums] = field(default_factory=dict)  # by model name
    # int64 [2, 2]: rows that the model and the baseline predict wrong (0) or right (1). Zeros for a regression
    both: Any = 0
    worst: Kept | None = None  # rows with the largest losses of the model
    # Groups of rows for the model's intervals. Empty without `split_by`, except for sets of classes.
    clusters: ClusterSums = field(default_factory=ClusterSums)
    sample: Kept | None = None  # rows sampled by a hash of shard and record number, the same in every evaluation

    def add(self, batch: Batch, observed: Mapping[str, Observed], report: ModelReport) -> None:
        """Add a batch. The first model in `observed` is the candidate."""
        scored = {name: Scored.of(one, report) for name, one in observed.items()}
        for name, rows in scored.items():
            self.sums[name] = self.sums.get(name, Sums()) + Sums.of(rows, report)
        mine, *others = scored.values()
        if others and report.task != "regression":
            cells = 2 * mine.is_right + others[0].is_right
            self.both = self.both + np.bincount(cells, minlength=4).reshape(2, 2)
        # A number from 0 to 1 for each record, by its number and the split and file name. It samples rows the same
        # wherever the dataset lies.
        name, places = "/".join(batch.path.rsplit("/", 2)[-2:]), np.arange(len(batch.records), dtype=np.uint64)
        of_shard = np.uint64(zlib.crc32(name.encode())) << np.uint64(32)
        hashed_places = hashed((places + np.uint64(batch.start) + of_shard).view(np.int64))
        hashes = (hashed_places >> np.uint64(11)).astype(np.float64) / float(1 << 53)
        weights = next(iter(observed.values())).weights
        if report.split_by:
            self.clusters.add(groups_of(batch.columns, report.split_by, len(batch.records)), mine, report, weights)
        elif report.task == "multilabel":  # each row is a group, because the classes of a row are correlated
            self.clusters.add((hashes * (1 << 53)).astype(np.int64), mine, report, weights)
        worst = Kept.of(batch, mine, np.stack([-mine.losses, hashes], -1), WORST, self.worst)
        sample = Kept.of(batch, mine, np.stack([hashes, hashes], -1), SAMPLE, self.sample)
        self._keep(worst, sample)

    def merge(self, other: Collected) -> Collected:
        """Add the collected data of later rows."""
        for name, sums in other.sums.items():
            self.sums[name] = self.sums.get(name, Sums()) + sums
        self.both = self.both + other.both
        self.clusters.merge(other.clusters)
        if other.worst is not None and other.sample is not None:
            self._keep(other.worst, other.sample)
        return self

    def _keep(self, worst: Kept, sample: Kept) -> None:
        self.worst = worst if self.worst is None else self.worst.merge(worst, WORST)
        empty = Kept(sample.keys[:0], (), (), sample.labels[:0], sample.scores[:0])
        self.sample = (empty if self.sample is None else self.sample).merge(sample, SAMPLE, SAMPLE_BYTES)


def losses_of(labels: Array, scores: Array, report: ModelReport) -> Scored:
    """Return rows with their losses, from stored labels and scores."""
    return Scored.of(Observed(len(labels), labels.reshape(len(labels), -1), scores, None), report)


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
