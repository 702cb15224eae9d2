"""Columns with values coded as ranks, and how well the values of one column separate classes or predict a quantity.

The model is a table of row counts by value and class. A prediction leaves out its own row, so a column of distinct
values predicts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.dataset.statistics.cells import Cells
from infeed.pipelines.surveys import Task

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
_NO_NUMBER = r"[^0-9.eE+-]"
_LONGEST = 40  # maximum characters of a value in a message
_SETS = 10  # maximum classes of a set that are looked at
LEAST_ROWS = 10  # minimum rows of a class, and outside it. With fewer, columns separate classes by chance
_RARE = 5  # maximum rows of a rare value
_DENSE = 8  # cells per row up to which counting is faster than sorting


class CodedColumn:
    """Cells of a column. `is_time` is whether the values are dates or timestamps.

    Attributes:
      present: bool [rows], whether the row has a value. NaN, empty text and empty lists count as missing.
      is_list: whether a row has several values.
      is_text: whether the values are bytes.
      values: int64, float32 or bytes, the concatenated values of all rows.
    """

    def __init__(self, name: str, cells: Cells, is_time: bool = False) -> None:
        self.name, self.is_time, self._cells = name, is_time, cells
        self.is_text = cells.kind == "bytes"
        self.is_list = bool(len(cells.lengths)) and bool(cells.lengths.max() > 1)
        self.present: Bools = cells.lengths > 0
        self.values: Any = cells.values
        if self.is_list:
            return
        there = cells.byte_lengths > 0 if self.is_text else ~np.isnan(cells.values)
        if not there.all():  # drop NaNs and empty texts
            self.present = self.present.copy()
            self.present[self.present] = there
            self.values = pc.filter(self.values, pa.array(there)) if self.is_text else self.values[there]

    def take(self, rows: Ints) -> CodedColumn:
        return CodedColumn(self.name, self._cells.take(rows), self.is_time)

    @cached_property
    def _coded(self) -> tuple[Ints, Any]:
        if self.is_text:
            encoded = self.values.dictionary_encode()
            order = pc.sort_indices(encoded.dictionary).to_numpy()
            ranks = np.empty(len(order), np.int64)
            ranks[order] = np.arange(len(order))
            return ranks[encoded.indices.to_numpy()], encoded.dictionary.take(pa.array(order))
        ascending = self.values[self.order]
        is_first = np.ones(len(ascending), bool)
        is_first[1:] = ascending[1:] != ascending[:-1]
        numbers = np.empty(len(ascending), np.int64)
        numbers[self.order] = np.cumsum(is_first) - 1
        return numbers, ascending[is_first]

    @cached_property
    def order(self) -> Ints:
        """int64 [values], positions that sort the values. Equal values stay in row order."""
        return np.argsort(self.numbers if self.is_text else self.values, kind="stable")

    @property
    def numbers(self) -> Ints:
        """int64 [values], rank of each value among the distinct values."""
        return self._coded[0]

    @property
    def different(self) -> int:
        """Number of distinct values."""
        return len(self._coded[1])

    def shown(self, number: int) -> str:
        """Format the value with this rank for people."""
        value = self._coded[1][number]
        if isinstance(value, pa.Scalar):
            text = value.as_py().decode("utf-8", "replace")
            return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
        return f"{value:.6g}" if isinstance(value, np.floating) else str(value)

    def texts(self) -> pa.LargeStringArray | None:
        """Return the values as text. None if some are not text."""
        try:
            return self.values.cast(pa.large_string()) if self.is_text else None
        except pa.ArrowInvalid:
            return None

    def quantities(self) -> npt.NDArray[np.float64] | None:
        """Return the values as numbers, including text such as "12.50 CHF". None if some are not numbers."""
        if not self.is_text:
            return np.asarray(self.values, np.float64)
        texts = self.texts()
        try:
            digits = None if texts is None else pc.replace_substring_regex(texts, _NO_NUMBER, "")
            return None if digits is None else digits.cast(pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            return None

    def lists(self) -> tuple[Ints, CodedColumn]:
        """Return the row of each value, and the values as a flat column."""
        rows = np.repeat(np.arange(len(self.present)), np.where(self.present, self._cells.lengths, 0))
        return _items(self.name, rows, self.values)

    def words(self) -> tuple[Ints, CodedColumn] | None:
        """Return the row of each lowercase word, and the words as a column. None if the values are not text."""
        if (texts := self.texts()) is None:
            return None
        words = pc.split_pattern_regex(pc.utf8_lower(texts), r"[^\p{L}\p{N}]+")
        rows = np.repeat(np.flatnonzero(self.present), pc.list_value_length(words).to_numpy())
        return _items(self.name, rows, words.flatten().cast(pa.large_binary()))


def targets_of(label: str, cells: Cells, task: Task) -> Iterator[CodedColumn]:
    """Yield the label. For sets of classes, yield for each of the commonest classes whether a row has the class."""
    column = CodedColumn(label, cells)
    if task != "multilabel":
        yield column
        return
    rows, items = column.lists()
    common = np.argsort(-np.bincount(items.numbers, minlength=items.different), kind="stable")
    for value in common[:_SETS]:
        has = np.zeros(len(column.present), np.int64)
        has[rows[items.numbers == value]] = 1
        name = items.shown(value).strip("'\"")
        words = [f"not {name}", name]
        texts = pa.array(words, pa.large_string()).cast(pa.large_binary()).take(pa.array(has))
        _, target = _items(label, np.arange(len(has)), texts)
        yield target


def _items(name: str, rows: Ints, values: Any) -> tuple[Ints, CodedColumn]:
    """Return the row of each present value, and the values as a flat column."""
    ones = np.ones(len(values), np.int64)
    if isinstance(values, np.ndarray):
        cells = Cells("int" if values.dtype == np.int64 else "float", ones, values, ones[:0])
    else:
        cells = Cells("bytes", ones, values, pc.binary_length(values).to_numpy().astype(np.int64))
    items = CodedColumn(name, cells)
    return rows[items.present], items


@dataclass(frozen=True, eq=False)
class CrossTable:
    """Row counts by value and class, one entry for each existing pair, sorted by value."""

    values: Ints  # values, classes: int64 [pairs], indices of the value and of the class
    classes: Ints
    rows: Ints  # int64 [pairs], rows of the pair
    of_value: Ints  # int64 [distinct values], rows of each value
    of_class: Ints  # int64 [classes], rows of each class

    @classmethod
    def of(cls, values: Ints, labels: Ints, classes: int) -> CrossTable:
        """Count rows, given the indices of values (from 0, without gaps) and of classes."""
        return cls.within(values, labels, np.bincount(labels, minlength=classes))

    @classmethod
    def within(cls, values: Ints, labels: Ints, of_class: Ints) -> CrossTable:
        """Count rows that may have several values or none. `of_class` counts all rows of each class."""
        classes, found = len(of_class), values * len(of_class) + labels
        if len(found) and int(found.max()) <= _DENSE * len(found):
            counted = np.bincount(found)
            pairs = np.flatnonzero(counted)
            rows = counted[pairs]
        else:
            pairs, rows = np.unique(found, return_counts=True)
        return cls(pairs // classes, pairs % classes, rows, np.bincount(values), of_class)

    @property
    def weights(self) -> Floats:
        """Return the rows of each pair as a share of their class, so that classes have equal weight."""
        return self.rows / self.of_class[self.classes]

    def purest(self) -> tuple[float, int, int]:
        """Return gain, value and class of the best pair for the rule "the value is v if the class is c"; see `gains`.

        A value without rows of the class is not a pair. For a value of all other classes, see `gains`.
        """
        gain = self._gain
        best = int(gain.argmax()) if len(gain) else 0
        return (float(gain[best]), int(self.values[best]), int(self.classes[best])) if len(gain) else (0.0, 0, 0)

    def given_away(self, gain: float) -> Ints:
        """Return the classes that some value predicts with at least this gain; see `purest`."""
        found: Ints = np.unique(self.classes[self._gain >= gain])
        return found

    @cached_property
    def _gain(self) -> Floats:
        return self._gains(self.rows, self.of_value[self.values])

    def _gains(self, own: Ints, every: Ints) -> Floats:
        """Return the gain for each pair's class of a property with `own` rows in the class and `every` in total."""
        outside = np.maximum(self.of_class.sum() - self.of_class, 1)[self.classes]
        gain = own / np.maximum(self.of_class, 1)[self.classes] - (every - own) / outside
        return np.where(_judged(self.of_class)[self.classes], gain, 0.0)

    def divided(self) -> tuple[float, int, int, bool]:
        """Return gain, value and class of the best threshold, and whether the class is at or below the value.

        Otherwise, the class is at or above the value.
        """
        if not len(self.rows):
            return 0.0, 0, 0, True
        order = np.lexsort((self.values, self.classes))
        upto = np.cumsum(self.rows[order])
        starts = np.flatnonzero(np.diff(self.classes[order], prepend=-1))
        before = np.repeat((upto - self.rows[order])[starts], np.diff(np.append(starts, len(order))))
        own, every = np.empty(len(order), np.int64), np.cumsum(self.of_value)[self.values]
        own[order] = upto - before
        below = self._gains(own, every)
        above = -self._gains(own - self.rows, every - self.of_value[self.values])
        best, is_below = (below, True) if below.max() >= above.max() else (above, False)
        place = int(best.argmax())
        return float(best[place]), int(self.values[place]), int(self.classes[place]), is_below

    def owners(self, share: float) -> list[tuple[int, int]]:
        """Return (class, value) pairs in which the value covers at least this share of the class."""
        mine = self.weights >= share
        return list(zip(self.classes[mine].tolist(), self.values[mine].tolist(), strict=True))

    def voted(self) -> Bools:
        """Return, for each pair, whether the other rows of the value predict the class."""
        best, is_best, second = self._ruling
        of_others = np.where(is_best, second[self.values], best[self.values])
        return (self.rows - 1) / self.of_class[self.classes] > of_others

    def neighbored(self) -> Bools:
        """Return, for each pair, whether the class is predicted. Rare values also use the adjacent values.

        One matching neighbor suffices, so that rows on both sides of a boundary are correct.
        """
        ruling = self.ruling()
        before, behind = np.append(-1, ruling[:-1])[self.values], np.append(ruling[1:], -1)[self.values]
        near = (before == self.classes) | (behind == self.classes)
        found: Bools = self.voted() | (near & (self.of_value[self.values] <= _RARE))
        return found

    def ruling(self) -> Ints:
        """Return the most likely class of each value, with classes weighted equally."""
        return self.classes[self._ruling[1]]

    @cached_property
    def _ruling(self) -> tuple[Floats, Bools, Floats]:
        """Return the largest weight of each value, one pair that has it, and the second largest weight."""
        starts = np.flatnonzero(np.diff(self.values, prepend=-1))
        weights = self.weights
        best = np.maximum.reduceat(weights, starts)
        highest = np.flatnonzero(weights == best[self.values])
        is_best = np.zeros(len(weights), bool)
        is_best[highest[np.diff(self.values[highest], prepend=-1) > 0]] = True
        return best, is_best, np.maximum.reduceat(np.where(is_best, 0.0, weights), starts)

    def accuracy(self, right: Bools) -> float:
        """Return the share of the rows in pairs that are `right`."""
        return float((self.rows * right).sum() / max(1, self.rows.sum()))

    def recall(self, right: Bools) -> float:
        """Return the mean recall over classes with enough rows."""
        large = self.of_class >= LEAST_ROWS
        if np.count_nonzero(large) < 2:
            return 0.0
        found = np.bincount(self.classes, weights=self.rows * right, minlength=len(self.of_class))
        return float((found[large] / self.of_class[large]).mean())


