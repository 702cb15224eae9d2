"""Decode serialized tf.Examples to Arrow columns, all records at once: the inverse of `encode`.

Each step reads the next feature of many records with NumPy. Short features are read at once, others field by field.
Only records in canonical form are supported. Records with unpacked numbers, repeated features or unknown fields are
valid but rare: `decode` first rewrites them one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.dataset.arrow_numbers import from_numbers, to_numbers
from infeed.components.dataset.decode import rewrite_example
from infeed.components.dataset.feature_layouts import (
    FIELD_1,
    FIELD_2,
    MORE,
    NO_KIND,
    RARE,
    VALUE_HEAD,
    Bytes,
    Ints,
    Mask,
    usual_layouts,
    words_at,
)
from infeed.components.dataset.manifest import ColumnType
from infeed.components.dataset.record_blocks import PADDING, RecordBlock
from infeed.components.dataset.records import from_offsets, item_places

_KINDS: dict[int, ColumnType] = {0x0A: "bytes", 0x12: "float", 0x1A: "int"}
_TYPES = {"bytes": pa.large_binary(), "float": pa.float32(), "int": pa.int64()}
_LENGTH_BYTES = 5  # longest varint of a length, since protobuf messages are below 2 GiB
_VARINT_BYTES = 10
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


def decode_columns(records: Sequence[bytes] | RecordBlock, wanted: Container[str] | None = None) -> dict[str, pa.Array]:
    """Return a column of lists for each `wanted` feature, sorted by name. A row without the feature is null.

    Features without a kind are skipped, because they have no values. Raises ValueError if a record is not a tf.Example,
    or a feature has two types.
    """
    block = records if isinstance(records, RecordBlock) else RecordBlock.of(list(records))
    plain = np.ones(len(block), bool)
    # Removing a non-canonical record can uncover another in the rest, so repeat until all rows decode.
    while True:
        rows = np.flatnonzero(plain)
        columns, unknown = _decode_together(block, rows, wanted)
        if not len(unknown):
            break
        plain[rows[unknown]] = False
    if not plain.all():
        others = np.flatnonzero(~plain)
        usual = RecordBlock.of([rewrite_example(record) for record in block.payloads(others)])
        rewritten, unknown = _decode_together(usual, np.arange(len(others)), wanted)
        assert not len(unknown), "rewritten records are canonical"
        parts, order = ((columns, len(rows)), (rewritten, len(others))), np.argsort(np.concatenate([rows, others]))
        columns = {}
        for name in {name for part, _ in parts for name in part}:
            kinds = {part[name].type for part, _ in parts if name in part}
            if len(kinds) > 1:
                shown = " and ".join(kind for kind, item in _TYPES.items() if pa.large_list(item) in kinds)
                raise ValueError(f"feature {name!r} is {shown}")
            [kind] = kinds
            arrays = [part.get(name, pa.nulls(count, kind)) for part, count in parts]
            columns[name] = pa.concat_arrays(arrays).take(from_numbers(order))
    return dict(sorted(columns.items()))


@dataclass(frozen=True)
class _Spans:
    """Byte ranges in the buffer, int64 [n] each: the rows in ascending order, and the start and end offset of each."""

    rows: Ints
    starts: Ints
    stops: Ints

    def where(self, chosen: Mask) -> _Spans:
        return self if chosen.all() else _Spans(self.rows[chosen], self.starts[chosen], self.stops[chosen])

    @staticmethod
    def merged(parts: Sequence[_Spans]) -> _Spans:
        """Return all ranges, sorted by row, and within a row by part."""
        rows = np.concatenate([part.rows for part in parts])
        order = np.argsort(rows, kind="stable")
        starts, stops = (
            np.concatenate(found)[order] for found in zip(*((p.starts, p.stops) for p in parts), strict=True)
        )
        return _Spans(rows[order], starts, stops)


@dataclass(frozen=True)
class _Feature:
    """Positions of the features of one name.

    `tag` is the tag of their kind if all are short, NO_KIND if they have no kind, and None if the tag must be read.
    """

    spans: _Spans
    tag: int | None


def _decode_together(block: RecordBlock, rows: Ints, wanted: Container[str] | None) -> tuple[dict[str, pa.Array], Ints]:
    """Return the columns of these rows, and the non-canonical rows. If there are any, the columns are invalid."""
    data = np.frombuffer(block.data, np.uint8)
    features, unknown = _features(data, _Spans(np.arange(len(rows)), block.starts[rows], block.stops[rows]))
    if len(unknown):
        return {}, unknown
    columns = {}
    for name, spans in features.items():
        if wanted is not None and name.decode() not in wanted:
            continue
        found = _column(data, name.decode(), spans, len(rows))
        if isinstance(found, pa.Array):
            columns[name.decode()] = found
        else:
            unknown = np.union1d(unknown, found)
    return columns, unknown


def _features(data: Bytes, records: _Spans) -> tuple[dict[bytes, _Feature], Ints]:
    """Return the values of each feature, and the rows that are not canonical.

    Each step reads the next feature of those records whose next feature is short and has the usual name. If such
    records are few, it reads all. A record without a feature thus waits until the others have read it.
    """
    at, stops, known = _field(data, FIELD_1, records.starts, records.stops)
    known = (known & (stops == records.stops)) | (records.starts == records.stops)
    rows = np.flatnonzero(known & (records.starts < records.stops) & (at < stops))
    found = defaultdict[bytes, list[_Feature]](list)
    while len(rows):
        entries = _Spans(rows, at[rows], stops[rows])
        parts = _short_features(data, entries)
        if RARE * sum(len(part.spans.rows) for _, part in parts) < len(rows):
            parts, invalid = _any_features(data, entries)
            known[invalid] = False
        for name, part in parts:
            found[name].append(part)
            at[part.spans.rows] = part.spans.stops
        rows = rows[known[rows] & (at[rows] < stops[rows])]
    joined, unknown = dict[bytes, _Feature](), [np.flatnonzero(~known)]
    for name, features in found.items():
        joined[name] = features[0]
        if len(features) > 1:
            tags, spans = {part.tag for part in features} - {NO_KIND}, _Spans.merged([part.spans for part in features])
            joined[name] = _Feature(spans, tags.pop() if len(tags) == 1 else None)
            unknown.append(spans.rows[1:][np.diff(spans.rows) == 0])  # rows that repeat the feature
    return joined, np.unique(np.concatenate(unknown))


def _short_features(data: Bytes, entries: _Spans) -> _ByName:
    """Return the short features of the usual name at these positions."""
    found = _ByName()
    for layout in usual_layouts(data, entries.starts):
        same, stops = layout.find(data, entries.starts, entries.stops)
        features = _Spans(entries.rows, entries.starts + layout.head, stops).where(same)
        found.append((layout.name, _Feature(features, layout.tag)))
        if same.all():
            break
        entries = entries.where(~same)
    return found


def _any_features(data: Bytes, entries: _Spans) -> tuple[_ByName, Ints]:
    """Return the features by name, and the rows whose entry is not canonical."""
    start, stop, is_entry = _field(data, FIELD_1, entries.starts, entries.stops)
    key, key_stop, has_key = _field(data, FIELD_1, start, stop)
    feature, feature_stop, has_feature = _field(data, FIELD_2, key_stop, stop)
    valid = is_entry & has_key & has_feature & (feature_stop == stop)
    features = _Spans(entries.rows, feature, feature_stop).where(valid)
    if not valid.any():
        return [], entries.rows
    names = _binary(data, key[valid], key_stop[valid])
    if pc.all(pc.equal(names, names[0])).as_py():
        return [(names[0].as_py(), _Feature(features, None))], entries.rows[~valid]
    numbered = names.dictionary_encode()
    which = to_numbers(numbered.indices)
    parts = (_Feature(features.where(which == place), None) for place in range(len(numbered.dictionary)))
    return list(zip(numbered.dictionary.to_pylist(), parts, strict=True)), entries.rows[~valid]


def _column(data: Bytes, name: str, feature: _Feature, rows: int) -> pa.Array | Ints:
    """Return lists [rows], or the rows that are not canonical."""
    some = feature.spans.where(feature.spans.starts < feature.spans.stops)  # without a kind it has no bytes
    if not len(some.rows):
        return np.empty(0, np.int64)
    tags = [feature.tag] if feature.tag is not None else np.unique(data[some.starts]).tolist()
    kinds = [_KINDS[tag] for tag in tags if tag in _KINDS]
    if len(kinds) > 1:
        raise ValueError(f"feature {name!r} is {' and '.join(kinds)}")
    if len(kinds) < len(tags):
        return some.rows[[tag not in _KINDS for tag in data[some.starts]]]
    if feature.tag is not None:
        counts, values, known = _contents(data, kinds[0], some.starts + VALUE_HEAD, some.stops)
    else:
        start, stop, fits = _field(data, tags[0], some.starts, some.stops)
        fits &= stop == some.stops
        if not fits.all():
            return some.rows[~fits]
        counts, values, known = _values(data, kinds[0], _Spans(some.rows, start, stop))
    return _lists(values, counts, some.rows, rows) if known.all() else some.rows[~known]


def _values(data: Bytes, kind: ColumnType, lists: _Spans) -> _Values:
    if kind == "bytes":
        return _byte_values(data, lists)
    filled = lists.starts < lists.stops
    start, stop, known = _field(data, FIELD_1, lists.starts, lists.stops)
    start, stop = np.where(filled, start, lists.stops), np.where(filled, stop, lists.stops)
    known = ~filled | (known & (stop == lists.stops))
    return _contents(data, kind, start, stop) if known.all() else (lists.rows, pa.nulls(0), known)


def _contents(data: Bytes, kind: ColumnType, starts: Ints, stops: Ints) -> _Values:
    """Return the values of packed lists, or of lists of one byte string each."""
    if kind == "bytes":
        return np.ones(len(starts), np.int64), _binary(data, starts, stops), np.ones(len(starts), bool)
    if kind == "int":
        return _varints(data, starts, stops)
    counts = (stops - starts) // 4
    whole = counts * 4 == stops - starts
    values = words_at(data, "<f4")[item_places(starts, counts, 4)]
    return counts, from_numbers(values.astype(np.float32, copy=False)), whole


def _varints(data: Bytes, starts: Ints, stops: Ints) -> _Values:
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


def _byte_values(data: Bytes, lists: _Spans) -> _Values:
    known, at = np.ones(len(lists.rows), bool), lists.starts.copy()
    places, parts = np.flatnonzero(lists.starts < lists.stops), list[_Spans]()
    while len(places):
        start, stop, fits = _field(data, FIELD_1, at[places], lists.stops[places])
        known[places[~fits]] = False
        parts.append(_Spans(places[fits], start[fits], stop[fits]))
        at[places] = stop
        places = places[fits & (stop < lists.stops[places])]
    if not parts:
        return np.zeros(len(known), np.int64), pa.array([], pa.large_binary()), known
    values = _Spans.merged(parts)
    return np.bincount(values.rows, minlength=len(known)), _binary(data, values.starts, values.stops), known


def _field(data: Bytes, tag: int, at: Ints, limits: Ints) -> tuple[Ints, Ints, Mask]:
    """Return the content range of the length-delimited field at `at`, and whether the field is valid."""
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


def _binary(data: Bytes, starts: Ints, stops: Ints) -> pa.Array:
    """Copy byte ranges with Arrow: every other value of an array that also has the gaps as values."""
    offsets = np.stack([starts, stops], axis=1).reshape(-1)
    return from_offsets(data, offsets).take(from_numbers(np.arange(0, len(offsets), 2)))


def _lists(values: pa.Array, counts: Ints, places: Ints, rows: int) -> pa.Array:
    """Return a list for each row. Rows at `places` get `counts` values; other rows are null."""
    lengths, present = np.zeros(rows, np.int64), np.zeros(rows, bool)
    lengths[places], present[places] = counts, True
    offsets = pa.py_buffer(np.concatenate([[0], np.cumsum(lengths)]))
    valid = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(pa.large_list(values.type), rows, [valid, offsets], children=[values])


_ByName = list[tuple[bytes, _Feature]]
_Values = tuple[Ints, pa.Array, Mask]  # number of values of each list, all values, and which lists are canonical
