"""Avro types -> Arrow types.

| Avro | Arrow |
|---|---|
| null, boolean, int, long, float, double, bytes, string | null, bool, int32, int64, float32, float64, binary, string |
| enum, uuid | string |
| fixed | binary of that size |
| decimal | decimal |
| date; timestamps of any unit | date32; timestamp |
| array, record | list, struct |
| a union of null and a type | that type |
| a union of numbers | the widest of them |
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types

from infeed.components.errors import InfeedError

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
_MOST_DIGITS = 76  # of Arrow's widest decimal
_MOST_NARROW_DIGITS = 38  # of a 128-bit one


def to_arrow(schema: Any, path: str) -> pa.Schema:
    """The Arrow schema of a file of records.

    Raises:
      InfeedError: a file of something else, or a field whose type has no place in a tf.Example.
    """
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise InfeedError(f"Avro of {_name(schema)}, not of records", where=path, do="write one record a row")
    named = {_full_name(schema, ""): schema}
    fields = [(field["name"], _field_type(field, path, _namespace(schema, ""), named)) for field in schema["fields"]]
    return pa.schema(fields)


def without_logical_types(schema: Any) -> Any:
    """The same schema with plain numbers and text for dates, times and uuids; decimals stay."""
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


def _field_type(field: dict[str, Any], path: str, namespace: str, named: dict[str, Any]) -> pa.DataType:
    try:
        return _type(field["type"], namespace, named, ())
    except InfeedError as error:
        raise InfeedError(error.what, where=f"{path}, column {field['name']!r}", do=error.do) from error


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
    """Of so many digits that Arrow has no such decimal, it is bytes like any other, as Avro's specification says."""
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
        return pa.list_(_type(schema["items"], namespace, named, within))
    if kind == "record" and name not in within:
        inner = _namespace(schema, namespace)
        return pa.struct([(one["name"], _type(one["type"], inner, named, (*within, name))) for one in schema["fields"]])
    if isinstance(kind, (dict, list)) or kind in _PLAIN:
        return _type(kind, namespace, named, within)
    what = f"a record within itself, {name}," if kind == "record" else f"Avro's {kind}"
    raise InfeedError(f"{what} has no place in a tf.Example", do="leave the column out, or write it as text")


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
    raise InfeedError(
        f"a union of {' and '.join(str(one) for one in distinct)} has no place in a tf.Example",
        do="write a column of its own for each type",
    )


def _full_name(schema: dict[str, Any], namespace: str) -> str:
    name, inner = str(schema.get("name", "")), _namespace(schema, namespace)
    return name if "." in name or not inner else f"{inner}.{name}"


def _namespace(schema: dict[str, Any], namespace: str) -> str:
    """The namespace that a type's own fields are in."""
    own = str(schema.get("name", "")).rpartition(".")[0]
    return own or str(schema.get("namespace", namespace))


def _name(schema: Any) -> str:
    return str(schema.get("type") if isinstance(schema, dict) else schema)
