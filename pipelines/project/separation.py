"""Measurement of how well one column's values separate classes, by leave-one-out prediction.

The model is a table of row counts by value and class. A prediction excludes its own row, so a column of distinct
values predicts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

LEAST_ROWS = 10  # minimum rows of a class, and outside it. With fewer, columns separate classes by chance
_RARE = 5  # maximum rows of a rare value
_DENSE = 8  # cells per row up to which counting is faster than sorting


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
