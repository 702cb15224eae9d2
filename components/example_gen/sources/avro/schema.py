"""Convert Avro schemas to Arrow types.

| Avro | Arrow |
|---|---|
| null, boolean, int, long | null, bool, int32, int64 |
| float, double, bytes, string | float32, float64, binary, string |
| enum, uuid | string |
| fixed | binary of that size |
| decimal | decimal |
| date; timestamps of any unit | date32; timestamp |
| array, record | list, struct |
| a union of null and a type | that type |
| a union of numbers | the widest of them |
| a union of strings, enums, bytes and fixed | binary |
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types

from infeed.components.base.errors import InfeedError

_PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}
_MOST_DIGITS = 76  # of decimal256
_MOST_NARROW_DIGITS = 38  # of decimal128


def to_arrow(schema: Any, path: str) -> pa.Schema:
    """Convert an Avro schema. Raises InfeedError if it is not a record, or a tf.Example cannot hold a field."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        name = schema.get("type") if isinstance(schema, dict) else schema
        raise InfeedError(f"the Avro schema is {name}, not a record", where=path, do="write one record for each row")
    named, fields = {_full_name(schema, ""): schema}, list[tuple[str, pa.DataType]]()
    for field in schema["fields"]:
        name = field["name"]
        try:
            fields.append((name, _type(field["type"], _namespace(schema, ""), named, ())))
        except InfeedError as error:
            raise InfeedError(error.what, where=f"{path}, column {name!r}", do=error.do) from error
    return pa.schema(fields)


def without_logical_types(schema: Any) -> Any:
    """Replace the logical types of dates, times, and uuids by plain numbers and text. Decimals stay."""
    if isinstance(schema, list):
        return [without_logical_types(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key != "logicalType" or _is_decimal(schema)}
    for key in ("type", "items", "values"):
        if key in kept:
            kept[key] = without_logical_types(kept[key])
    if "fields" in kept:
        kept["fields"] = [without_logical_types(field) for field in kept["fields"]]
    return kept


def _type(schema: Any, namespace: str, named: dict[str, Any], within: tuple[str, ...]) -> pa.DataType:
    if isinstance(schema, list):
        return _union([_type(one, namespace, named, within) for one in schema])
    if isinstance(schema, str):
        if schema in _PLAIN:
            return _PLAIN[schema]
        known = schema if schema in named else f"{namespace}.{schema}"
        return _type(named[known], namespace, named, within)
    if schema.get("logicalType") in _LOGICAL:
        return _LOGICAL[schema["logicalType"]]
    if _is_decimal(schema):
        decimal = pa.decimal128 if schema["precision"] <= _MOST_NARROW_DIGITS else pa.decimal256
        return decimal(schema["precision"], schema.get("scale", 0))
    return _complex(schema, namespace, named, within)


def _is_decimal(schema: dict[str, Any]) -> bool:
    """Return whether Arrow has such a decimal. Avro's specification treats wider decimals as bytes."""
    return schema.get("logicalType") == "decimal" and int(schema["precision"]) <= _MOST_DIGITS


def _complex(schema: Any, namespace: str, named: dict[str, Any], within: tuple[str, ...]) -> pa.DataType:
    kind, name = schema["type"], _full_name(schema, namespace)
    if "name" in schema:
        named[name] = schema
    if kind == "enum":
        return pa.string()
    if kind == "fixed":
        return pa.binary(schema["size"])
    if kind == "array":
        item = _type(schema["items"], namespace, named, within)
        if is_empty(item):
            raise InfeedError("a tf.Example cannot hold an array of nulls", do="leave out the column")
        return pa.list_(item)
    # Columns cannot be nested without end, so a record within itself has no type in Arrow.
    if kind == "record" and name not in within:
        inner = _namespace(schema, namespace)
        return pa.struct([(one["name"], _type(one["type"], inner, named, (*within, name))) for one in schema["fields"]])
    if isinstance(kind, (dict, list)) or kind in _PLAIN:
        return _type(kind, namespace, named, within)
    what = f"the recursive record {name}" if kind == "record" else f"the Avro type {kind}"
    raise InfeedError(f"a tf.Example cannot hold {what}", do="leave out the column, or write it as text")


def is_empty(kind: pa.DataType) -> bool:
    """Return whether values take no bytes. A damaged file may announce an endless number of such values."""
    if types.is_struct(kind):
        return all(is_empty(field.type) for field in kind)
    return bool(types.is_null(kind) or (types.is_fixed_size_binary(kind) and not kind.byte_width))


def _union(members: list[pa.DataType]) -> pa.DataType:
    distinct = list(dict.fromkeys(one for one in members if not types.is_null(one)))
    if len(distinct) == 1:
        return distinct[0]
    if not distinct:
        return pa.null()
    if all(types.is_integer(one) for one in distinct):
        return pa.int64()
    if all(types.is_integer(one) or types.is_floating(one) for one in distinct):
        return pa.float64()
    if all(types.is_string(one) or types.is_binary(one) or types.is_fixed_size_binary(one) for one in distinct):
        return pa.binary()
    what = f"a tf.Example cannot hold a union of {' and '.join(str(one) for one in distinct)}"
    raise InfeedError(what, do="write a separate column for each type")


def _full_name(schema: dict[str, Any], namespace: str) -> str:
    name, inner = str(schema.get("name", "")), _namespace(schema, namespace)
    return name if "." in name or not inner else f"{inner}.{name}"


def _namespace(schema: dict[str, Any], namespace: str) -> str:
    own = str(schema.get("name", "")).rpartition(".")[0]
    return own or str(schema.get("namespace", namespace))
