"""Decode serialized tf.Examples and SequenceExamples to Arrow columns, all records at once: the inverse of `encode`.

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
from infeed.components.dataset.example_types import is_list, with_items
from infeed.components.dataset.feature_values import (
    FIELD_1,
    FIELD_2,
    NO_KIND,
    RARE,
    VALUE_HEAD,
    Bytes,
    ByteSpans,
    Ints,
    binary_of,
    contents_of,
    elements_of,
    field_at,
    list_column,
    usual_layouts,
    values_of,
)
from infeed.components.dataset.manifest import ColumnType
from infeed.components.dataset.record_blocks import RecordBlock

LISTS = "feature_lists/"  # begins the names of the columns of feature lists
_KINDS: dict[int, ColumnType] = {0x0A: "bytes", 0x12: "float", 0x1A: "int"}
_TYPES = {"bytes": pa.large_binary(), "float": pa.float32(), "int": pa.int64()}


def decode_columns(
    records: Sequence[bytes] | RecordBlock, wanted: Container[str] | None = None, *, sequence: bool = False
) -> dict[str, pa.Array]:
    """Return a column of lists for each `wanted` feature, sorted by name. A row without the feature is null.

    Features without a kind are skipped, because they have no values. With `sequence`, the records may be
    SequenceExamples. A feature list is a column of lists of lists, a list for each step, of nulls if no step has a
    kind. Its name begins with `feature_lists/`. Raises ValueError if a record is neither, or a feature has two types.
    """
    block = records if isinstance(records, RecordBlock) else RecordBlock.of(list(records))
    plain = np.ones(len(block), bool)
    # Removing a non-canonical record can uncover another in the rest, so repeat until all rows decode.
    while True:
        rows = np.flatnonzero(plain)
        columns, unknown = _decode_together(block, rows, wanted, sequence)
        if not len(unknown):
            break
        plain[rows[unknown]] = False
    if not plain.all():
        others = np.flatnonzero(~plain)
        usual = RecordBlock.of([rewrite_example(record, sequence=sequence) for record in block.payloads(others)])
        rewritten, unknown = _decode_together(usual, np.arange(len(others)), wanted, sequence)
        assert not len(unknown), "rewritten records are canonical"
        parts, order = ((columns, len(rows)), (rewritten, len(others))), np.argsort(np.concatenate([rows, others]))
        columns = {}
        for name in {name for part, _ in parts for name in part}:
            kind = _common_type(name, {part[name].type for part, _ in parts if name in part})
            arrays = [_typed(part[name], kind) if name in part else pa.nulls(count, kind) for part, count in parts]
            columns[name] = pa.concat_arrays(arrays).take(from_numbers(order))
    return dict(sorted(columns.items()))


def clash(name: str) -> str:
    """Return the error of a feature that has the name of the column of a feature list."""
    return f"feature {name!r} has the name of a column of feature lists"


def _common_type(name: str, types: set[pa.DataType]) -> pa.DataType:
    """Return the type of a column. Raises ValueError if there are two, apart from lists of nulls."""
    if len({is_list(kind.value_type) for kind in types}) > 1:
        raise ValueError(clash(name))
    others = types - {_NO_VALUES} or types
    if len(others) > 1:
        shown = " and ".join(kind for kind, item in _TYPES.items() if {pa.large_list(item), _list_type(item)} & others)
        raise ValueError(f"feature {name!r} is {shown}")
    return others.pop()


def _list_type(item: pa.DataType) -> pa.DataType:
    """Return the type of a column of feature lists."""
    return pa.large_list(pa.large_list(item))


_NO_VALUES = _list_type(pa.null())  # of feature lists without a kind


def _typed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return lists of nulls, which have no values, as lists of another type."""
    if column.type == kind:
        return column
    empty = pa.array([], kind.value_type.value_type)
    return with_items(column, lambda steps: with_items(steps, lambda _: empty, kind.value_type), kind)


@dataclass(frozen=True)
class _Feature:
    """Positions of the features of one name.

    `tag` is the tag of their kind if all are short, NO_KIND if they have no kind, and None if the tag must be read.
    """

    spans: ByteSpans
    tag: int | None


def _decode_together(block: RecordBlock, rows: Ints, wanted: Container[str] | None, sequence: bool) -> _Columns:
    """Return the columns of these rows, and the non-canonical rows. If there are any, the columns are invalid."""
    data = np.frombuffer(block.data, np.uint8)
    features, lists, unknown = _fields(data, ByteSpans(np.arange(len(rows)), block.starts[rows], block.stops[rows]))
    if not sequence:  # the decoder of single records raises the error of rows with feature lists
        unknown = np.union1d(unknown, np.flatnonzero(lists.starts > features.stops))
    if len(unknown):
        return {}, unknown
    columns, unknown = _feature_columns(data, features, wanted)
    if sequence and (lists.starts < lists.stops).any():
        list_columns, others = _list_columns(data, lists, wanted)
        if doubled := columns.keys() & list_columns.keys():
            raise ValueError(clash(min(doubled)))
        columns, unknown = columns | list_columns, np.union1d(unknown, others)
    return columns, unknown


