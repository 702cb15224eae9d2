"""Scores of multi-label outputs, computed from the counts of each class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from infeed.components.evaluation import intervals
from infeed.components.evaluation.intervals import Interval
from infeed.components.evaluation.model_report.options import ModelReport
from infeed.components.evaluation.pairs import Array

SCORES = ("f1", "recall", "precision")
_NAMED = 3  # classes of a guess


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
    return float(scores[size - 1]), f"always {names if size <= _NAMED else f'the {size} most frequent classes'}"
