"""Encode Arrow record batches as serialized tf.Examples, column by column.

Each column becomes the wire bytes of its map entries, and one join over all columns, in protobuf's order of names,
yields the bytes of `tf.train.Example.SerializeToString(deterministic=True)`. No row becomes a Python object.

The entry of a feature, from the outside in, with the length in bytes before each bracket:

    0A [ 0A [name]  12 [ KIND [ values ] ] ]      KIND: 0A bytes_list, 12 float_list, 1A int64_list
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import example_types
from infeed.components.dataset.records import Ints, by_length, data_of, fixed_width, from_lengths

Wrap = Callable[[bytes | None, int], bytes]
_FIELD_1, _FIELD_2 = b"\x0a", b"\x12"  # tags of length-delimited fields
_KIND_TAGS = {"bytes": b"\x0a", "float": b"\x12", "int": b"\x1a"}
_ABSENT = -1  # length of the values of a row without a list
_BITS_PER_BYTE = 7  # of a varint
_CELLS = 1 << 16  # cells of columns that are encoded together


def encode_examples(batch: pa.RecordBatch, *, empty_lists: bool = False) -> pa.LargeBinaryArray:
    """Return one serialized tf.Example for each row of columns of the types listed in `example_types`.

    With `empty_lists`, null is an empty list, as in TFX's CsvExampleGen, not a missing feature. Raises
    InfeedError if a tf.Example cannot hold a type or a value. The error names the row of the batch and the column.
    """
    lengths = np.zeros(batch.num_rows, np.int64)
    by_place = dict[int, list[pa.LargeBinaryArray]]()
    for group in _groups(batch):
        pieces = _encode_group(group, empty_lists)
        lengths += np.add(*map(_lengths, pieces)).reshape(len(group.places), -1).sum(axis=0)
        for number, place in enumerate(group.places):
            by_place[place] = [piece.slice(number * batch.num_rows, batch.num_rows) for piece in pieces]
    head = by_length(lengths, lambda length: _FIELD_1 + varint(length))
    return _join([head, *(piece for place in range(batch.num_columns) for piece in by_place[place])])


def encode_feature(column: pa.Array, name: str) -> pa.LargeBinaryArray:
    """Return one serialized tf.train.Feature for each row. TFX hashes these bytes to split by a feature."""
    group = _Group([0], [name], [lambda head, length: head or b""], example_types.without_dictionary(column))
    return _join(_encode_group(group, empty_lists=False))


@dataclass(frozen=True)
class _Group:
    """Columns of one type, concatenated. Encoding whole groups makes wide tables with few rows as fast as narrow ones.

    `places` are the positions of the columns in the record, and `wraps` the functions that wrap their heads.
    """

    places: list[int]
    names: list[str]
    wraps: list[Wrap]
    cells: pa.Array

    def locate(self, row: int) -> tuple[str, int]:
        """Convert a row of `cells` to (column, row of the batch)."""
        column, row = divmod(row, len(self.cells) // len(self.names))
        return self.names[column], row


def _groups(batch: pa.RecordBatch) -> Iterator[_Group]:
    of_one_group = max(1, _CELLS // max(1, batch.num_rows))
    by_type = dict[pa.DataType, list[tuple[int, str, pa.Array]]]()
    cells = dict(zip(batch.schema.names, batch.columns, strict=True))
    for place, name in enumerate(in_protobuf_order(cells)):
        column = example_types.without_dictionary(cells[name])
        by_type.setdefault(column.type, []).append((place, name, column))
    for same in by_type.values():
        for start in range(0, len(same), of_one_group):
            places, names, some = map(list, zip(*same[start : start + of_one_group], strict=True))
            wraps = [_entry_of(name.encode()) for name in names]
            yield _Group(places, names, wraps, some[0] if len(some) == 1 else pa.concat_arrays(some))


def in_protobuf_order(names: Iterable[str]) -> list[str]:
    """Sort names in the deterministic map order of the installed protobuf.

    All versions sort by the bytes of the names. But if one name is a prefix of another, such as `label` and
    `label/text`, upb (protobuf 4 and later) sorts the longer first. The bytes of a record determine its split, so the
    order must be that of TFX.
    """
    after_any_byte = [256] if _longer_names_first() else []
    return sorted(names, key=lambda name: [*name.encode(), *after_any_byte])


@functools.cache
def _longer_names_first() -> bool:
    try:
        from google.protobuf import struct_pb2
    except ImportError:  # without protobuf, there is no other writer whose order must match
        return False
    probe = struct_pb2.Struct(fields={"a": struct_pb2.Value(), "ab": struct_pb2.Value()})
    return bool(probe.SerializeToString(deterministic=True)[3] == len("ab"))  # [3] is the first key's length


def varint(value: int) -> bytes:
    """Encode a non-negative integer as a protobuf varint."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= _BITS_PER_BYTE
    encoded.append(value)
    return bytes(encoded)


def _entry_of(name: bytes) -> Wrap:
    """Return a function that wraps the head of a Feature, given its total length, into the head of its map entry."""
    key = _FIELD_1 + varint(len(name)) + name

    def wrap(head: bytes | None, length: int) -> bytes:
        if head is None:
            return b""
        value = _FIELD_2 + varint(length)
        return _FIELD_1 + varint(len(key) + len(value) + length) + key + value + head

    return wrap


