"""Record batches as ADBC's drivers give them -> columns that mean what the database means.

Where Arrow lacks one of a database's types, a driver gives an extension type: its name, and text or bytes beneath it.

| Extension type | here |
|---|---|
| numeric, of any precision | float64 |
| uuid | string |
| json | string |
| any other | refused: its bytes would mean nothing to anyone |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.dataset import columns, schemas
from infeed.components.errors import InfeedError
from infeed.components.example_gen.bad_rows import BadRows
from infeed.components.example_gen.sources import sql_values
from infeed.components.example_gen.sources.sql_database import Row

_NO_TIME = "outside the years 1 to 9999"  # in place of what Python cannot show


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A batch of these columns, empty."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def to_plain(batch: pa.RecordBatch, where: str) -> pa.RecordBatch:
    """Structs as columns of their own, dictionaries as their values, extension types as the table above has them.

    Raises:
      InfeedError: an extension type that means nothing here.
    """
    flat = schemas.flatten_batch(batch)
    arrays = [_to_plain(field, column, where) for field, column in zip(flat.schema, flat.columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=flat.schema.names)


def fit(batch: pa.RecordBatch, schema: pa.Schema, where: str, bad_rows: BadRows, first_row: int) -> pa.RecordBatch:
    """The batch with the types of `schema`, without the rows that hold a value which does not fit its column's type."""
    plain = to_plain(batch, where)
    try:
        arrays = [_cast(column, field.type) for field, column in zip(schema, plain.columns, strict=True)]
    except sql_values.UNFIT:
        rows = list(zip(*([_shown(cell) for cell in column] for column in plain.columns), strict=True))
        return sql_values.to_batch(rows, schema, where, bad_rows, first_row)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def exact_row(batch: pa.RecordBatch) -> Row:
    """The first row, with numerics as decimals: ranges between rounded keys might leave some out.

    Raises:
      OverflowError: a date or time outside the years 1 to 9999.
    """
    return tuple(_exact(field, column[0].as_py()) for field, column in zip(batch.schema, batch.columns, strict=True))


def _exact(field: pa.Field, value: Any) -> Any:
    return Decimal(value) if _extension(field) == "numeric" and value is not None else value


def _to_plain(field: pa.Field, column: pa.Array, where: str) -> pa.Array:
    name = _extension(field.type.value_field if columns.is_list(field.type) else field)
    if name is None:
        return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    if name not in _MEANT:
        raise InfeedError(
            f"a column of the database's type {name} has no place in a tf.Example",
            where=f"{where}, column {field.name!r}",
            do=sql_values.REMEDY,
        )
    return _MEANT[name](column)


def _extension(field: pa.Field) -> str | None:
    """The name of an extension type, which stands in the metadata where this pyarrow does not know it."""
    if isinstance(field.type, pa.BaseExtensionType):
        return str(getattr(field.type, "type_name", field.type.extension_name))
    metadata: Mapping[bytes, bytes] = field.metadata or {}
    name = metadata.get(b"ARROW:extension:name", b"").decode()
    if name == "arrow.opaque":
        return str(json.loads(metadata[b"ARROW:extension:metadata"])["type_name"])
    return name or None


def _items_as(item: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    return lambda column: column.cast(pa.list_(item) if columns.is_list(column.type) else item)


def _uuids(column: pa.Array) -> pa.Array:
    text = pa.list_(pa.string()) if columns.is_list(column.type) else pa.string()
    return pa.array([_uuid(value) for value in column.to_pylist()], text)


def _uuid(value: Any) -> Any:
    if isinstance(value, list):
        return [_uuid(one) for one in value]
    return str(UUID(bytes=value)) if isinstance(value, bytes) else value and str(value)


_MEANT = {
    "numeric": _items_as(pa.float64()),
    "arrow.json": _items_as(pa.string()),
    "arrow.uuid": _uuids,
    "uuid": _uuids,
}


def _cast(column: pa.Array, to: pa.DataType) -> pa.Array:
    _check_times(columns.items_of(column))
    return sql_values.cast(column, to)


def _check_times(items: pa.Array) -> None:
    """OverflowError where one is beyond Python's years: PostgreSQL's infinity comes as a number like any other."""
    if pa.types.is_timestamp(items.type):
        items = items.cast(pa.timestamp("us", items.type.tz), safe=False)
    if pa.types.is_temporal(items.type):
        pc.min_max(items).as_py()


def _shown(cell: pa.Scalar) -> Any:
    try:
        return cell.as_py()
    except OverflowError:
        return _NO_TIME
