"""Parameters of a compiled job: plain values here, typed as the two versions of the schema write them there."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infeed.components.errors import InfeedError

Value = Any  # str, int, float, bool, list, dict or None: what JSON holds


@dataclass(frozen=True)
class Parameter:
    """A runtime parameter: its type by the name of schema 2.1, and its default; None where a value has to be given."""

    type: str
    default: Value = None


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} has no place in JSON")
    return number


def _json(kind: type) -> Callable[[str], Value]:
    def read(text: str) -> Value:
        value = json.loads(text)
        if not isinstance(value, kind):
            raise ValueError(f"{text} is not a {kind.__name__}")
        return value

    return read


# The types of schema 2.1: how a text is read, what it is in words, and an example. STRING is any text, and so is the
# status that an exit handler takes. ParameterType.ParameterTypeEnum in
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
# Schema 2.0 has a field `type` of its own three types, 2.1 `parameterType`; and 2.0 types each value by its field.
_TYPES_2_0 = {"INT": "NUMBER_INTEGER", "DOUBLE": "NUMBER_DOUBLE", "STRING": "STRING"}
_FIELDS_2_0 = {"NUMBER_INTEGER": "intValue", "NUMBER_DOUBLE": "doubleValue", "STRING": "stringValue"}


def declared_type(definition: Mapping[str, Any]) -> str:
    """The type of a parameter's definition under its name in schema 2.1."""
    return str(definition.get("parameterType") or _TYPES_2_0.get(str(definition.get("type")), "STRING"))


def constant(source: Mapping[str, Any]) -> Value:
    """The value of `{"constant": 3}`, as schema 2.1 writes it, or of `{"constantValue": {"intValue": "3"}}`, as 2.0."""
    return legacy_value(source["constantValue"]) if "constantValue" in source else source.get("constant")


def legacy_value(typed: Mapping[str, Any]) -> Value:
    """`{"intValue": "3"}` -> 3."""
    kind, field = next((kind, field) for kind, field in _FIELDS_2_0.items() if field in typed)
    return _TYPES[kind][0](typed[field])


def to_legacy(value: Value, kind: str | None = None) -> dict[str, Any]:
    """3 -> `{"intValue": "3"}`: protobuf's JSON writes 64-bit integers as strings.

    Args:
      value: a plain one.
      kind: its declared type, by the name of schema 2.1; what the value is by default, 3.0 being a whole number.
    """
    kind = kind or _kind_of(value)
    if kind == "NUMBER_INTEGER":
        return {_FIELDS_2_0[kind]: str(int(value))}
    return {_FIELDS_2_0[kind]: value if kind == "NUMBER_DOUBLE" else as_text(value)}


def _kind_of(value: Value) -> str:
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "NUMBER_INTEGER"
    return "NUMBER_DOUBLE" if isinstance(value, float) else "STRING"


def as_text(value: Value) -> str:
    """As a placeholder in a command line becomes: a string as it is, anything else as JSON, 3.0 as 3."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value)


def mapped(value: Value, change: Callable[[Value], Value]) -> Value:
    """A copy of plain data in which `change` was applied to everything but lists and dicts; keys stay."""
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [mapped(item, change) for item in value]
    return change(value)


def parse(text: str, kind: str, where: str) -> Value:
    """Reads a value of a declared type, from a command line or from the file of an output parameter.

    Args:
      text: as given or written.
      kind: the type by the name of schema 2.1.
      where: for the error.

    Raises:
      InfeedError: the text is not of that type, or nobody knows the type.
    """
    if kind not in _TYPES:
        raise InfeedError(f"the type is {kind!r}", where=where, do=f"use one of {', '.join(_TYPES)}")
    read, words, example = _TYPES[kind]
    try:
        return read(text)
    except (ValueError, KeyError) as error:
        raise InfeedError(f"{text!r} is not {words}", where=where, do=f"give a value such as {example}") from error


def read_parameters(given: Sequence[str], declared: Mapping[str, Parameter], job: str) -> dict[str, Value]:
    """The values of `NAME=VALUE` texts by name, each in its parameter's type.

    Args:
      given: of `--parameter`.
      declared: what the job takes.
      job: its name.

    Raises:
      InfeedError: the job has no such parameter, the value is of another type, a name is given twice, or a parameter
        that has no default is not given.
    """
    values: dict[str, Value] = {}
    for text in given:
        name, value = _read(text, declared)
        if name in values:
            raise InfeedError(f"two values for {name!r}", where=f"--parameter {text}", do="give one")
        values[name] = value
    missing = [name for name, known in declared.items() if known.default is None and name not in values]
    if missing:
        do = f"add {' '.join(f'--parameter {name}=VALUE' for name in missing)}"
        raise InfeedError(f"no value for {', '.join(missing)}", where=f"parameters of {job!r}", do=do)
    return values


def _read(text: str, declared: Mapping[str, Parameter]) -> tuple[str, Value]:
    name, equals, value = text.partition("=")
    where = f"--parameter {text}"
    if name not in declared:
        known = ", ".join(f"{each} ({it.type})" for each, it in declared.items())
        do = f"the job has {known}" if known else "leave it out: the job has no parameters"
        raise InfeedError(f"unknown parameter {name!r}", where=where, do=do)
    if not equals:
        raise InfeedError(f"no value for {name!r}", where=where, do=f"write --parameter {name}=VALUE")
    return name, parse(value, declared[name].type, where)
