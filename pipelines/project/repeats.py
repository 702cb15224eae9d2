"""Counts of repeated rows and images.

A copy in both train and test inflates the score. A copied image in another class contradicts the label.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from infeed.components.dataset import files
from infeed.components.dataset.statistics.cells import MISSING, Cells
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.dataset.statistics.value_counts import hashed
from infeed.components.example_gen.sources.folders import FileRef
from infeed.pipelines.surveys import RepeatedPictures, Repeats

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
_MORE = 3  # required multiple of the number expected by chance
_FEW = 5  # rows. Fewer are reported only if chance explains none
_NONE = 0.05  # rows expected by chance that count as none
_NEARLY_ALL = 0.8
_EACH_OFTEN = 4  # rows per distinct row. With more, rows are combinations of categories, as a town and its region
_STEP = np.uint64(0x9E3779B97F4A7C15)
# Bytes compared at the start of files of equal size. Compressed images that agree in them are equal.
_COMPARED_BYTES = 1 << 16


def find_repeats(
    rows: Mapping[str, Cells], features: Mapping[str, ColumnStatistics], splits: Ints | None = None
) -> Repeats:
    """Count rows of a sample that repeat others more often than chance explains; see `count_repeats`."""
    number = len(next(iter(rows.values())).lengths) if rows else 0
    # A column that may number the rows is ignored, so that copies of a row are found. Counts beyond 10,000 values are
    # estimates.
    least = {name: column.rows if column.counts.exact else 0.9 * column.rows for name, column in features.items()}
    ignored = tuple(n for n, one in features.items() if one.type == "int" and one.counts.distinct >= least[n])
    compared = {name: column for name, column in features.items() if name not in ignored}
    if not compared or number < 2:
        return Repeats(number)
    found = replace(count_repeats(rows, compared, splits), ignored=ignored)
    repeated, among = (found.equal, number) if splits is None else (found.shared, found.scored)
    others = number if splits is None else number - among
    chance = among * _repeated_by_chance(rows, compared, others)
    if repeated > _MORE * chance and (repeated >= _FEW or chance < _NONE):
        return replace(found, effective=math.inf)
    return Repeats(number, scored=found.scored, expected=found.equal, effective=found.effective)


def count_repeats(rows: Mapping[str, Cells], compared: Collection[str], splits: Ints | None = None) -> Repeats:
    """Count rows that repeat others in the columns `compared`, and in all columns.

    `splits`, int64 [rows], is the split number of each row, 0 for train. None if files do not name splits.
    """
    number = len(next(iter(rows.values())).lengths)
    row, like = _counted(sum(_weighted_hashes(rows, compared), np.zeros(number, np.uint64)))
    if splits is not None:
        scored, in_train = splits > 0, np.zeros(len(like), bool)
        in_train[row[~scored]] = True
        shared = int(np.count_nonzero(in_train[row] & scored))
        return Repeats(number, scored=int(np.count_nonzero(scored)), shared=shared)
    record, copies = _counted(sum(_weighted_hashes(rows, rows), np.zeros(number, np.uint64)))
    equal, copied, alike = like[row] > 1, copies[record] > 1, like[row] > copies[record]
    found = [int(np.count_nonzero(which)) for which in (equal, copied, alike)]
    effective = number**2 / float((copies**2).sum())
    return Repeats(number, equal=found[0], copies=found[1], alike=found[2], effective=effective)


def _counted(hashes: Hashes) -> tuple[Ints, Ints]:
    """Return the index of each row among the distinct rows, and the counts of the distinct rows."""
    _, numbers, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    return numbers.reshape(-1), counts


def _weighted_hashes(rows: Mapping[str, Cells], names: Collection[str]) -> Iterator[Hashes]:
    """Yield the hashes of each column, times a weight, so that equal values in two columns do not cancel out."""
    weight = np.ones(1, np.uint64)
    for name in (name for name in names if name in rows):
        weight *= _STEP
        yield weight * _cell_hashes(rows[name])


def _cell_hashes(cells: Cells) -> Hashes:
    """Hash the values of each row. Rows without a value have equal hashes."""
    values, counts = hashed(cells.values), np.maximum(cells.lengths, 0)
    if (cells.lengths == 1).all():
        return values
    starts = np.cumsum(counts) - counts
    places = np.arange(len(values)) - np.repeat(starts, counts)
    weighted = values * (places.astype(np.uint64) * np.uint64(2) + np.uint64(1))
    sums = np.concatenate([[np.uint64(0)], np.cumsum(weighted)])
    found = sums[starts + counts] - sums[starts]
    return np.where(cells.lengths == MISSING, np.uint64(0), found + counts.astype(np.uint64))


def _repeated_by_chance(rows: Mapping[str, Cells], compared: Mapping[str, ColumnStatistics], others: int) -> float:
    """Return the share of rows that equal one of `others` by chance, from the distinct rows. Copies inflate the rest.

    No other distinct row equals a row in one column and in all remaining columns. If the column is independent of
    them, rows that would are to those equal only in it, as those equal only in the rest are to those equal in neither.
    A column that depends on others gives too small a share, so the largest one counts.
    """
    hashes = list(_weighted_hashes(rows, compared))
    varying = [one for one in hashes if (one != one[0]).any()]
    if len(varying) < 2:
        return min(1.0, others * math.prod(map(_equal, compared.values())))
    whole = sum(varying[1:], varying[0])
    _, first, row = np.unique(whole, return_index=True, return_inverse=True)
    if len(first) * _EACH_OFTEN <= len(whole):
        return 1.0
    share = 0.0
    for one in varying:
        inside, outside = _others_like(one[first]), _others_like((whole - one)[first])
        neither = np.maximum(len(first) - 1 - inside - outside, 1)
        expected = inside * outside / neither * (others / len(first))
        share = max(share, float(np.minimum(expected, 1.0)[row.reshape(-1)].mean()))
    return share


def _others_like(hashes: Hashes) -> Ints:
    number, counts = _counted(hashes)
    return counts[number] - 1


def _equal(column: ColumnStatistics) -> float:
    """Return the probability that two rows have equal values. 0 for text and floats that are nearly all distinct."""
    counts, present = column.counts, column.present
    if column.type != "int" and counts.distinct >= _NEARLY_ALL * present > 0:
        return 0.0
    pairs = float((counts.counts * (counts.counts - 1)).sum()) / max(1, counts.total * (counts.total - 1))
    there = present / max(1, column.rows)
    return there**2 * (pairs if counts.exact else 1 / max(1, counts.distinct)) + (1 - there) ** 2


def find_repeated_pictures(images: Sequence[FileRef], patterns: Mapping[str, str]) -> RepeatedPictures:
    """Find copies by comparing the contents of files of equal size. Other files are not read.

    `patterns` are those of splits with separate folders. Empty if shares divide the images.
    """
    sizes = defaultdict[int, list[FileRef]](list)
    for image in images:
        sizes[image.size].append(image)
    contents = defaultdict[tuple[int, bytes], list[FileRef]](list)
    for size, alike in sizes.items():
        for image in alike if size and len(alike) > 1 else ():
            with files.open_input(image.path) as file:
                contents[size, hashlib.sha256(file.read(_COMPARED_BYTES)).digest()].append(image)
    folders = [pattern.partition("/")[0] + "/" for pattern in patterns.values()]

    def split_of(image: FileRef) -> str:
        return next((folder for folder in folders if image.filename.startswith(folder)), "")

    groups = [group for group in contents.values() if len(group) > 1]
    divided = [group for group in groups if not folders or len(set(map(split_of, group))) > 1]
    contrary = [group for group in groups if len({image.text for image in group}) > 1]
    return RepeatedPictures(
        divided=sum(map(len, divided)),
        contrary=sum(map(len, contrary)),
        example=tuple(image.filename for group in [*contrary, *divided][:1] for image in group[:2]),
    )
