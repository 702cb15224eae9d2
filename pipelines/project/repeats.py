"""Count rows that repeat other rows: a copy in both train and test inflates the score."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt

from infeed.components.dataset.statistics.cells import MISSING, Cells
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.dataset.statistics.value_counts import hashed
from infeed.pipelines.surveys import Repeats

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
_MORE = 3  # required multiple of the number expected by chance
_FEW = 5  # rows; fewer are reported only if chance explains none
_NONE = 0.05  # rows expected by chance that count as none
_NEARLY_ALL = 0.8


def find_repeats(
    rows: Mapping[str, Cells], features: Mapping[str, ColumnStatistics], splits: Ints | None = None
) -> Repeats:
    """Count rows that repeat others in all columns, or in the columns that are learned from.

    Args:
      rows: cells of each column of a sample, including the label.
      features: columns that are learned from.
      splits: int64 [rows], split number of each row, 0 for train; None if files do not name splits.
    """
    number = len(next(iter(rows.values())).lengths) if rows else 0
    # Copies of a row may differ in a row number.
    features = {name: column for name, column in features.items() if not _names_rows(column)}
    if not features or number < 2:
        return Repeats(number)
    row, like = _counted(_row_hashes(rows, features, number))
    if splits is not None:
        scored, in_train = splits > 0, np.zeros(len(like), bool)
        in_train[row[~scored]] = True
        found, among = int(np.count_nonzero(in_train[row] & scored)), int(np.count_nonzero(scored))
        chance = among * _chance(features.values(), number - among)
        return Repeats(number, scored=among, shared=found if _are_many(found, chance) else 0)
    record, copies = _counted(_row_hashes(rows, rows, number))
    alike = int(np.count_nonzero(like[row] > copies[record]))
    chance = number * _chance(features.values(), number)
    copied = int(np.count_nonzero(copies[record] > 1))
    return Repeats(number, copied if _are_many(copied, chance) else 0, alike if _are_many(alike, chance) else 0)


def _counted(hashes: Hashes) -> tuple[Ints, Ints]:
    """Return the index of each row among the different rows, and the counts of the different rows."""
    _, numbers, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    return numbers.reshape(-1), counts


def _row_hashes(rows: Mapping[str, Cells], names: Collection[str], number: int) -> Hashes:
    """Hash each row over these columns."""
    found = np.zeros(number, np.uint64)
    for name in names:
        if name in rows:
            found = _next(found) + _cell_hashes(rows[name])
    return found


def _cell_hashes(cells: Cells) -> Hashes:
    """Hash the values of each row; rows without a value get equal hashes."""
    values, counts = hashed(cells.values), np.maximum(cells.lengths, 0)
    if (cells.lengths == 1).all():
        return values
    starts = np.cumsum(counts) - counts
    places = np.arange(len(values)) - np.repeat(starts, counts)
    sums = np.concatenate(
        [[np.uint64(0)], np.cumsum(values * (places.astype(np.uint64) * np.uint64(2) + np.uint64(1)))]
    )
    found = sums[starts + counts] - sums[starts]
    return np.where(cells.lengths == MISSING, np.uint64(0), found + counts.astype(np.uint64))


def _next(hashes: Hashes) -> Hashes:
    """Mix the hashes, so that equal values in two columns do not cancel out."""
    return hashes * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1)


def _chance(columns: Collection[ColumnStatistics], others: int) -> float:
    """Return the probability that one of the other rows equals a row, if the columns are independent."""
    return min(1.0, others * math.prod(_equal(column) for column in columns))


def _names_rows(column: ColumnStatistics) -> bool:
    least = column.rows if column.counts.exact else 0.9 * column.rows  # beyond 10,000 values it is an estimate
    return column.type == "int" and column.counts.distinct >= least


def _equal(column: ColumnStatistics) -> float:
    """Return the probability that two rows have equal values; 0 for texts and floats that nearly all differ."""
    counts, present = column.counts, column.present
    if column.type != "int" and counts.distinct >= _NEARLY_ALL * present > 0:
        return 0.0
    pairs = float((counts.counts * (counts.counts - 1)).sum()) / max(1, counts.total * (counts.total - 1))
    there = present / max(1, column.rows)
    return there**2 * (pairs if counts.exact else 1 / max(1, counts.distinct)) + (1 - there) ** 2


def _are_many(found: int, chance: float) -> bool:
    return found > _MORE * chance and (found >= _FEW or chance < _NONE)
