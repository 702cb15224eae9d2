"""Rows of each slice of a batch, by TFMA's rules: by values of columns, combinations, or given values.

Slice keys are TFMA's: ((column, value), ...), sorted by column; () is all rows. A row with several values in a column
is in all of their slices. A row without a value is in none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from infeed.components.base.errors import InfeedError

Ints = npt.NDArray[np.int64]
SliceKey = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Values:
    """Values of a column, [n] of any dtype, concatenated, and the row of each value, int64 [n]."""

    rows: Ints
    values: npt.NDArray[Any]

    @classmethod
    def of(cls, column: npt.NDArray[Any]) -> Values:
        """Return the values of an array [rows, ...]."""
        flat = column.reshape(len(column), -1)
        return cls(np.repeat(np.arange(len(flat)), flat.shape[1]), flat.reshape(-1))

    def joined(self, other: Values) -> Values:
        return Values(np.concatenate([self.rows, other.rows]), np.concatenate([self.values, other.values]))


Lookup = Callable[[str], Values | None]  # column name -> values. None if the batch does not have the column


@dataclass(frozen=True)
class SliceSpec:
    """One of the slicing_specs of an eval config."""

    columns: tuple[str, ...]  # a slice for each value, or combination of values, of these columns
    values: tuple[tuple[str, Any], ...]  # column -> required value

    @classmethod
    def of(cls, spec: Any) -> SliceSpec:
        given = ((name, _typed(value)) for name, value in spec.feature_values.items())
        return cls(tuple(sorted(set(spec.feature_keys))), tuple(sorted(given)))

    def __str__(self) -> str:
        values = [f"{name} = {value!r}" for name, value in self.values]
        return " and ".join([*values, *(f"each value of {name}" for name in self.columns)]) or "all rows"

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.columns, *(name for name, _ in self.values))


def slice_rows(specs: Sequence[SliceSpec], rows: int, lookup: Lookup) -> list[dict[SliceKey, Ints]]:
    """Return, for each spec, the row numbers of each non-empty slice, ascending."""
    coded: dict[str, _Coded | None] = {}
    for name in {name for spec in specs for name in spec.names}:
        values = lookup(name)
        coded[name] = None if values is None else _Coded.of(values, name)
    return [dict(_of_spec(spec, rows, coded)) for spec in specs]


@dataclass(frozen=True)
class _Coded:
    """Distinct pairs of row and index of a value, sorted by row."""

    rows: Ints
    places: Ints
    values: list[Any]

    @classmethod
    def of(cls, column: Values, name: str) -> _Coded:
        found, places = np.unique(column.values, return_inverse=True)
        # A row that has a value several times is in its slice once.
        pairs = np.unique(column.rows * max(len(found), 1) + places.reshape(-1))
        rows, places = np.divmod(pairs, max(len(found), 1))
        return cls(rows, places, [_text(value, name) for value in found.tolist()])

    def rows_with(self, value: Any) -> Ints:
        """Return the rows with a value. As in TFMA, 5 is the number and not the text."""
        same = [place for place, one in enumerate(self.values) if one == value]
        return self.rows[np.isin(self.places, same)]


def _of_spec(spec: SliceSpec, rows: int, coded: dict[str, _Coded | None]) -> list[tuple[SliceKey, Ints]]:
    chosen = np.arange(rows)
    for name, value in spec.values:
        column = coded[name]
        chosen = np.intersect1d(chosen, column.rows_with(value)) if column else chosen[:0]
    crossed: list[tuple[SliceKey, Ints]] = [(spec.values, chosen)]
    for name in spec.columns:
        column = coded[name]
        crossed = _crossed(crossed, name, column) if column else []
    return [(tuple(sorted(key)), inside) for key, inside in crossed if len(inside)]


def _crossed(slices: list[tuple[SliceKey, Ints]], name: str, column: _Coded) -> list[tuple[SliceKey, Ints]]:
    cut: list[tuple[SliceKey, Ints]] = []
    for key, inside in slices:
        there = np.isin(column.rows, inside)
        order = np.argsort(column.places[there], kind="stable")
        places, rows = column.places[there][order], column.rows[there][order]
        found, starts = np.unique(places, return_index=True)
        parts = np.split(rows, starts[1:]) if len(found) else []
        cut.extend(
            ((*key, (name, column.values[place])), part) for place, part in zip(found.tolist(), parts, strict=True)
        )
    return cut


def _typed(value: str) -> Any:
    """Parse a value of an eval config as TFMA does: as a number if it looks like one."""
    try:
        return float(value) if "." in value else int(value)
    except ValueError:
        return value


def _text(value: Any, name: str) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        what = f"a value of column {name!r} is not UTF-8: {value[:40]!r}"
        raise InfeedError(what, where="eval_config.slicing_specs", do="slice by a column of text or numbers") from error
