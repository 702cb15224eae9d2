"""Values of features in a buffer of records, by their positions: lists of numbers, bytes or messages.

Only lists in canonical form are supported: packed numbers, and one field for each byte string or message.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from infeed.components.dataset.arrow_numbers import from_numbers
from infeed.components.dataset.feature_layouts import FIELD_1, MORE, Bytes, Ints, Mask, words_at
from infeed.components.dataset.manifest import ColumnType
from infeed.components.dataset.record_blocks import PADDING
from infeed.components.dataset.records import from_offsets, item_places

_LENGTH_BYTES = 5  # longest varint of a length, since protobuf messages are below 2 GiB
_VARINT_BYTES = 10
_FEW = 64  # lists; NumPy takes longer to read an element of each than Python
_WIDTH = 8  # bytes compared at once
# Masks of the lowest bytes of a number.
_ONES = np.array([(1 << 8 * size) - 1 for size in range(_WIDTH + 1)], np.uint64)
_MORES = np.array([sum(MORE << 8 * place for place in range(size - 1)) for size in range(_WIDTH + 1)], np.uint64)
_MORE_OF_EACH = np.uint64(0x8080808080808080)
# (shift of the upper half of each pair, mask of the lower half)
_FOLDS = [
    (np.uint64(1), np.uint64(0x007F007F007F007F)),
    (np.uint64(2), np.uint64(0x00003FFF00003FFF)),
    (np.uint64(4), np.uint64(0x000000000FFFFFFF)),
]
Values = tuple[Ints, pa.Array, Mask]  # number of values of each list, all values, and which lists are canonical


@dataclass(frozen=True)
class ByteSpans:
    """Byte ranges in the buffer, int64 [n] each: the rows in ascending order, and the start and end offset of each."""

    rows: Ints
    starts: Ints
    stops: Ints

    def where(self, chosen: Mask) -> ByteSpans:
        return self if chosen.all() else ByteSpans(self.rows[chosen], self.starts[chosen], self.stops[chosen])

    @staticmethod
    def merged(parts: Sequence[ByteSpans]) -> ByteSpans:
        """Return all ranges, sorted by row, and within a row by part."""
        rows = np.concatenate([part.rows for part in parts])
        order = np.argsort(rows, kind="stable")
        starts, stops = (
            np.concatenate(found)[order] for found in zip(*((p.starts, p.stops) for p in parts), strict=True)
        )
        return ByteSpans(rows[order], starts, stops)


def values_of(data: Bytes, kind: ColumnType, lists: ByteSpans) -> Values:
    if kind == "bytes":
        found, counts, known = elements_of(data, lists)
        items = binary_of(data, found.starts, found.stops) if len(found.rows) else pa.array([], pa.large_binary())
        return counts, items, known
    filled = lists.starts < lists.stops
    start, stop, known = field_at(data, FIELD_1, lists.starts, lists.stops)
    start, stop = np.where(filled, start, lists.stops), np.where(filled, stop, lists.stops)
    known = ~filled | (known & (stop == lists.stops))
    return contents_of(data, kind, start, stop) if known.all() else (lists.rows, pa.nulls(0), known)


def contents_of(data: Bytes, kind: ColumnType, starts: Ints, stops: Ints) -> Values:
    """Return the values of packed lists, or of lists of one byte string each."""
    if kind == "bytes":
        return np.ones(len(starts), np.int64), binary_of(data, starts, stops), np.ones(len(starts), bool)
    if kind == "int":
        return _varints(data, starts, stops)
    counts = (stops - starts) // 4
    whole = counts * 4 == stops - starts
    values = words_at(data, "<f4")[item_places(starts, counts, 4)]
    return counts, from_numbers(values.astype(np.float32, copy=False)), whole


def _varints(data: Bytes, starts: Ints, stops: Ints) -> Values:
    single = _single_varints(data, starts, stops - starts)
    if single is not None:
        return np.ones(len(starts), np.int64), from_numbers(single), np.ones(len(starts), bool)
    coded = data[item_places(starts, stops - starts)]
    ends = np.flatnonzero(coded < MORE)
    sizes = np.diff(ends, prepend=-1)
    cuts = np.cumsum(stops - starts)
    upto = np.concatenate([[0], np.searchsorted(ends, cuts - 1, side="right")])
    whole = (stops == starts) | (data[np.maximum(stops - 1, 0)] < MORE)
    # Arrays cannot show which record is wrong, so hand such rows to the decoder of single records.
    if sizes.max(initial=0) > _VARINT_BYTES or not whole.all():
        return np.diff(upto), pa.nulls(0), np.zeros(len(starts), bool)
    values = np.zeros(len(ends), np.uint64)
    for place in range(int(sizes.max(initial=0))):
        longer = np.flatnonzero(sizes > place)
        part = coded[ends[longer] - sizes[longer] + 1 + place] & np.uint8(MORE - 1)
        values[longer] |= part.astype(np.uint64) << np.uint64(7 * place)
    return np.diff(upto), from_numbers(values.view(np.int64)), whole


def _single_varints(data: Bytes, starts: Ints, sizes: Ints) -> Ints | None:
    """Decode lists of one number of at most eight bytes each: int64 [n]. Returns None for any other lists.

    The seven payload bits of the bytes are merged in three steps: pairs, fours, all eight.
    """
    if sizes.min(initial=1) < 1 or sizes.max(initial=1) > _WIDTH:
        return None
    found = words_at(data, "<u8")[starts] & _ONES[sizes]
    if ((found & _MORE_OF_EACH) != _MORES[sizes]).any():
        return None
    found ^= _MORES[sizes]
    for gap, low in _FOLDS:
        lower = found & low
        found = lower | ((found ^ lower) >> gap)
    values: Ints = found.view(np.int64)
    return values


def elements_of(data: Bytes, lists: ByteSpans) -> tuple[ByteSpans, Ints, Mask]:
    """Return the elements of all lists, with the number of their list as the row.

    Also returns the number of elements of each list, and which lists are canonical.
    """
    known, at = np.ones(len(lists.rows), bool), lists.starts.copy()
    none = np.empty(0, np.int64)
    places, parts = np.flatnonzero(lists.starts < lists.stops), [ByteSpans(none, none, none)]
    while len(places) > _FEW:
        start, stop, fits = field_at(data, FIELD_1, at[places], lists.stops[places])
        known[places[~fits]] = False
        parts.append(ByteSpans(places[fits], start[fits], stop[fits]))
        at[places] = stop
        places = places[fits & (stop < lists.stops[places])]
    for place in places.tolist():
        part, known[place] = _elements_one_by_one(data, place, int(at[place]), int(lists.stops[place]))
        parts.append(part)
    elements = ByteSpans.merged(parts)
    return elements, np.bincount(elements.rows, minlength=len(known)), known


def _elements_one_by_one(data: Bytes, row: int, at: int, stop: int) -> tuple[ByteSpans, bool]:
    """Return the elements of the rest of a list, and whether it is canonical."""
    found, view = array("q"), data.data
    while at < stop and view[at] == FIELD_1:
        length, start, shift = view[at + 1] & (MORE - 1), at + 2, 7
        while view[start - 1] >= MORE and shift < 7 * _LENGTH_BYTES:
            length |= (view[start] & (MORE - 1)) << shift
            start, shift = start + 1, shift + 7
        if view[start - 1] >= MORE or start + length > stop:
            break
        at = start + length
        found.extend((start, at))
    bounds = np.array(found, np.int64).reshape(-1, 2)
    return ByteSpans(np.full(len(bounds), row), bounds[:, 0], bounds[:, 1]), at == stop


def field_at(data: Bytes, tag: int | Bytes, at: Ints, limits: Ints) -> tuple[Ints, Ints, Mask]:
    """Return the content range of the length-delimited field at `at`, and whether the field is valid.

    `tag` is that of all fields, or uint8 [n].
    """
    at = np.minimum(at, len(data) - len(PADDING))
    heads = words_at(data, "<u2")[at]  # the tag and the first byte of the length
    if ((heads & (MORE << 8 | 0xFF)) == tag).all():
        start = at + 2
        stops = start + (heads >> 8)
        return start, stops, stops <= limits
    fits = (heads.astype(np.uint8) == tag) & (at < limits)
    byte = (heads >> 8).astype(np.int64)
    length, start = byte & (MORE - 1), at + 2
    longer = np.flatnonzero(byte >= MORE)
    for place in range(1, _LENGTH_BYTES):
        if not len(longer):
            break
        byte = data[start[longer]].astype(np.int64)
        length[longer] |= (byte & (MORE - 1)) << (7 * place)
        start[longer] += 1
        longer = longer[byte >= MORE]
    fits[longer] = False
    stops = start + length
    return start, stops, fits & (stops <= limits)


def binary_of(data: Bytes, starts: Ints, stops: Ints) -> pa.Array:
    """Copy byte ranges with Arrow: every other value of an array that also has the gaps as values."""
    offsets = np.stack([starts, stops], axis=1).reshape(-1)
    return from_offsets(data, offsets).take(from_numbers(np.arange(0, len(offsets), 2)))


def list_column(values: pa.Array, counts: Ints, places: Ints, rows: int) -> pa.Array:
    """Return a list for each row. Rows at `places` get `counts` values; other rows are null."""
    lengths, present = np.zeros(rows, np.int64), np.zeros(rows, bool)
    lengths[places], present[places] = counts, True
    offsets = pa.py_buffer(np.concatenate([[0], np.cumsum(lengths)]))
    valid = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(pa.large_list(values.type), rows, [valid, offsets], children=[values])