def gains(has: Bools, labels: Ints, of_class: Ints) -> Floats:
    """Return Youden's J of each class: the share of its rows with a property minus the share of all other rows."""
    own = np.bincount(labels[has], minlength=len(of_class))
    gain = own / np.maximum(of_class, 1) - (own.sum() - own) / np.maximum(of_class.sum() - of_class, 1)
    return np.where(_judged(of_class), gain, 0.0)


def _judged(of_class: Ints) -> Bools:
    return np.minimum(of_class, of_class.sum() - of_class) >= LEAST_ROWS


def smooth(values: Ints, quantity: Floats) -> float:
    """Return the leave-one-out R squared of a quantity, predicted from neighbors in value order.

    Rows with equal values are predicted by their mean, and unique values by the mean of their two neighbors.
    """
    rows = np.bincount(values)
    sums = np.bincount(values, weights=quantity)
    means = sums / np.maximum(rows, 1)
    near = np.concatenate([means[:1], means, means[-1:]])
    alone = (near[:-2] + near[2:]) / 2
    others = (sums[values] - quantity) / np.maximum(rows[values] - 1, 1)
    predicted = np.where(rows[values] == 1, alone[values], others)
    spread = float(((quantity - quantity.mean()) ** 2).sum())
    return 1 - float(((quantity - predicted) ** 2).sum()) / spread if spread else 0.0