def _fields(data: Bytes, records: ByteSpans) -> tuple[ByteSpans, ByteSpans, Ints]:
    """Return the features and the feature lists of all records, and the rows that are not canonical.

    A record without a field has an empty range.
    """
    starts, stops, found = field_at(data, FIELD_1, records.starts, records.stops)
    starts, stops = np.where(found, starts, records.starts), np.where(found, stops, records.starts)
    list_starts = list_stops = stops
    if (stops < records.stops).any():
        list_starts, list_stops, found = field_at(data, FIELD_2, stops, records.stops)
        list_starts, list_stops = np.where(found, list_starts, stops), np.where(found, list_stops, stops)
    features, lists = (ByteSpans(records.rows, *some) for some in ((starts, stops), (list_starts, list_stops)))
    return features, lists, np.flatnonzero(list_stops != records.stops)


def _feature_columns(
    data: Bytes, records: ByteSpans, wanted: Container[str] | None
) -> tuple[dict[str, pa.Array], Ints]:
    """Return a column of lists for each feature, and the rows that are not canonical."""
    features, unknown = _features(data, records)
    if len(unknown):  # a repeated feature may have another type, which does not count
        return {}, unknown
    columns = {}
    for name, spans in features.items():
        if wanted is not None and name.decode() not in wanted:
            continue
        found = _column(data, name.decode(), spans, len(records.rows))
        if isinstance(found, pa.Array):
            columns[name.decode()] = found
        else:
            unknown = np.union1d(unknown, found)
    return columns, unknown


def _list_columns(data: Bytes, records: ByteSpans, wanted: Container[str] | None) -> _Columns:
    """Return a column of lists of lists for each feature list, and the rows that are not canonical."""
    features, unknown = _features(data, records)  # the map of feature lists has the format of the map of features
    if len(unknown):
        return {}, unknown
    columns = {}
    for name, lists in features.items():
        full = LISTS + name.decode()
        if wanted is not None and full not in wanted:
            continue
        steps, counts, known = elements_of(data, lists.spans)
        count = len(steps.rows)
        found = _column(data, full, _Feature(ByteSpans(np.arange(count), steps.starts, steps.stops), None), count)
        if not isinstance(found, pa.Array):
            known[steps.rows[found]] = False
            found = list_column(pa.nulls(0), np.zeros(count, np.int64), np.arange(count), count)
        columns[full] = list_column(found, counts, lists.spans.rows, len(records.rows))
        unknown = np.union1d(unknown, lists.spans.rows[~known])
    return columns, unknown


def _features(data: Bytes, records: ByteSpans) -> tuple[dict[bytes, _Feature], Ints]:
    """Return the values of each feature, and the rows that are not canonical.

    Each step reads the next feature of those records whose next feature is short and has the usual name. If such
    records are few, it reads all. A record without a feature thus waits until the others have read it.
    """
    at, stops, known = records.starts.copy(), records.stops, np.ones(len(records.rows), bool)
    rows = np.flatnonzero(at < stops)
    found = defaultdict[bytes, list[_Feature]](list)
    while len(rows):
        entries = ByteSpans(rows, at[rows], stops[rows])
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
            tags = {part.tag for part in features} - {NO_KIND}
            spans = ByteSpans.merged([part.spans for part in features])
            joined[name] = _Feature(spans, tags.pop() if len(tags) == 1 else None)
            unknown.append(spans.rows[1:][np.diff(spans.rows) == 0])  # rows that repeat the feature
    return joined, np.unique(np.concatenate(unknown))


def _short_features(data: Bytes, entries: ByteSpans) -> _ByName:
    """Return the short features of the usual name at these positions."""
    found = _ByName()
    for layout in usual_layouts(data, entries.starts):
        same, stops = layout.find(data, entries.starts, entries.stops)
        features = ByteSpans(entries.rows, entries.starts + layout.head, stops).where(same)
        found.append((layout.name, _Feature(features, layout.tag)))
        if same.all():
            break
        entries = entries.where(~same)
    return found


def _any_features(data: Bytes, entries: ByteSpans) -> tuple[_ByName, Ints]:
    """Return the features by name, and the rows whose entry is not canonical."""
    start, stop, is_entry = field_at(data, FIELD_1, entries.starts, entries.stops)
    key, key_stop, has_key = field_at(data, FIELD_1, start, stop)
    feature, feature_stop, has_feature = field_at(data, FIELD_2, key_stop, stop)
    valid = is_entry & has_key & has_feature & (feature_stop == stop)
    features = ByteSpans(entries.rows, feature, feature_stop).where(valid)
    if not valid.any():
        return [], entries.rows
    names = binary_of(data, key[valid], key_stop[valid])
    # Writers usually write each row's features in one order, which spares the dictionary.
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
        _, stop, fits = field_at(data, data[some.starts], some.starts, some.stops)
        if len(others := some.rows[~fits | (stop < some.stops)]):  # their last field has the type
            return others
        raise ValueError(f"feature {name!r} is {' and '.join(kinds)}")
    if len(kinds) < len(tags):
        return some.rows[[tag not in _KINDS for tag in data[some.starts]]]
    if feature.tag is not None:
        counts, values, known = contents_of(data, kinds[0], some.starts + VALUE_HEAD, some.stops)
    else:
        start, stop, fits = field_at(data, tags[0], some.starts, some.stops)
        fits &= stop == some.stops
        if not fits.all():
            return some.rows[~fits]
        counts, values, known = values_of(data, kinds[0], ByteSpans(some.rows, start, stop))
    return list_column(values, counts, some.rows, rows) if known.all() else some.rows[~known]


_Columns = tuple[dict[str, pa.Array], Ints]  # columns, and rows that are not canonical
_ByName = list[tuple[bytes, _Feature]]
