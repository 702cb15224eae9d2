"""Features in a buffer of records, by their positions: short ones by their bytes, and the values of all.

Only values in canonical form are supported: packed numbers, and one field for each byte string or message.

A feature that holds one value, or one packed list, is an entry of the map of features:

    0A e  0A k name  12 v  kind s  0A n  value

`kind` is the tag of its kind. The lengths of the name and the value determine all other lengths. If the value is
short, each length takes one byte, and only these lengths vary before the value. The prefixes of all records are
compared at once, eight bytes at a time.
"""

from __future__ import annotations

import functools
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.dataset.arrow_numbers import from_numbers
from infeed.components.dataset.manifest import ColumnType
from infeed.components.dataset.record_blocks import PADDING
from infeed.components.dataset.records import from_offsets, item_places

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
NO_KIND = 0  # for the tag of a feature without a kind, which has no bytes
FIELD_1, FIELD_2 = 0x0A, 0x12  # tags of length-delimited fields
MORE = 0x80  # continuation bit of a varint
VALUE_HEAD = 4  # bytes of a feature before its value
_SAMPLE = 8  # entries whose names are read
RARE = 3  # a layout is useful if at least one in this many entries has it


@dataclass(frozen=True)
class FeatureLayout:
    """Byte layout of a short feature of one name and kind."""

    name: bytes
    tag: int  # of the kind, or NO_KIND
    least: int  # length `e` of the entry if the value is empty
    head: int  # bytes of the entry before the feature
    # Offset, mask of the compared bytes, their values if the value is empty, and a 1 at each length.
    words: tuple[tuple[int, np.uint64, np.uint64, np.uint64], ...]

    @classmethod
    @functools.lru_cache(1 << 12)
    def of(cls, name: bytes, tag: int) -> FeatureLayout:
        kind = b"" if tag == NO_KIND else bytes([tag, 2, FIELD_1, 0])
        rest = bytes([FIELD_1, len(name), *name, FIELD_2, len(kind)])
        empty = bytes([FIELD_1, len(rest) + len(kind)]) + rest + kind
        ones = bytearray(len(empty))
        for place in (1, -1, -3, -5) if kind else ():
            ones[place] = 1
        words = tuple(
            (
                place,
                np.uint64((1 << 8 * len(empty[place : place + _WIDTH])) - 1),
                _word(empty, place),
                _word(ones, place),
            )
            for place in range(0, len(empty), _WIDTH)
        )
        return cls(name, tag, len(rest) + len(kind), 2 + len(rest), words)

    def find(self, data: Bytes, starts: Ints, limits: Ints) -> tuple[Mask, Ints]:
        """Return whether the entry at each offset has this layout, and its end offset if so."""
        lengths = data[starts + 1]
        ends = starts + lengths + 2
        # Size of the values. A shorter entry wraps around, and is not below MORE.
        sizes = lengths - np.uint64(self.least)
        found = (sizes < MORE - self.least) & (ends <= limits)
        for place, mask, wanted, ones in self.words:
            words = words_at(data, "<u8")[np.minimum(starts + place, len(data) - _WIDTH)]
            found &= ((words - sizes * ones if ones else words) & mask) == wanted
        return found, ends


def usual_layouts(data: Bytes, starts: Ints) -> list[FeatureLayout]:
    """Return the most likely layouts of short features of the name, judged by a sample of the entries."""
    some = starts[:: -(-len(starts) // _SAMPLE)].tolist()
    seen = [_name_and_tag(data[at : at + 2 + MORE].tobytes()) for at in some]
    [(name, count), *_] = Counter(found and found[0] for found in seen).most_common(1)
    if name is None or RARE * count < len(some):
        return []
    tags = Counter(found[1] for found in seen if found and found[0] == name)
    return [FeatureLayout.of(name, tag) for tag in dict.fromkeys([*(tag for tag, _ in tags.most_common()), NO_KIND])]


def _name_and_tag(entry: bytes) -> tuple[bytes, int] | None:
    """Return the name and the kind of a short feature, or None for any other."""
    length, size = entry[1], entry[3]
    rest = length - size - 4  # bytes of the feature itself
    if length >= MORE or len(entry) < length + 2 or rest < 0 or entry[5 + size] != rest:
        return None
    tag, *lengths = entry[6 + size : 6 + size + VALUE_HEAD]
    if rest and lengths != [rest - 2, FIELD_1, rest - 4]:
        return None
    return entry[4 : 4 + size], tag if rest else NO_KIND


def words_at(data: Bytes, dtype: str) -> npt.NDArray[Any]:
    """Return the number that starts at each byte offset."""
    width = np.dtype(dtype).itemsize
    words: npt.NDArray[Any] = np.ndarray((len(data) - width + 1,), dtype, data, strides=(1,))
    return words


def _word(data: bytes | bytearray, place: int) -> np.uint64:
    return np.uint64(int.from_bytes(data[place : place + _WIDTH], "little"))


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