def _encode_group(group: _Group, empty_lists: bool) -> list[pa.LargeBinaryArray]:
    """Return [head, values] of all cells. Their concatenation is the wire bytes of the columns."""
    try:
        kind = example_types.kind_of(group.cells.type)
        values, lengths, head_of_values = _encode_values(group.cells)
    except example_types.InvalidValueError as error:
        name, row = group.locate(int(example_types.rows_of(group.cells, error.item)))
        raise InfeedError(error.what, where=f"column {name!r}, row {row}", do=error.do) from error
    except InfeedError as error:
        raise InfeedError(error.what, where=f"column {group.names[0]!r}", do=error.do) from error

    def head(wrap: Wrap, length: int) -> bytes:
        if kind is None:  # keep the name of an empty column, so that a schema includes it
            return wrap(b"", 0)
        if length == _ABSENT and not empty_lists:
            return wrap(None, 0)
        inner = head_of_values(length)
        size = len(inner) + max(length, 0)
        outer = _KIND_TAGS[kind] + varint(size) + inner
        return wrap(outer, len(outer) + max(length, 0))

    return [_heads(group.wraps, lengths, head), values]


def _heads(wraps: list[Wrap], lengths: Ints, head: Callable[[Wrap, int], bytes]) -> pa.LargeBinaryArray:
    """Return the head of each cell, column by column. The head depends on the column and the length."""
    if len(wraps) == 1:
        return by_length(lengths, partial(head, wraps[0]))
    span = int(lengths.max(initial=0)) + 1 - _ABSENT
    starts = np.repeat(np.arange(len(wraps)) * span, len(lengths) // len(wraps))

    def make(code: int) -> bytes:
        column, length = divmod(code, span)
        return head(wraps[column], length + _ABSENT)

    return by_length(starts + lengths - _ABSENT, make)


def _encode_values(column: pa.Array) -> tuple[pa.LargeBinaryArray, Ints, Callable[[int], bytes]]:
    """Return the concatenated values of each row, their length or _ABSENT, and a function that creates the prefix."""
    present = column.is_valid().to_numpy(zero_copy_only=False)
    if example_types.is_list(column.type):
        items = example_types.items_of(column)
        unfit = example_types.find_invalid(items, in_list=True)
        if len(unfit):
            raise example_types.explain_invalid(items, int(unfit[0]))
        items = example_types.to_values(items)
        encoded = _encode_scalars(items)
        if pa.types.is_large_binary(items.type):
            encoded = _join([by_length(_lengths(encoded), lambda length: _FIELD_1 + varint(length)), encoded])
        ends = np.concatenate([[0], np.cumsum(_lengths(encoded))])
        cuts = np.concatenate([[0], np.cumsum(example_types.item_counts(column))])
        values = from_lengths(data_of(encoded), np.diff(ends[cuts]))
    elif example_types.kind_of(column.type) is None:
        values = fixed_width(b"", 0, len(column))
    else:
        values = _encode_scalars(example_types.to_values(column))
    lengths = np.where(present, _lengths(values), _ABSENT)
    return values, lengths, _values_head(column.type)


def _values_head(column: pa.DataType) -> Callable[[int], bytes]:
    if example_types.kind_of(column) != "bytes":
        return lambda length: _FIELD_1 + varint(length) if length > 0 else b""  # packed, one field for all values
    if example_types.is_list(column):
        return lambda length: b""  # each value has its own prefix
    return lambda length: _FIELD_1 + varint(length) if length >= 0 else b""


def _encode_scalars(values: pa.Array) -> pa.LargeBinaryArray:
    """Return the bytes of each value, empty for null."""
    if pa.types.is_large_binary(values.type):
        return values.fill_null(b"")
    present = values.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_float32(values.type):
        floats = example_types.value_buffer(values, np.float32).astype("<f4", copy=False)
        return from_lengths(floats[present].tobytes(), np.where(present, 4, 0))
    unsigned = example_types.value_buffer(values, np.uint64)  # as in protobuf, a negative number takes ten bytes
    sizes = np.ones(len(values), np.int64)
    for shift in range(_BITS_PER_BYTE, 64, _BITS_PER_BYTE):
        sizes += unsigned >> np.uint64(shift) != 0
    width = int(sizes.max(initial=1))
    table = np.empty((len(values), width), np.uint8)
    for byte in range(width):
        more = (sizes - 1 > byte) * np.uint8(0x80)
        table[:, byte] = (unsigned >> np.uint64(byte * _BITS_PER_BYTE)).astype(np.uint8) & 0x7F | more
    sizes *= present
    return from_lengths(table[np.arange(width) < sizes[:, None]].tobytes(), sizes)


def _lengths(values: pa.LargeBinaryArray) -> Ints:
    lengths: Ints = pc.binary_length(values).to_numpy(zero_copy_only=False)
    return lengths


def _join(pieces: list[pa.LargeBinaryArray]) -> pa.LargeBinaryArray:
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.large_binary()))
