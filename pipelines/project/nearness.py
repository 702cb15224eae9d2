"""Measurement of how much the nearest row of the same group helps to predict a label.

Rows of a panel, such as the years of a country, are similar in other columns and have similar labels. If some of them
are in train, a model recognizes the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from infeed.pipelines.project.coded_columns import CodedColumn

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.float64]
_ROWS = 4_096  # maximum number of compared rows, in whole groups
_ASKED = 512  # number of rows whose nearest row is searched
_COLUMNS = 32  # compared
_TINY = 1e-300
_VARYING = 0.05  # minimum share of rows in a group that differ from the next row. Codes of the group vary less


class NearRows(NamedTuple):
    """Mean losses of predicting the label by that of the nearest row."""

    any: float  # share of wrong classes, or the mean squared error relative to two random rows
    other: float  # the same for the nearest row of another group
    error: float  # standard error of the difference

    @property
    def gain(self) -> float:
        return self.other - self.any


def near_rows(groups: Ints, label: Labels, is_class: bool, columns: Sequence[CodedColumn]) -> NearRows:
    """Compare predictions by the nearest row with those by the nearest row of another group.

    Args:
      groups: int64 [rows], the group of each row, or -1 for rows to ignore.
      label: [rows], the label, or the number of the class.
      columns: columns that measure how near rows are. Codes of the group, which its rows share, do not count.
    """
    random = np.random.default_rng(0)
    rows = _of_whole_groups(groups, random)
    rows = rows[np.argsort(groups[rows], kind="stable")]
    groups, label = groups[rows], label[rows]
    same = np.diff(groups) == 0
    places = [place[rows] for place in map(_places, columns[:_COLUMNS])]
    asked = np.sort(random.permutation(len(rows))[:_ASKED])
    far = np.zeros((len(asked), len(rows)), np.float32)
    for place in (place for place in places if same.any() and (np.diff(place)[same] != 0).mean() >= _VARYING):
        far += _weight(place, same) * np.abs(place[asked][:, np.newaxis] - place)
    if not far.any() or groups[0] == groups[-1]:
        return NearRows(0.0, 0.0, 0.0)
    far[np.arange(len(asked)), asked] = np.inf
    any_ = _losses(label[asked], label[far.argmin(axis=1)], label, is_class)
    far[groups[asked][:, np.newaxis] == groups] = np.inf
    other = _losses(label[asked], label[far.argmin(axis=1)], label, is_class)
    return NearRows(float(any_.mean()), float(other.mean()), float((other - any_).std() / len(asked) ** 0.5))


def _losses(wanted: Labels, given: Labels, label: Labels, is_class: bool) -> Labels:
    if is_class:
        wrong: Labels = (wanted != given).astype(np.float64)
        return wrong
    losses: Labels = (wanted - given) ** 2 / max(2 * float(label.var()), _TINY)
    return losses


def _of_whole_groups(groups: Ints, random: np.random.Generator) -> Ints:
    """Return all rows of some groups, so that neighbors within a group are included."""
    counts = np.bincount(groups[groups >= 0])
    order = random.permutation(len(counts))
    chosen = order[: max(2, int(np.searchsorted(np.cumsum(counts[order]), _ROWS)))]
    return np.flatnonzero(np.isin(groups, chosen))[: 2 * _ROWS]


def _places(column: CodedColumn) -> Floats:
    """Return each row's rank from 0 to 1. Text values have random positions, and missing values have -1."""
    places = np.full(len(column.present), -1, np.float32)
    if column.is_list or not column.present.any():
        return places
    numbers = column.numbers
    if column.is_text and not column.is_time:
        numbers = np.random.default_rng(1).permutation(column.different)[numbers]
    counts = np.bincount(numbers)
    places[column.present] = ((np.cumsum(counts) - counts / 2) / len(numbers))[numbers]
    return places


def _weight(places: Floats, same: Bools) -> float:
    """Return 1 minus the distance of neighbors in a group relative to any rows: 0 for the year of a panel."""
    others = float(np.abs(places - np.roll(places, len(places) // 2)).mean())
    return max(0.0, 1 - float(np.abs(np.diff(places))[same].mean()) / others) if others else 0.0
