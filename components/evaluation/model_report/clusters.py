"""Sums per group of related rows, such as those of one country, for intervals that resample groups; sets of classes.

Rows of one group are correlated. If whole groups are in one split, an interval that treats rows as independent is too
narrow. The delete-one-group jackknife uses the variation of the score when each group is left out: Efron and
Tibshirani, An Introduction to the Bootstrap (1993), chapter 11. It needs only the sums of each group, not rows.

The classes of one row are correlated as well, so the groups of sets of classes are single rows, or random groups of
rows if there are many: Kott, The Delete-a-Group Jackknife (2001), Journal of Official Statistics 17, 521-526.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from infeed.components.evaluation import intervals
from infeed.components.evaluation.intervals import Interval
from infeed.components.evaluation.model_report.options import ModelReport
from infeed.components.evaluation.pairs import Array

if TYPE_CHECKING:
    from infeed.components.evaluation.model_report.collected import Scored

_BUCKETS = 1_000  # maximum number of groups. Beyond it, groups with the same hash modulo this number are merged
_NUMBERS, _LEAST_BUCKETS = 2_000_000, 50  # sums of many classes are kept for fewer groups
_ROUNDED = 1e-9  # share of a sum that rounding may leave
_BINS = 200  # bins of a probability, for the area under a curve
SCORES = ("f1", "recall", "precision")


@dataclass
class ClusterSums:
    """Sums of the rows of each group, by a hash of its values.

    For a classification, float64 [3, classes]: rows of the class, rows predicted as it, and correct ones; and
    positives and negatives by probability, float64 [2, bins]. For a regression, float64 [5]: rows, label, its square,
    squared error and absolute error. For sets of classes, those of `terms_of`.
    """

    rows: int = 0
    sums: dict[int, Array] = field(default_factory=dict)  # float64 [n], all sums of a group concatenated, weighted
    are_joined: bool = False  # whether groups were merged because there are too many

    def __len__(self) -> int:
        return len(self.sums)

    def add(self, groups: Array, rows: Scored, report: ModelReport, weights: Array | None = None) -> None:
        """Add a batch. `groups` has the number of the group of each row, int64 [rows]. `weights` is [rows]."""
        self.rows += len(groups)
        terms = _terms(rows, report)
        if weights is not None:
            terms = terms * weights[:, np.newaxis]
        # Join before the rows are added, so that the number of sums stays bounded in every batch.
        if len(np.unique(groups)) > _most_groups(terms.shape[1]):
            self._join()
        groups = groups % _most_groups(terms.shape[1]) if self.are_joined else groups
        # In this order, the rows of a group are adjacent, and one call sums all groups.
        order = np.argsort(groups, kind="stable")
        found, starts = np.unique(groups[order], return_index=True)
        for group, sums in zip(found.tolist(), np.add.reduceat(terms[order], starts, dtype=np.float64), strict=True):
            self._add(group, sums)

    def merge(self, other: ClusterSums) -> None:
        self.rows += other.rows
        if other.are_joined and not self.are_joined:
            self._join()
        for group, sums in other.sums.items():
            self._add(group, sums)

    def _add(self, group: int, sums: Array) -> None:
        group = group % _most_groups(len(sums)) if self.are_joined else group
        self.sums[group] = self.sums.get(group, 0) + sums
        if len(self.sums) > _most_groups(len(sums)):
            self._join()

    def _join(self) -> None:
        each, self.sums, self.are_joined = self.sums, {}, True
        for group, sums in each.items():
            self._add(group, sums)

    @property
    def total(self) -> Array:
        """Sums of all rows."""
        return np.asarray(np.sum([*self.sums.values()], axis=0))

    def left_out(self, report: ModelReport) -> dict[str, Array]:
        """Return the metrics without each group, by name: float64 [groups]."""
        each = np.stack([self.sums[group] for group in sorted(self.sums)])
        total = each.sum(axis=0)
        sums = total - each
        if report.task != "regression":
            sums[sums < _ROUNDED * total] = 0.0  # what fractional weights leave of a class that no other group has
        with np.errstate(divide="ignore", invalid="ignore"):
            if report.task == "multilabel":
                return scores_of_sets(sums)
            if report.task == "classification":
                return _shares(sums, report)
            rows, label, square, error, absolute = sums.T
            mse, variance = error / rows, square / rows - (label / rows) ** 2
            return {"mse": mse, "rmse": np.sqrt(mse), "mae": absolute / rows, "r2": 1 - mse / variance}


def groups_of(columns: Mapping[str, Any], names: Sequence[str], rows: int) -> Array:
    """Return a number for the values of each row in these columns, int64 [rows]. A missing value is a value."""
    lists = [columns[name].to_pylist() if name in columns else [None] * rows for name in names]
    return np.array([zlib.crc32(repr(one).encode()) for one in zip(*lists, strict=True)])


def _most_groups(width: int) -> int:
    return max(_LEAST_BUCKETS, min(_BUCKETS, _NUMBERS // width))


def _terms(rows: Scored, report: ModelReport) -> Array:
    """Return the contribution of each row, [rows, n]."""
    if report.task == "regression":
        errors = rows.predicted - rows.labels
        powers = [np.ones(len(errors)), rows.labels, rows.labels**2, errors**2, np.abs(errors)]
        return np.stack(powers, axis=1)
    if report.task == "multilabel":
        return terms_of(rows.labels, rows.predicted)
    classes = np.arange(rows.scores.shape[1])
    is_class, is_called = rows.labels[:, None] == classes, rows.predicted[:, None] == classes
    unknown = rows.labels[:, None] < 0
    counts = np.concatenate([unknown, is_class, is_called, is_class & is_called], axis=1)
    # Only two classes have an area under the curve.
    if len(classes) != 2:
        return np.asarray(counts, np.float64)
    place = np.clip(rows.scores[:, report.positive] * _BINS, 0, _BINS - 1).astype(int)
    in_bin = place[:, None] == np.arange(_BINS)
    is_positive = (rows.labels == report.positive)[:, None]
    return np.asarray(np.concatenate([counts, in_bin & is_positive, in_bin & ~is_positive], axis=1), np.float64)


def _shares(sums: Array, report: ModelReport) -> dict[str, Array]:
    two = 2 * _BINS
    counts, bins = (sums[:, :-two], sums[:, -two:]) if sums.shape[1] == 1 + 3 * 2 + two else (sums, None)
    actual, called, right = np.split(counts[:, 1:], 3, axis=1)
    chosen, has_rows = report.scored_class, actual > 0
    means = {
        name: (one * has_rows).sum(axis=1) / has_rows.sum(axis=1) if chosen is None else one[:, chosen]
        for name, one in scores_of_classes(actual, called, right).items()
    }
    means["accuracy"] = right.sum(axis=1) / (actual.sum(axis=1) + counts[:, 0])
    if bins is not None:
        positives, negatives = np.split(bins, 2, axis=1)
        below = np.cumsum(negatives, axis=1) - negatives / 2
        pairs = positives.sum(axis=1) * negatives.sum(axis=1)
        means["auc"] = (positives * below).sum(axis=1) / pairs
    return means


@dataclass(frozen=True)
class ClassOfSets:
    """Scores of one class."""

    name: str
    rows: int  # rows with the class
    missed: int  # rows with the class that are predicted without it
    added: int  # rows without the class that are predicted with it
    recall: float
    precision: float
    f1: float
    interval: Interval | None  # 95 % interval of F1 over independent rows. None without rows


def terms_of(labels: Array, predicted: Array) -> Array:
    """Return what each row adds to the counts, bool [rows, 3 x classes]: actual, predicted, and both.

    Both arguments are bool [rows, classes].
    """
    return np.concatenate([labels, predicted, labels & predicted], axis=1)


def scores_of_sets(sums: Array) -> dict[str, Array]:
    """Return the scores of sums of `terms_of`, [..., 3 x classes] -> [...] each.

    `f1`, `recall` and `precision` are over all classes of all rows (micro averages). `macro_f1` and so on are the means
    over the classes with rows.
    """
    actual, called, right = np.split(sums, 3, axis=-1)
    has_rows = actual > 0
    found = scores_of_classes(actual.sum(-1), called.sum(-1), right.sum(-1))
    for name, each in scores_of_classes(actual, called, right).items():
        found[f"macro_{name}"] = (each * has_rows).sum(-1) / np.maximum(has_rows.sum(-1), 1)
    return found


def scores_of_classes(actual: Array, called: Array, right: Array) -> dict[str, Array]:
    """Return F1, recall and precision from counts of rows. They are 0 without rows, which may weigh less than 1."""
    bottoms = (actual + called) / 2, actual, called
    return {name: right / np.where(one > 0, one, 1.0) for name, one in zip(SCORES, bottoms, strict=True)}


def classes_of(sums: Array, report: ModelReport) -> Iterator[ClassOfSets]:
    """Yield the scores of each class, those with the most errors first."""
    actual, called, right = np.split(np.asarray(sums), 3)
    scores = scores_of_classes(actual, called, right)
    for one in np.argsort(2 * right - actual - called, kind="stable").tolist():
        rows, predicted, both = (int(counts[one]) for counts in (actual, called, right))
        matrix = {(1, 1): both, (1, 0): rows - both, (0, 1): predicted - both}
        f1, recall, precision = (float(scores[name][one]) for name in SCORES)
        interval = None if report.split_by else intervals.of_class(matrix, 1)["f1"]
        yield ClassOfSets(report.name_of(one), rows, rows - both, predicted - both, recall, precision, f1, interval)


def best_guess(sums: Array, rows: float, report: ModelReport) -> tuple[float, str]:
    """Return the highest F1 of giving all rows the same set, and this set: the most frequent classes."""
    actual = np.asarray(sums)[: len(sums) // 3]
    order = np.argsort(-actual, kind="stable")
    scores = 2 * actual[order].cumsum() / (np.arange(1, len(order) + 1) * rows + actual.sum())
    size = int(scores.argmax()) + 1
    names = ", ".join(repr(report.name_of(one)) for one in order[:size].tolist())
    return float(scores[size - 1]), f"always {names if size <= 3 else f'the {size} most frequent classes'}"
