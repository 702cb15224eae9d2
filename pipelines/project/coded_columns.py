"""Columns with values coded as ranks, the input of the single-column models."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.dataset.statistics.cells import Cells
from infeed.pipelines.surveys import Task

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_NO_NUMBER = r"[^0-9.eE+-]"
_LONGEST = 40  # maximum characters of a value in a message
_SETS = 10  # maximum classes of a set that are looked at


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
