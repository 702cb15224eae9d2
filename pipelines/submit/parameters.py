"""`--parameter NAME=VALUE`: checked against the parameters that the job declares, and brought into their types."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from infeed.components.errors import InfeedError
from infeed.pipelines.deploy.compiled import CompiledJob

# The types that schema 2.1 has beside STRING, with an example of each: ParameterType.ParameterTypeEnum in
# https://github.com/kubeflow/pipelines/blob/master/api/v2alpha1/pipeline_spec.proto
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "NUMBER_INTEGER": ((int,), "5"),
    "NUMBER_DOUBLE": ((int, float), "0.1"),
    "BOOLEAN": ((bool,), "true or false"),
    "LIST": ((list,), '["a", "b"]'),
    "STRUCT": ((dict,), '{"a": 1}'),
}


def read_parameters(given: Sequence[str], job: CompiledJob) -> dict[str, Any]:
    """The values of `NAME=VALUE` texts by name, each in its parameter's type.

    Raises:
      InfeedError: the job has no such parameter, the value is of another type, a name is given twice, or a parameter
        that has no default is not given.
    """
    values: dict[str, Any] = {}
    for text in given:
        name, value = _read(text, job)
        if name in values:
            raise InfeedError(f"two values for {name!r}", where=f"--parameter {text}", do="give one")
        values[name] = value
    _check_complete(values, job)
    return values


def _read(text: str, job: CompiledJob) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    where = f"--parameter {text}"
    if name not in job.parameters:
        known = ", ".join(f"{each} ({it.type})" for each, it in job.parameters.items())
        raise InfeedError(
            f"unknown parameter {name!r}",
            where=where,
            do=f"the job has {known}" if known else "leave it out: the job has no parameters",
        )
    if not equals:
        raise InfeedError(f"no value for {name!r}", where=where, do=f"write --parameter {name}=VALUE")
    kind = job.parameters[name].type
    return name, value if kind == "STRING" else _typed(value, kind, where)


def _typed(text: str, kind: str, where: str) -> Any:
    types, example = _TYPES[kind]
    refused = InfeedError(f"{text!r} is no {kind}", where=where, do=f"give a value such as {example}")
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except ValueError:
        raise refused from None
    if type(value) not in types:  # not isinstance: True is an int to Python, and to nobody else
        raise refused
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is Python's, not JSON")


def _check_complete(values: dict[str, Any], job: CompiledJob) -> None:
    missing = [name for name, known in job.parameters.items() if known.default is None and name not in values]
    if missing:
        raise InfeedError(
            f"no value for {', '.join(missing)}",
            where=f"parameters of {job.name!r}",
            do=f"add {' '.join(f'--parameter {name}=VALUE' for name in missing)}",
        )
