"""Parameters of a compiled job: plain values here, typed as the two versions of the schema write them there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from infeed.components.errors import InfeedError

Value = Any  # str, int, float, bool, list, dict or None: what JSON holds

# Schema 2.0 has a field `type` of its own three types, schema 2.1 `parameterType`.
_LEGACY = {"INT": "NUMBER_INTEGER", "DOUBLE": "NUMBER_DOUBLE", "STRING": "STRING"}
_LEGACY_FIELDS = {"intValue": int, "doubleValue": float, "stringValue": str}


def declared_type(spec: Mapping[str, Any]) -> str:
    """The type of a parameter's definition under its name in schema 2.1."""
    return str(spec.get("parameterType") or _LEGACY.get(str(spec.get("type")), "STRING"))


def constant(spec: Mapping[str, Any]) -> Value:
    """The value of `{"constant": 3}`, as schema 2.1 writes it, or of `{"constantValue": {"intValue": "3"}}`, as 2.0."""
    return legacy_value(spec["constantValue"]) if "constantValue" in spec else spec.get("constant")


def legacy_value(typed: Mapping[str, Any]) -> Value:
    """`{"intValue": "3"}` -> 3."""
    return next(read(typed[field]) for field, read in _LEGACY_FIELDS.items() if field in typed)


def to_legacy(value: Value) -> dict[str, Any]:
    """3 -> `{"intValue": "3"}`: protobuf's JSON writes 64-bit integers as strings."""
    if isinstance(value, (bool, int)) or (isinstance(value, float) and value.is_integer()):
        return {"intValue": str(int(value))}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": as_text(value)}


def as_text(value: Value) -> str:
    """As a placeholder in a command line becomes: a string as it is, anything else as JSON, 3.0 as 3."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value)


def parse(text: str, type_: str, name: str) -> Value:
    """Reads a value of a declared type from `--set` or from the file of an output parameter.

    Raises:
      InfeedError: the text is not of that type.
    """
    if type_ in ("STRING", "TASK_FINAL_STATUS"):
        return text
    try:
        return _READERS[type_](text)
    except (ValueError, KeyError) as error:
        do = f"give {_WORDS.get(type_, type_)}"
        raise InfeedError(f"{text!r} is not {_WORDS.get(type_, type_)}", where=f"parameter {name}", do=do) from error


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


def _json_of(kind: type) -> Any:
    def read(text: str) -> Value:
        value = json.loads(text)
        if not isinstance(value, kind):
            raise ValueError(text)
        return value

    return read


_READERS: Mapping[str, Any] = {
    "NUMBER_INTEGER": int,
    "NUMBER_DOUBLE": float,
    "BOOLEAN": _boolean,
    "LIST": _json_of(list),
    "STRUCT": _json_of(dict),
}
_WORDS = {
    "NUMBER_INTEGER": "a whole number",
    "NUMBER_DOUBLE": "a number",
    "BOOLEAN": "true or false",
    "LIST": "a list in JSON",
    "STRUCT": "an object in JSON",
}
