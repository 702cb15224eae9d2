"""Conditions of tasks: expressions in CEL over the task's inputs, as kfp's `dsl.If` and TFX's `Cond` compile to."""

from __future__ import annotations

from typing import Any

from infeed.components.errors import InfeedError
from infeed.pipelines.rehearse.scope import Bundle


def holds(condition: str, inputs: Bundle) -> bool:
    """Whether the task is to run.

    Numbers are doubles, as in the protobuf messages that the cluster evaluates the expression over.

    Raises:
      InfeedError: not an expression, or one about inputs that the task does not have.
    """
    from celpy import Environment  # only here: it takes a second, and most jobs have no conditions
    from celpy.celparser import CELParseError
    from celpy.celtypes import BoolType
    from celpy.evaluation import CELEvalError

    environment, problem = Environment(), "it is neither true nor false"
    try:
        result = environment.program(environment.compile(condition)).evaluate({"inputs": _to_cel(inputs)})
    except (CELParseError, CELEvalError) as error:
        result, problem = None, str(error.args[0])
    if not isinstance(result, BoolType):
        raise InfeedError(f"cannot evaluate the condition: {problem}", where=condition, do="mend it in the pipeline")
    return bool(result)


def _to_cel(inputs: Bundle) -> Any:
    from celpy.adapter import json_to_cel

    artifacts = {key: {"artifacts": [a.to_json() for a in found]} for key, found in inputs.artifacts.items()}
    return json_to_cel(_doubles({"parameter_values": dict(inputs.parameters), "artifacts": artifacts}))


def _doubles(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _doubles(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_doubles(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
