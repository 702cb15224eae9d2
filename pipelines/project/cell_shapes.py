"""Exact counts of the shapes of text cells, for example `$9,999.99`, over a whole table.

A shape replaces each digit by 9, except leading zeros, as in `0.5` or a code such as 007.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

MOST_SHAPES = 200  # maximum shapes of one column. Numbers of one format have fewer
_MOST_OTHERS = 20  # maximum distinct cells kept that are not numbers
_LONGEST = 40  # maximum bytes of a number with its unit
_MANY = 1_000  # number of cells after which counting of a text column may stop
_NUMBER = "^[^0-9]{0,8}[0-9][0-9., '\u00a0\u2009\u202f\u2019]*[^0-9]{0,16}$"
_SHAPING = (("[\u00a0\u2009\u202f]", " "), ("\u2019", "'"), ("[0-9]", "9"), ("9{4,}", "9999"))


@dataclass(frozen=True)
class CellShapes:
    """Counts of the cells of one text column."""

    # Count and first cell of each shape that may be a number.
    shapes: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    others: Mapping[str, int] = field(default_factory=dict)  # some of the other cells, with counts
    more: int = 0  # number of cells in neither mapping
    given_up: bool = False  # whether counting has stopped, because the column is certainly text

    @property
    def cells(self) -> int:
        """Number of cells that are not missing."""
        return sum(count for count, _ in self.shapes.values()) + sum(self.others.values()) + self.more

    def __add__(self, other: CellShapes) -> CellShapes:
        if self.given_up or other.given_up:
            return CellShapes(given_up=True)
        shapes, others, more = dict(self.shapes), dict(self.others), self.more + other.more
        for shape, (count, example) in other.shapes.items():
            before, first = shapes.get(shape, (0, example))
            shapes[shape] = before + count, first
        for cell, count in other.others.items():
            if cell in others or len(others) < _MOST_OTHERS:
                others[cell] = others.get(cell, 0) + count
            else:
                more += count
        found = CellShapes(shapes, others, more)
        text = found.cells - sum(count for count, _ in shapes.values())
        is_text = found.cells > _MANY and text > found.cells / 2
        return CellShapes(given_up=True) if is_text or len(shapes) > MOST_SHAPES else found


def shapes_of(batch: pa.RecordBatch, but: Iterable[str] = ()) -> dict[str, CellShapes]:
    """Count the shapes of each text column of a batch, except columns in `but`."""
    left_out = set(but)
    return {
        name: _of_column(column)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if name not in left_out and (types.is_string(column.type) or types.is_large_string(column.type))
    }


def _of_column(cells: pa.Array) -> CellShapes:
    counted = pc.value_counts(cells.drop_null())
    values, counts = counted.field(0).cast(pa.string()), counted.field(1)
    short = pc.less_equal(pc.binary_length(values), _LONGEST)
    may_be = pc.and_(short, pc.match_substring_regex(values, _NUMBER))
    how_many = counts.to_numpy()
    number, other = (np.flatnonzero(part.to_numpy(zero_copy_only=False)) for part in (may_be, pc.invert(may_be)))
    kept = other[np.argsort(-how_many[other], kind="stable")][:_MOST_OTHERS]
    others = dict(zip(values.take(pa.array(kept)).to_pylist(), how_many[kept].tolist(), strict=True))
    more = int(how_many[other].sum() - how_many[kept].sum())
    numbers = values.take(pa.array(number))
    shapes = pc.replace_substring_regex(numbers, "^([^0-9]*)0", "\\1\x01")
    for pattern, by in _SHAPING:
        shapes = pc.replace_substring_regex(shapes, pattern, by)
    encoded = pc.replace_substring(shapes, "\x01", "0").dictionary_encode()
    which = encoded.indices.to_numpy()
    _, firsts = np.unique(which, return_index=True)
    sums = np.bincount(which, weights=how_many[number], minlength=len(firsts)).astype(np.int64)
    examples = numbers.take(pa.array(firsts, pa.int64())).to_pylist()
    found = dict(zip(encoded.dictionary.to_pylist(), zip(sums.tolist(), examples, strict=True), strict=True))
    return CellShapes() + CellShapes(found, others, more)  # the addition enforces the bounds
