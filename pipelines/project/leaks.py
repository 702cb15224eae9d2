"""Detection of columns that give the label away: copies, columns filled only for one class, numbers sorted by class.

A finding is certain if the kind of prediction is suspicious, such as cells filled only for one class. A number that a
threshold separates perfectly may be an honest measurement, so that finding is only a question.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from infeed.components.dataset.statistics.cells import Cells
from infeed.pipelines.project.coded_columns import CodedColumn, CrossTable, gains, smooth, targets_of
from infeed.pipelines.surveys import Leak, Task

# Share of the rows of each class. The best honest columns of scikit-learn's data sets predict 0.9 of them.
_NEARLY_ALL = 0.995
_FILLED = 0.97  # by missing cells alone, because a measurement is rarely missing for exactly one class
_SORTED = 0.998  # `CrossTable.neighbored` favors rows at boundaries
_LINEAR = 0.99999  # R squared
_SMOOTH = 0.999  # R squared
_LEAST_ROWS = 20
# Share of the rows. With hundreds of classes, the few rows of some have one value by chance.
_MATERIAL = 0.05
_PREDICTED = 0.95  # share of the rows that values predict, so that a value of a small class is not chance
_ASKED_ROWS = 200  # an honest measurement may separate fewer rows without an error
_CATEGORIES = 50  # a text column with more distinct values contains names
_FEW_CATEGORIES = 10  # with more values, each may naturally belong to one class
_MOST_CLASSES = 20  # maximum classes whose names are searched for in texts
_PART = 0.1  # minimum share of a class that is filled for no other class, to be worth a note
_CHANCE = 1e-6  # probability that filled rows are all of one class
_COLLISIONS = 5  # expected number of equal values among random numbers. Identifiers have none
_CHANGES = 0.02  # maximum share of the distinct values at which the class changes, in a column sorted by class
_AT_RANDOM = 0.6  # share of the expected class changes in a random order
_PURE = 2 * _NEARLY_ALL - 1  # gain of such a score
_EVEN = 1e-9
_ROUNDED = 1e-3
_ITEM_BYTES = 4 << 20  # maximum bytes of texts and lists to examine
_SHOWN = 3


def find_leaks(rows: Mapping[str, Cells], labels: Mapping[str, Task], times: Collection[str] = ()) -> dict[str, Leak]:
    """Return the columns that give a label away, by name. Rows without the label are ignored.

    Args:
      rows: the cells of each column, in row order.
      labels: the task of each label.
      times: columns of dates and timestamps.
    """
    found: dict[str, list[Leak]] = {}
    others = {name: cells for name, cells in rows.items() if name not in labels}
    for label, task in labels.items():
        for target in targets_of(label, rows[label], task):
            labeled = np.flatnonzero(target.present)
            if target.is_list or len(labeled) < _LEAST_ROWS:
                continue
            judge = (_Quantity if task == "regression" else _Classes)(target.take(labeled))
            for name, cells in others.items():
                column = CodedColumn(name, cells.take(labeled), name in times)
                if column.present.any() and (leak := judge.leak_of(column)):
                    found.setdefault(name, []).append(replace(leak, label=label) if len(labels) > 1 else leak)
    return {name: surest for name, leaks in found.items() if (surest := _surest(leaks))}


class _Classes:
    """Detector of columns that give a class away."""

    def __init__(self, label: CodedColumn) -> None:
        self._label, self._labels = label, label.numbers
        self._rows = np.bincount(self._labels)

    def leak_of(self, column: CodedColumn) -> Leak | None:
        return _surest(self._findings(column))

    def _findings(self, column: CodedColumn) -> Iterator[Leak | None]:
        # If no finding is certain, the first one is reported.
        yield self._filled(column)
        # A column with values in few rows predicts few rows.
        if 2 * np.count_nonzero(column.present) >= len(column.present):
            yield from self._by_values(column)
        yield self._partly_filled(column)

    def _by_values(self, column: CodedColumn) -> Iterator[Leak | None]:
        if column.is_list:
            yield self._in_items(column)
        if column.is_list or self._is_noise(column):
            return
        table = CrossTable.of(column.numbers, self._labels[column.present], len(self._rows))
        yield self._copied(column, table)
        yield self._one_value(column, table)
        yield self._decided(column, table)
        if column.is_text:
            yield self._named(column)
            yield self._in_items(column)
        yield self._sorted(column, table)
        yield self._divided(column, table)

    def _filled(self, column: CodedColumn) -> Leak | None:
        """Detect cells that are filled only for one class."""
        gain, of_class = self._largest_gain(column.present)
        if _score(gain) < _FILLED:
            return None
        words = f"it is filled {self._shares(column.present, of_class)}"
        return Leak(words, _score(gain), self._are_many([of_class]))

    def _are_many(self, classes: Sequence[int]) -> bool:
        """Return whether the rows of these classes are a material share. With two classes, one implies the other."""
        return len(self._rows) == 2 or bool(self._rows[classes].sum() >= _MATERIAL * len(self._labels))

    def _is_noise(self, column: CodedColumn) -> bool:
        """Return whether classes alternate in the order of the numbers nearly as often as by chance."""
        if len(self._rows) != 2 or column.is_text:
            return False
        labels = self._labels[column.present]
        share = labels.mean()
        changes = np.count_nonzero(np.diff(labels[column.order]))
        return bool(changes > _AT_RANDOM * 2 * share * (1 - share) * len(labels) + 2 * _CATEGORIES)

    def _largest_gain(self, has: npt.NDArray[np.bool_]) -> tuple[float, int]:
        """Return the largest gain and its class. With two classes, the class that has the property."""
        gain = gains(has, self._labels, self._rows)
        best = int(gain.argmax()) if gain.max() >= -gain.min() - _EVEN else int(gain.argmin())
        return abs(float(gain[best])), best

    def _copied(self, column: CodedColumn, table: CrossTable) -> Leak | None:
        """Detect a column with a distinct value for each class."""
        if column.different < 2 or (score := table.recall(table.voted())) < _NEARLY_ALL:
            return None
        own = {int(one): int(value) for one, value in table.owners(_NEARLY_ALL)}
        if len(own) < np.count_nonzero(table.of_class) or len(set(own.values())) < len(own):
            return None
        if all(column.shown(value) == self._label.shown(one) for one, value in own.items()):
            return Leak("it equals the label", score)
        pairs = [f"{column.shown(value)} for {self._label.shown(one)}" for one, value in list(own.items())[:_SHOWN]]
        return Leak(f"each class has a distinct value: {', '.join(pairs)}", score)

    def _one_value(self, column: CodedColumn, table: CrossTable) -> Leak | None:
        """Detect a value, such as 0, that occurs exactly where one class does."""
        # Missing cells count as one more value.
        values = np.full(len(column.present), column.different)
        values[column.present] = column.numbers
        whole = table if column.present.all() else CrossTable.of(values, self._labels, len(self._rows))
        gain, value, of_class = whole.purest()
        given = whole.given_away(_PURE).tolist()
        if gain < _PURE:
            value = int(table.of_value.argmax())
            gain, of_class = self._largest_gain(values == value)
            given = [of_class]
        if gain < _PURE or value == column.different:
            return None
        words = f"it is {column.shown(value)} {self._shares(values == value, of_class)}{_and_others(given)}"
        is_code = table.accuracy(table.voted()) >= _PREDICTED
        return Leak(words, _score(gain), is_code or self._are_many(given))

    def _decided(self, column: CodedColumn, table: CrossTable) -> Leak | None:
        """Detect values that each belong to one class. Several may belong to the same class."""
        if not column.is_text or not 2 < column.different <= _CATEGORIES:
            return None
        score = table.recall(table.voted())
        few = column.different <= _FEW_CATEGORIES and not column.is_time
        return Leak("each of its values belongs to one class", score, sure=few) if score >= _NEARLY_ALL else None

    def _named(self, column: CodedColumn) -> Leak | None:
        """Detect text that contains the class name."""
        names = [self._label.shown(number).strip("'\"") for number in range(min(len(self._rows), _MOST_CLASSES + 1))]
        texts = column.texts()
        if texts is None or len(names) > _MOST_CLASSES or column.different <= _CATEGORIES:
            return None
        # One bit per class name, so that rows that contain the same names share a number.
        found = np.zeros(len(texts), np.int64)
        for place, name in enumerate(name for name in names if re.search(r"[^\W\d]{2}", name)):
            there = pc.match_substring_regex(texts, rf"\b{re.escape(name)}\b", ignore_case=True)
            found += there.to_numpy(zero_copy_only=False).astype(np.int64) << place
        named = np.unique(found, return_inverse=True)[1].reshape(-1)
        table = CrossTable.of(named, self._labels[column.present], len(self._rows))
        score = table.recall(table.voted())
        return Leak("its text contains the class name", score) if score >= _NEARLY_ALL else None

    def _in_items(self, column: CodedColumn) -> Leak | None:
        """Detect a list item or word that occurs in only one class. In long texts, some rows suffice."""
        if column.is_text and not column.is_list and column.different <= _CATEGORIES:
            return None
        if (times := int(column.values.nbytes) // _ITEM_BYTES) > 0:
            rows = np.arange(0, len(self._labels), times + 1)
            return _Classes(self._label.take(rows))._in_items(column.take(rows))
        found = column.lists() if column.is_list else column.words()
        if not found:
            return None
        rows, items = found
        # Count an item once per row, however often the row repeats it.
        once = np.unique(items.numbers * len(self._labels) + rows)
        item, row = once // len(self._labels), once % len(self._labels)
        table = CrossTable.within(item, self._labels[row], self._rows)
        gain, value, of_class = table.purest()
        if gain < _PURE or len(row) == 0:
            return None
        given = table.given_away(_PURE).tolist()
        has = np.zeros(len(self._labels), bool)
        has[row[item == value]] = True
        words = f"{items.shown(value)} is in it {self._shares(has, of_class)}{_and_others(given)}"
        return Leak(words, _score(gain), sure=column.is_list and self._are_many(given))

    def _sorted(self, column: CodedColumn, table: CrossTable) -> Leak | None:
        """Detect values that a few thresholds divide into the classes."""
        score = table.recall(table.neighbored())
        if score < _SORTED or (column.is_text and column.different <= _CATEGORIES):
            return None
        changes = int(np.count_nonzero(np.diff(table.ruling())))
        if changes > max(2 * len(self._rows), _CHANGES * column.different):
            return None  # each value belongs to one class, without an order
        words = (
            f"in its order, the class changes only {changes:,} time{'s' * (changes != 1)} in {len(self._labels):,} rows"
        )
        if column.is_time or _identifies(column):
            return Leak(words, score)
        return Leak(words, score, sure=False) if len(self._labels) >= _ASKED_ROWS and not column.is_text else None

    def _divided(self, column: CodedColumn, table: CrossTable) -> Leak | None:
        """Detect a threshold that separates one class from the others."""
        if (column.is_text and not column.is_time) or len(self._labels) < _ASKED_ROWS:
            return None
        gain, value, of_class, is_below = table.divided()
        if gain < _PURE or not self._are_many([of_class]):
            return None
        has = np.zeros(len(self._labels), bool)
        has[column.present] = column.numbers <= value if is_below else column.numbers >= value
        limit = f"below {column.shown(value + 1)}" if is_below else f"at least {column.shown(value)}"
        return Leak(f"it is {limit} {self._shares(has, of_class)}", _score(gain), sure=False)

    def _partly_filled(self, column: CodedColumn) -> Leak | None:
        """Detect cells that are filled in part of one class and in no other class."""
        filled = np.bincount(self._labels[column.present], minlength=len(self._rows))
        one = int(filled.argmax())
        pure = filled[one] >= _NEARLY_ALL * filled.sum()
        chance = (self._rows[one] / self._rows.sum()) ** filled.sum()
        if not pure or chance > _CHANCE or filled[one] < _PART * self._rows[one]:
            return None
        words = f"it is filled {self._shares(column.present, one)}"
        return Leak(words, float(filled[one] / self._rows[one]), sure=False)

    def _shares(self, has: npt.NDArray[np.bool_], of_class: int) -> str:
        mine, name = self._labels == of_class, self._label.shown(of_class)
        within, outside = float(has[mine].mean()), float(has[~mine].mean())
        number = "" if self._are_many([of_class]) else f"{self._rows[of_class]:,} "
        return f"in {within:.1%} of the {number}rows of {name} and in {outside:.1%} of the others"


class _Quantity:
    """Detector of columns that give a quantity away."""

    def __init__(self, label: CodedColumn) -> None:
        self._label, self._values = label, label.quantities()

    def leak_of(self, column: CodedColumn) -> Leak | None:
        if self._values is None or column.is_list or 2 * np.count_nonzero(column.present) < len(column.present):
            return None
        given, wanted = column.quantities(), self._values[column.present]
        if given is None or np.isnan(given).any() or not np.isfinite(given).all():
            return None
        if np.isclose(given, wanted, rtol=1e-5, atol=1e-6 * float(wanted.std())).mean() >= _NEARLY_ALL:
            return Leak("it equals the label", 1.0)
        orders = self._label.numbers[column.present]
        if min(column.different, len(np.unique(orders))) <= _CATEGORIES:
            return None  # two counts are naturally related, such as rooms and a price per room
        fit = _r_squared(given, wanted)
        if fit >= _LINEAR:
            slope, offset = np.polyfit(wanted, given, 1)
            none = abs(offset) < _ROUNDED * abs(slope) * float(wanted.std())
            if none and abs(slope - 1) < _ROUNDED:
                return Leak("it equals the label apart from rounding", fit)
            return Leak(f"it is the label x {slope:.4g}" + ("" if none else f" {offset:+.4g}"), fit)
        ranks = np.unique(orders, return_inverse=True)[1].reshape(-1)
        fit = _r_squared(column.numbers, ranks)
        if fit >= _LINEAR:
            return Leak("it orders the rows exactly like the label", fit)
        near = smooth(column.numbers, ranks.astype(np.float64))
        words = "rows that are neighbors in its order have nearly the same label"
        return Leak(words, near, sure=False) if near >= _SMOOTH and len(ranks) >= _ASKED_ROWS else None


def _r_squared(one: npt.NDArray[np.generic], other: npt.NDArray[np.generic]) -> float:
    a, b = (values.astype(np.float64) - values.astype(np.float64).mean() for values in (one, other))
    spread = float((a * a).sum() * (b * b).sum())
    return float((a * b).sum()) ** 2 / spread if spread else 0.0


def _identifies(column: CodedColumn) -> bool:
    """Return whether each row has a distinct identifying value, judged by name, order, or density of the values.

    Random numbers of the same range would collide.
    """
    rows = len(column.numbers)
    if column.different < rows:
        return False
    steps, values = np.diff(column.numbers), column.values
    named = re.search(r"(^|[_\W])(id|nr|no|key|index|row|uuid)$", column.name.lower())
    if named or (steps > 0).all() or (steps < 0).all():
        return True
    if column.is_text or values.dtype != np.int64:
        return False
    span = float(values.max()) - float(values.min()) + 1
    return rows * rows / (2 * span) >= _COLLISIONS


def _surest(findings: Iterable[Leak | None]) -> Leak | None:
    """Return the first certain finding, or else the first one."""
    unsure: Leak | None = None
    for leak in findings:
        if leak and leak.sure:
            return leak
        unsure = unsure or leak
    return unsure


def _and_others(classes: Sequence[int]) -> str:
    return f", and another value for each of {len(classes) - 1:,} other classes" if len(classes) > 2 else ""


def _score(gain: float) -> float:
    """Convert Youden's J to the balanced accuracy of a yes-or-no question."""
    return (1 + gain) / 2
