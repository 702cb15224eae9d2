"""Unify the schemas of several files into one flat schema, in which nested fields are columns.

    {"trip": {"fare": 1.5, "tips": null}}  ->  trip.fare = 1.5, trip.tips = null

A null struct makes all of its columns null.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import example_types

_VIEWS = {  # by the id of the type
    getattr(pa, name)().id: plain
    for name, plain in {"string_view": pa.large_string(), "binary_view": pa.large_binary()}.items()
    if hasattr(pa, name)
}
_Types = Mapping[pa.DataType, Sequence[str]]  # type of a column -> paths of the files


@dataclass(frozen=True)
class FileSchema:
    """Schema of one file."""

    path: str
    schema: pa.Schema


def flatten_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of `flatten_batch`, without metadata."""
    while any(types.is_struct(field.type) for field in schema):
        schema = pa.schema([inner for field in schema for inner in field.flatten()])
    return pa.schema([(field.name, _without_views(field.type)) for field in schema])


def flatten_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replace structs by a column for each nested field, with a dotted name, and views of text by text."""
    while any(types.is_struct(field.type) for field in batch.schema):
        table = pa.Table.from_batches([batch]).flatten()
        arrays = [one.chunk(0) if one.num_chunks else pa.array([], one.type) for one in table.columns]
        batch = pa.RecordBatch.from_arrays(arrays, schema=table.schema)
    if all(_without_views(field.type) == field.type for field in batch.schema):
        return batch
    columns = [column.cast(_without_views(column.type)) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _without_views(column: pa.DataType) -> pa.DataType:
    """Return the type with plain text in place of views, which only newer releases of Arrow have."""
    if str(column).startswith(("list_view<", "large_list_view<")):
        return pa.large_list(_without_views(column.value_type))
    if types.is_list(column) or types.is_large_list(column):
        item = _without_views(column.value_type)
        return column if item == column.value_type else pa.large_list(item)
    return _VIEWS.get(column.id, column)


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


def unify(
    found: Sequence[FileSchema],
    wanted: Callable[[str], bool] = lambda name: True,
    has_values: Callable[[str, str], bool] = lambda path, name: True,
) -> pa.Schema:
    """Return a flat schema for all files. A column that a file does not have is null in its rows.

    Args:
      found: schemas of the files.
      wanted: whether to read the column of a flat name.
      has_values: whether the file at a path has a value in the column of a flat name. Called only if types differ.
          Types in files without values do not count.

    Raises:
      InfeedError: a tf.Example cannot hold a type, a name occurs twice, or the types of two files conflict.
    """
    merged = dict[str, dict[pa.DataType, list[str]]]()
    for one in found:
        flat = pa.schema([field for field in flatten_schema(one.schema) if wanted(field.name)])
        twice = sorted(name for name, count in Counter(flat.names).items() if count > 1)
        if twice:
            raise InfeedError(f"column {twice[0]!r} occurs twice", where=one.path, do="give each column its own name")
        for field in flat:
            _check_type(field, one.path)
            merged.setdefault(field.name, {}).setdefault(field.type, []).append(one.path)
    return pa.schema([(name, _merged(name, by_type, has_values)) for name, by_type in merged.items()])


def _merged(name: str, found: _Types, has_values: Callable[[str, str], bool]) -> pa.DataType:
    """Return the type that holds a column's values in all files. Raises InfeedError if two types conflict."""
    if len({example_types.kind_of(one) for one in found}) > 1 or common_type([*found]) is None:
        some = {one: paths for one, paths in found.items() if any(has_values(path, name) for path in paths)}
        known = [one for one in found if not types.is_null(example_types.item_type(one))]
        found = some or {one: found[one] for one in known[:1]} or found
    common = common_type([*found])
    if common is None:
        first, other = next(pair for pair in combinations(found, 2) if common_type(pair) is None)
        what = f"column {name!r} is {other}, but {first} in {found[first][0]}"
        raise InfeedError(what, where=found[other][0], do="write both files with one type")
    return common


def has_value(batches: Iterable[pa.RecordBatch], column: str) -> bool:
    """Return whether a column, given by its flat name, has a value in any batch."""
    columns = (batch.column(column) for batch in map(flatten_batch, batches) if column in batch.schema.names)
    return any(_has_value(one) for one in columns)


def _has_value(column: pa.Array) -> bool:
    items = example_types.items_of(column)
    return len(items) > int(items.null_count)


def fill(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a flat batch to `schema`. Missing columns become null."""
    if batch.schema.equals(schema, check_metadata=False):
        return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    arrays = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        column = columns[name] if name in columns else pa.nulls(batch.num_rows, kind)
        arrays.append(convert(column, kind))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def convert(column: pa.Array, to: pa.DataType) -> pa.Array:
    """Convert a flat column to a type that `common_type` returns for it."""
    if column.type == to:
        return column
    if example_types.is_list(column.type) and example_types.is_list(to):
        return example_types.with_items(column, lambda items: convert(items, to.value_type), to)
    if not _has_value(column):
        return pa.nulls(len(column), to)
    if types.is_integer(column.type) and types.is_float64(to):
        return example_types.to_float64(column)
    # Fractions of a microsecond are truncated.
    return example_types.without_dictionary(column).cast(to, safe=not types.is_timestamp(to))


def _check_type(field: pa.Field, path: str) -> None:
    try:
        example_types.kind_of(field.type)
    except InfeedError as error:
        raise InfeedError(error.what, where=f"{path}, column {field.name!r}", do=error.do) from error


def common_type(found: Sequence[pa.DataType]) -> pa.DataType | None:
    """Return the type that holds the values of all types, with the same list kind of tf.Example. None if impossible.

    A mix of integers and floats becomes floats, as in CSV files.
    """
    found = [_without_dictionary(one) for one in found if not types.is_null(one)] or [pa.null()]
    if all(one == found[0] for one in found):
        return found[0]
    if all(map(example_types.is_list, found)):
        return _common_list(found)
    return next((common for fit, common in _COMMON if all(map(fit, found))), None)


def _common_list(found: Sequence[pa.DataType]) -> pa.DataType | None:
    items = common_type([one.value_type for one in found])
    sizes = {one.list_size if types.is_fixed_size_list(one) else None for one in found}
    (size,) = sizes if len(sizes) == 1 else (None,)
    return items and (pa.large_list(items) if size is None else pa.list_(items, size))


def _without_dictionary(column: pa.DataType) -> pa.DataType:
    return column.value_type if types.is_dictionary(column) else column


def _is_number(column: pa.DataType) -> bool:
    is_single = types.is_float32(column) or types.is_float64(column)  # Arrow cannot cast float16
    return bool(is_single or types.is_integer(column) or types.is_decimal(column))


def _is_local_time(column: pa.DataType) -> bool:
    return bool(types.is_date(column) or (types.is_timestamp(column) and column.tz is None))


_COMMON: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (lambda one: types.is_integer(one) or types.is_boolean(one), pa.int64()),
    (_is_number, pa.float64()),
    (_is_local_time, pa.timestamp("us")),
    (lambda one: types.is_timestamp(one) and one.tz is not None, pa.timestamp("us", "UTC")),
    (lambda one: types.is_string(one) or types.is_large_string(one), pa.large_string()),
    (lambda one: example_types.kind_of(one) == "bytes" and not example_types.is_list(one), pa.large_binary()),
)
