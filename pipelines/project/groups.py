"""Detection of columns that identify groups of rows, such as users.

A group in both train and test inflates the score.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from infeed.components.dataset.statistics.cells import Cells
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.pipelines.project.coded_columns import CodedColumn, targets_of
from infeed.pipelines.project.nearness import near_rows
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

Ints = npt.NDArray[np.int64]


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
        is_near = not is_group and _may_be_group(column) and _are_near(coded, target, task, agreement, rows, learned)
        if is_group or is_near:
            shared = None
            if splits is not None:
                of_row = splits[coded.present]
                in_train, in_others = (np.unique(coded.numbers[mine]) for mine in (of_row == 0, of_row > 0))
                shared = float(np.isin(in_others, in_train).mean()) if len(in_others) else 0.0
            yield Group(name, agreement, is_near, shared)


def _may_be_group(column: ColumnStatistics) -> bool:
    """Return whether a column has many values with several rows each."""
    least, most = _ROWS_OF_A_GROUP
    rows = column.present / max(1, column.counts.distinct)
    return column.type == "bytes" and column.counts.distinct >= _LEAST_GROUPS and least <= rows <= most


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
    near = near_rows(
        np.unique(groups, return_inverse=True)[1].reshape(-1) - int((groups < 0).any()), label, is_class, columns
    )
    by_much = near.gain >= _GAIN_OF_LOSS * near.other or agreement >= _MUCH_AGREEMENT
    return by_much and near.gain >= max(_LEAST_GAIN, _ERRORS * near.error)


def _agreement(values: Ints, target: CodedColumn, both: npt.NDArray[np.bool_], task: Task) -> float:
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
