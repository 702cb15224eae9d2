"""Detection of columns that identify groups of rows, such as users.

A group in both train and test inflates the score. Rows of a panel, such as the years of a country, are similar in other
columns and have similar labels. If some of them are in train, a model recognizes the others: `near_rows` measures this.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from infeed.components.dataset.statistics.cells import Cells
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.pipelines.project.coded_columns import CodedColumn, targets_of
from infeed.pipelines.surveys import Group, Task

# Column names of persons and similar groups, alone or with a suffix such as `id`.
_WHO = re.compile(
    r"(^|[_\W])(user|customer|client|patient|person|member|account|session|household|subject|visitor|employee|student"
    r"|player|driver|owner|author|family|device)s?([_\W]?(id|key|nr|no|number|name|code|uuid|hash))?$",
    re.IGNORECASE,
)
_IDENTIFIER = re.compile(r"(^|[_\W])(id|ID|key|uuid|group)$|[a-z]I[dD]$")
_LEAST_VALUES = 10
_LEAST_ROWS = 2  # minimum rows per value on average
_AGREEMENT = {True: 0.1, False: 0.9}  # required agreement, by whether the name suggests an identifier
_NEIGHBORS = 0.6  # share of the agreement that neighboring values reach in measurements
_LEAST_PAIRS = 100
# For text columns with uninformative names. Fewer values, or more rows per value, mean a recurring category.
_LEAST_GROUPS, _ROWS_OF_A_GROUP = 30, (5, 100)  # a model report considers fewer groups few
_LEAST_GAIN = 0.03  # minimum gain from nearest rows in the same group
_GAIN_OF_LOSS = 0.5  # the gain as a share of the loss with rows of other groups
_MUCH_AGREEMENT = 0.5  # or minimum agreement in the label within groups
_ERRORS = 4  # standard errors: chance explains one gain in about 30,000
_ROWS = 4_096  # maximum number of compared rows, in whole groups
_ASKED = 512  # number of rows whose nearest row is searched
_COLUMNS = 32  # compared
_VARYING = 0.05  # minimum share of rows in a group that differ from the next row. Codes of the group vary less

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.float64]


def find_groups(
    rows: Mapping[str, Cells],
    labels: Mapping[str, Task],
    columns: Mapping[str, ColumnStatistics],
    learned: Collection[str] = (),
    splits: Ints | None = None,
) -> tuple[Group, ...]:
    """Return the columns that identify groups, in descending order of agreement in a label.

    Args:
      rows: sample of the rows.
      labels: the task of each label.
      columns: columns that may identify groups.
      learned: input columns of the model, which measure how near rows are.
      splits: int64 [rows], the split number of each row, 0 for train. None if files do not name splits.
    """
    found = dict[str, Group]()
    for label, task in labels.items():
        for target in targets_of(label, rows[label], task):
            for group in _groups_in(target, task, rows, columns, learned, splits):
                if group.column not in found or found[group.column].agreement < group.agreement:
                    found[group.column] = group
    return tuple(sorted(found.values(), key=lambda group: -group.agreement))


def _groups_in(
    target: CodedColumn,
    task: Task,
    rows: Mapping[str, Cells],
    columns: Mapping[str, ColumnStatistics],
    learned: Collection[str],
    splits: Ints | None,
) -> Iterator[Group]:
    if target.is_list:
        return
    for name, column in columns.items():
        many = _LEAST_VALUES <= column.counts.distinct <= column.present / _LEAST_ROWS
        if name not in rows or not many or column.type == "float" or column.lengths.maximum != 1:
            continue
        who, identifies = _WHO.search(name), _IDENTIFIER.search(name)
        if not who and not identifies and column.type == "int":
            continue  # numbers are counts or measurements unless the name suggests an identifier
        coded = CodedColumn(name, rows[name])
        both = coded.present & target.present
        values = coded.numbers[both[coded.present]]
        agreement = _agreement(values, target, both, task)
        least = _AGREEMENT[identifies is not None]
        # Joining two neighbors hardly changes a measurement, but it mixes two groups.
        near = _agreement(values // 2, target, both, task) if agreement >= least else 0.0
        is_group = who or (agreement >= least and near < _NEIGHBORS * agreement)
        # Text with many values and several rows each may name groups as well.
        many = column.type == "bytes" and column.counts.distinct >= _LEAST_GROUPS
        may_be_group = many and _ROWS_OF_A_GROUP[0] <= column.present / column.counts.distinct <= _ROWS_OF_A_GROUP[1]
        is_near = not is_group and may_be_group and _are_near(coded, target, task, agreement, rows, learned)
        if is_group or is_near:
            shared = None
            if splits is not None:
                of_row = splits[coded.present]
                in_train, in_others = (np.unique(coded.numbers[mine]) for mine in (of_row == 0, of_row > 0))
                shared = float(np.isin(in_others, in_train).mean()) if len(in_others) else 0.0
            yield Group(name, agreement, is_near, shared)


def _are_near(
    group: CodedColumn,
    target: CodedColumn,
    task: Task,
    agreement: float,
    rows: Mapping[str, Cells],
    learned: Collection[str],
) -> bool:
    """Return whether nearest rows of the same group predict the label better, significantly and by much."""
    groups, label = np.full(len(group.present), -1), np.zeros(len(group.present))
    groups[group.present] = group.numbers
    groups[~target.present] = -1
    is_class = task != "regression"
    label[target.present] = target.numbers if is_class else np.asarray(target.values, np.float64)
    columns = [CodedColumn(name, rows[name]) for name in learned if name in rows and name != group.name]
    numbered = np.unique(groups, return_inverse=True)[1].reshape(-1) - int((groups < 0).any())
    near = near_rows(numbered, label, is_class, columns)
    by_much = near.gain >= _GAIN_OF_LOSS * near.other or agreement >= _MUCH_AGREEMENT
    return by_much and near.gain >= max(_LEAST_GAIN, _ERRORS * near.error)


def _agreement(values: Ints, target: CodedColumn, both: Bools, task: Task) -> float:
    """Return the excess agreement in the label of two rows with the same value, from 0 (chance) to 1 (always)."""
    there = both[target.present]
    rows = np.bincount(values)
    pairs_of_rows = int((rows * (rows - 1)).sum())
    if pairs_of_rows < 2 * _LEAST_PAIRS:
        return 0.0
    if task == "regression":  # share of the label's variance between the values
        wanted = np.asarray(target.values[there], np.float64)
        means = np.bincount(values, weights=wanted) / np.maximum(rows, 1)
        within = float(((wanted - means[values]) ** 2).sum()) / max(1, int(np.maximum(rows - 1, 0).sum()))
        total = float(wanted.var())
        return max(0.0, 1 - within / total) if total else 0.0
    # Cohen's kappa over pairs of rows.
    labels = target.numbers[there]
    pairs = np.unique(values * (int(labels.max()) + 1) + labels, return_counts=True)[1]
    within = float((pairs * (pairs - 1)).sum() / pairs_of_rows)
    chance = float(((np.bincount(labels) / len(labels)) ** 2).sum())
    return max(0.0, (within - chance) / (1 - chance)) if chance < 1 else 0.0


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
    # All rows of some groups, so that neighbors within a group are included.
    counts = np.bincount(groups[groups >= 0])
    order = random.permutation(len(counts))
    chosen = order[: max(2, int(np.searchsorted(np.cumsum(counts[order]), _ROWS)))]
    rows = np.flatnonzero(np.isin(groups, chosen))[: 2 * _ROWS]
    rows = rows[np.argsort(groups[rows], kind="stable")]
    groups, label = groups[rows], label[rows]
    same = np.diff(groups) == 0
    places = [place[rows] for place in map(_places, columns[:_COLUMNS])]
    asked = np.sort(random.permutation(len(rows))[:_ASKED])
    far = np.zeros((len(asked), len(rows)), np.float32)
    for place in (place for place in places if same.any() and (np.diff(place)[same] != 0).mean() >= _VARYING):
        # A place that neighbors in a group share as little as any rows has no weight, like the year of a panel.
        others = float(np.abs(place - np.roll(place, len(place) // 2)).mean())
        weight = max(0.0, 1 - float(np.abs(np.diff(place))[same].mean()) / others) if others else 0.0
        far += weight * np.abs(place[asked][:, np.newaxis] - place)
    if not far.any() or groups[0] == groups[-1]:
        return NearRows(0.0, 0.0, 0.0)
    # A row is not its own neighbor.
    far[np.arange(len(asked)), asked] = np.inf
    any_ = _losses(label[asked], label[far.argmin(axis=1)], label, is_class)
    far[groups[asked][:, np.newaxis] == groups] = np.inf
    other = _losses(label[asked], label[far.argmin(axis=1)], label, is_class)
    return NearRows(float(any_.mean()), float(other.mean()), float((other - any_).std() / len(asked) ** 0.5))


def _losses(wanted: Labels, given: Labels, label: Labels, is_class: bool) -> Labels:
    losses: Labels = (wanted != given).astype(np.float64)
    return losses if is_class else (wanted - given) ** 2 / max(2 * float(label.var()), 1e-300)


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
