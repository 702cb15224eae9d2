"""Unify the schemas of several files into one flat schema, in which nested fields are columns.

    {"trip": {"fare": 1.5, "tips": null}}  ->  trip.fare = 1.5, trip.tips = null

A null struct makes all of its columns null.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from infeed.components.dataset import example_types
from infeed.components.errors import InfeedError


@dataclass(frozen=True)
class FileSchema:
    """Schema of one file."""

    path: str
    schema: pa.Schema


def flatten_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of `flatten_batch`, without metadata."""
    while any(types.is_struct(field.type) for field in schema):
        schema = pa.schema([inner for field in schema for inner in field.flatten()])
    return pa.schema([(field.name, field.type) for field in schema])


def flatten_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replace structs by a column for each nested field, with a dotted name."""
    while any(types.is_struct(field.type) for field in batch.schema):
        table = pa.Table.from_batches([batch]).flatten()
        arrays = [one.chunk(0) if one.num_chunks else pa.array([], one.type) for one in table.columns]
        batch = pa.RecordBatch.from_arrays(arrays, schema=table.schema)
    return batch


def is_nested(column: pa.DataType) -> bool:
    """Return whether a flat column holds lists of objects or lists of lists."""
    return example_types.is_list(column) and (
        types.is_struct(column.value_type) or example_types.is_list(column.value_type)
    )


def flatten_lists(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replace lists of objects by a list column for each field, with a dotted name.

    A list of lists becomes one list. Nulls inside lists are dropped.

        {"items": [{"price": 2}, {"price": 3, "tags": ["a", "b"]}]}  ->  items.price = [2, 3], items.tags = ["a", "b"]
    """
    while any(is_nested(field.type) for field in batch.schema):
        named = zip(batch.schema.names, batch.columns, strict=True)
        columns = [pair for name, column in named for pair in _unnest(name, column)]
        batch = pa.RecordBatch.from_arrays([array for _, array in columns], names=[name for name, _ in columns])
    return batch


def _unnest(name: str, column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield the columns that replace a column: itself, its fields, or its joined lists."""
    if not is_nested(column.type):
        yield name, column
        return
    items = example_types.items_of(column)
    bounds = np.concatenate([[0], np.cumsum(example_types.item_counts(column))])
    missing = column.is_null()
    if types.is_struct(items.type):
        for field, values in zip(items.type, items.flatten(), strict=True):
            yield f"{name}.{field.name}", _lists(values, bounds, missing)
    else:
        inner = np.concatenate([[0], np.cumsum(example_types.item_counts(items))])
        yield name, _lists(example_types.items_of(items), inner[bounds], missing)


def _lists(values: pa.Array, bounds: npt.NDArray[np.int64], missing: pa.BooleanArray) -> pa.Array:
    """Return lists of the non-null values from bounds[i] to bounds[i + 1]. Rows in `missing` are null."""
    kept = np.concatenate([[0], np.cumsum(values.is_valid().to_numpy(zero_copy_only=False))])
    offsets = pa.array(kept[bounds], pa.int64(), mask=np.append(missing.to_numpy(zero_copy_only=False), False))
    return pa.LargeListArray.from_arrays(offsets, values.drop_null())


def unify(found: Sequence[FileSchema], wanted: Callable[[str], bool] = lambda name: True) -> pa.Schema:
    """Return the flat schema that all files can be read with. Columns that a file lacks are null there.

    Only columns whose flat name is `wanted` are read. Raises InfeedError if a tf.Example cannot hold a type, a name
    occurs twice, or the types of two files conflict.
    """
    merged: dict[str, tuple[pa.DataType, str]] = {}
    for one in found:
        flat = pa.schema([field for field in flatten_schema(one.schema) if wanted(field.name)])
        twice = sorted(name for name, count in Counter(flat.names).items() if count > 1)
        if twice:
            raise InfeedError(f"column {twice[0]!r} occurs twice", where=one.path, do="give each column its own name")
        for field in flat:
            _check_type(field, one.path)
        for field in flat:
            before, first = merged.get(field.name, (pa.null(), one.path))
            fitting = _common_type(before, field.type)
            if fitting is None:
                what = f"column {field.name!r} is {field.type}, but {before} in {first}"
                raise InfeedError(what, where=one.path, do="write both files with one type")
            merged[field.name] = (fitting, first if before == fitting else one.path)
    return pa.schema([(name, fitting) for name, (fitting, _) in merged.items()])


def fill(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a flat batch to `schema`. Columns that it lacks are null."""
    if batch.schema.equals(schema, check_metadata=False):
        return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    arrays = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        column = columns[name] if name in columns else pa.nulls(batch.num_rows, kind)
        arrays.append(column if column.type == kind else column.cast(kind))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _check_type(field: pa.Field, path: str) -> None:
    try:
        example_types.kind_of(field.type)
    except InfeedError as error:
        raise InfeedError(error.what, where=f"{path}, column {field.name!r}", do=error.do) from error


def _common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return a type that holds the values of both without loss, or None."""
    if one == other or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if types.is_integer(one) and types.is_integer(other):
        return None if types.is_uint64(one) or types.is_uint64(other) else pa.int64()
    if (types.is_float32(one) and types.is_float64(other)) or (types.is_float64(one) and types.is_float32(other)):
        return pa.float64()
    for text, large in ((_TEXT, pa.large_string()), (_BINARY, pa.large_binary())):
        if _without_dictionary(one) in text and _without_dictionary(other) in text:
            return large
    return None


def _without_dictionary(column: pa.DataType) -> pa.DataType:
    return column.value_type if types.is_dictionary(column) else column


_TEXT = (pa.string(), pa.large_string())
_BINARY = (pa.binary(), pa.large_binary())
