"""How well the values of one column tell classes apart: small models of a single column, each row judged by the others.

A model is a table of counts: rows by value and class. A row's prediction never counts the row itself, so that a column
whose values occur once each predicts nothing by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

LEAST_ROWS = 10  # of a class, and outside of it: with fewer, a column separates classes by chance
_RARE = 5  # rows of a value
_DENSE = 8  # places a row: so many are counted faster than sorted


@dataclass(frozen=True, eq=False)
class CrossTable:
    """Rows by value and class: one entry for each pair that occurs, sorted by value.

    Attributes:
      values, classes: int64 [pairs], the numbers of the value and of the class.
      rows: int64 [pairs], how many rows have both.
      of_value: int64 [different values], rows of each value.
      of_class: int64 [classes], rows of each class.
    """

    values: Ints
    classes: Ints
    rows: Ints
    of_value: Ints
    of_class: Ints

    @classmethod
    def of(cls, values: Ints, labels: Ints, classes: int) -> CrossTable:
        """Of the number of the value, from 0 without gaps, and of the class of each row."""
        return cls.within(values, labels, np.bincount(labels, minlength=classes))

    @classmethod
    def within(cls, values: Ints, labels: Ints, of_class: Ints) -> CrossTable:
        """The same where a row may have several values, or none: `of_class` counts all rows of each class."""
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
        """Rows of each pair as a share of their class: rare classes count as much as common ones."""
        return self.rows / self.of_class[self.classes]

    def purest(self) -> tuple[float, int, int]:
        """The gain, the value and the class of the pair with the largest `gains` of "the value is v if the class is c".

        A value that no row of the class has makes no pair: see `gains` for a value that all other classes have.
        """
        others, outside = self.of_value[self.values] - self.rows, self.of_class.sum() - self.of_class
        gain = self.weights - others / np.maximum(outside, 1)[self.classes]
        gain[~_judged(self.of_class)[self.classes]] = 0.0
        best = int(gain.argmax()) if len(gain) else 0
        return (float(gain[best]), int(self.values[best]), int(self.classes[best])) if len(gain) else (0.0, 0, 0)

    def owners(self, share: float) -> list[tuple[int, int]]:
        """(class, value) where the value has at least this share of the class."""
        mine = self.weights >= share
        return list(zip(self.classes[mine].tolist(), self.values[mine].tolist(), strict=True))

    def voted(self) -> Bools:
        """Of each pair, whether the other rows of the value predict the class."""
        best, is_best, second = self._ruling
        of_others = np.where(is_best, second[self.values], best[self.values])
        return (self.rows - 1) / self.of_class[self.classes] > of_others

    def neighbored(self) -> Bools:
        """The same for values in order; rows whose value is rare are judged by the values before and behind it, too.

        The class of one of the two is enough, so that the row at either side of a boundary is right.
        """
        ruling = self.ruling()
        before, behind = np.append(-1, ruling[:-1])[self.values], np.append(ruling[1:], -1)[self.values]
        near = (before == self.classes) | (behind == self.classes)
        found: Bools = self.voted() | (near & (self.of_value[self.values] <= _RARE))
        return found

    def ruling(self) -> Ints:
        """The class of each value: the one that most of it belongs to, each class weighted alike."""
        return self.classes[self._ruling[1]]

    @cached_property
    def _ruling(self) -> tuple[Floats, Bools, Floats]:
        """The largest weight of each value, the pairs that have it, one of each value, and the second largest."""
        starts = np.flatnonzero(np.diff(self.values, prepend=-1))
        weights = self.weights
        best = np.maximum.reduceat(weights, starts)
        highest = np.flatnonzero(weights == best[self.values])
        is_best = np.zeros(len(weights), bool)
        is_best[highest[np.diff(self.values[highest], prepend=-1) > 0]] = True
        return best, is_best, np.maximum.reduceat(np.where(is_best, 0.0, weights), starts)

    def recall(self, right: Bools) -> float:
        """The mean over the classes of the share of rows that are right; over classes of enough rows."""
        large = self.of_class >= LEAST_ROWS
        if np.count_nonzero(large) < 2:
            return 0.0
        found = np.bincount(self.classes, weights=self.rows * right, minlength=len(self.of_class))
        return float((found[large] / self.of_class[large]).mean())


def gains(has: Bools, labels: Ints, of_class: Ints) -> Floats:
    """Youden's J of each class: the share of its rows that have something, less the share of all other rows."""
    own = np.bincount(labels[has], minlength=len(of_class))
    gain = own / np.maximum(of_class, 1) - (own.sum() - own) / np.maximum(of_class.sum() - of_class, 1)
    return np.where(_judged(of_class), gain, 0.0)


def _judged(of_class: Ints) -> Bools:
    return np.minimum(of_class, of_class.sum() - of_class) >= LEAST_ROWS


def smooth(values: Ints, quantity: Floats) -> float:
    """R squared of a quantity by its neighbors in the order of the values, each row by the others.

    Rows of one value are judged by their mean; a value that occurs once by the mean of its two neighbors.
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
