"""Runtime parameters of a compiled job: plain Python values, and their typed forms in schemas 2.0 and 2.1."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infeed.components.base.errors import InfeedError

Value = Any  # a JSON value: str, int, float, bool, list, dict or None


@dataclass(frozen=True)
class Parameter:
    """A runtime parameter: its type name in schema 2.1, and its default. A parameter without default is required."""

    type: str
    default: Value = None


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"JSON cannot hold {text}")
    return number


def _json(kind: type) -> Callable[[str], Value]:
    def read(text: str) -> Value:
        value = json.loads(text)
        if not isinstance(value, kind):
            raise ValueError(f"{text} is not a {kind.__name__}")
        return value

    return read


# Parser, description and example of each type of schema 2.1. STRING and TASK_FINAL_STATUS accept any text.
# See ParameterType.ParameterTypeEnum in
# https://github.com/kubeflow/pipelines/blob/master/api/v2alpha1/pipeline_spec.proto
_TYPES: Mapping[str, tuple[Callable[[str], Value], str, str]] = {
    "STRING": (str, "a text", "abc"),
    "TASK_FINAL_STATUS": (str, "a text", "abc"),
    "NUMBER_INTEGER": (int, "a whole number", "5"),
    "NUMBER_DOUBLE": (_finite, "a number", "0.1"),
    "BOOLEAN": (_boolean, "true or false", "true or false"),
    "LIST": (_json(list), "a list in JSON", '["a", "b"]'),
    "STRUCT": (_json(dict), "an object in JSON", '{"a": 1}'),
}
# Schema 2.0 has three types, declared in the field `type`. The field name of a value names the value's type.
_TYPES_2_0 = {"INT": "NUMBER_INTEGER", "DOUBLE": "NUMBER_DOUBLE", "STRING": "STRING"}
_FIELDS_2_0 = {"NUMBER_INTEGER": "intValue", "NUMBER_DOUBLE": "doubleValue", "STRING": "stringValue"}


def declared_type(definition: Mapping[str, Any]) -> str:
    """Return the type of a parameter definition by its name in schema 2.1."""
    return str(definition.get("parameterType") or _TYPES_2_0.get(str(definition.get("type")), "STRING"))


def constant(source: Mapping[str, Any]) -> Value:
    """Return the value of `{"constant": 3}` (schema 2.1) or `{"constantValue": {"intValue": "3"}}` (2.0)."""
    return legacy_value(source["constantValue"]) if "constantValue" in source else source.get("constant")


def legacy_value(typed: Mapping[str, Any]) -> Value:
    """Convert a value of schema 2.0, such as `{"intValue": "3"}`, to a plain value."""
    kind, field = next((kind, field) for kind, field in _FIELDS_2_0.items() if field in typed)
    return _TYPES[kind][0](typed[field])


def to_legacy(value: Value) -> dict[str, Any]:
    """Convert a plain value to schema 2.0: 3 and 3.0 become `{"intValue": "3"}`.

    Protobuf's JSON writes 64-bit integers as strings.
    """
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return {"intValue": str(int(value))}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": as_text(value)}


def as_text(value: Value) -> str:
    """Convert a value to the text of a placeholder: a string stays, any other value becomes JSON, 3.0 becomes 3."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value)


def parse(text: str, kind: str, where: str) -> Value:
    """Parse a value of type `kind` (schema 2.1), from a command line or from the file of an output parameter.

    Raises InfeedError if the text is not of that type, or the type is unknown.
    """
    if kind not in _TYPES:
        raise InfeedError(f"the type is {kind!r}", where=where, do=f"use one of {', '.join(_TYPES)}")
    read, words, example = _TYPES[kind]
    try:
        return read(text)
    except (ValueError, KeyError) as error:
        raise InfeedError(f"{text!r} is not {words}", where=where, do=f"use a value such as {example}") from error


def read_parameters(given: Sequence[str], declared: Mapping[str, Parameter], job: str) -> dict[str, Value]:
    """Parse the `NAME=VALUE` texts of `--parameter` to values by name, in the types that the job declares.

    Raises InfeedError if a parameter is unknown, repeated or missing, or a value has another type.
    """
    values: dict[str, Value] = {}
    for text in given:
        name, equals, value = text.partition("=")
        where = f"--parameter {text}"
        if name not in declared:
            known = ", ".join(f"{each} ({it.type})" for each, it in declared.items())
            do = f"the job has {known}" if known else "leave it out: the job has no parameters"
            raise InfeedError(f"unknown parameter {name!r}", where=where, do=do)
        if not equals:
            raise InfeedError(f"no value for {name!r}", where=where, do=f"write --parameter {name}=VALUE")
        parsed = parse(value, declared[name].type, where)
        if name in values:
            raise InfeedError(f"two values for {name!r}", where=where, do="keep one of them")
        values[name] = parsed
    missing = [name for name, known in declared.items() if known.default is None and name not in values]
    if missing:
        do = f"add {' '.join(f'--parameter {name}=VALUE' for name in missing)}"
        raise InfeedError(f"no value for {', '.join(missing)}", where=f"parameters of {job!r}", do=do)
    return values
