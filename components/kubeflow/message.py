"""Messages between Kubeflow's launcher and a TFX step: fixes for the ExecutorInput and the ExecutorOutput.

The driver adds an output. ML Metadata loses the types of inputs and wraps lists and objects. The launcher rejects
nulls, NaN and infinities. Observed with Kubeflow Pipelines 2.5.0, 2.17.0 and later. TFX's own entry point fails there
(https://github.com/tensorflow/tfx/issues/7768).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

ARGUMENT = "--json_serialized_invocation_args"
INPUTS = "--json_serialized_inputs_spec_args"
_OF_DRIVER = "system.Artifact"  # type of `executor-logs`, a file that exists before the step; TFX has no such type
_WRAPPERS = ("list", "struct")  # ML Metadata keeps a list or an object as a struct with this one key
_TITLE = re.compile(r"^title:\s*(.+?)\s*$", re.MULTILINE)


def present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value. The JSON of protobuf and of Kubernetes omits the others."""
    return {name: value for name, value in fields.items() if value}


def title_of(type_: Mapping[str, Any]) -> str:
    """Return the name of an artifact's type, such as `tfx.Model` or `system.Dataset`."""
    title = _TITLE.search(type_.get("instanceSchema", ""))
    return title[1] if title else str(type_.get("schemaTitle", ""))


def read(arguments: Sequence[str]) -> tuple[Any, int]:
    """Return the ExecutorInput as the component declares it, and its index in the command line."""
    place = arguments.index(ARGUMENT) + 1
    message = json.loads(arguments[place])
    return {
        **message,
        "inputs": _with_types(message.get("inputs", {}), _declared_types(arguments)),
        "outputs": _without_logs(message["outputs"]),
    }, place


def accepted(output: Any) -> str:
    """Return an ExecutorOutput as JSON that the launcher accepts: NaN and infinities as text, and no nulls."""
    return json.dumps(_accepted(output), allow_nan=False)


def _declared_types(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the type of each input artifact by name, which TFX's compiler wrote into the command line."""
    if INPUTS not in arguments:
        return {}
    declared = json.loads(arguments[arguments.index(INPUTS) + 1])
    return {name: spec["artifactType"] for name, spec in declared.get("artifacts", {}).items()}


def _with_types(inputs: Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, Any]:
    artifacts = {
        name: {**found, "artifacts": [_as_written(one, types.get(name)) for one in found.get("artifacts", [])]}
        for name, found in inputs.get("artifacts", {}).items()
    }
    return {**inputs, "artifacts": artifacts} if artifacts else dict(inputs)


def _as_written(artifact: Mapping[str, Any], type_: Any) -> dict[str, Any]:
    metadata = {name: _unwrapped(value) for name, value in artifact.get("metadata", {}).items()}
    return {**artifact, **({"type": type_} if type_ else {}), **({"metadata": metadata} if metadata else {})}


def _unwrapped(value: Any) -> Any:
    if isinstance(value, Mapping) and len(value) == 1 and (name := next(iter(value))) in _WRAPPERS:
        return value[name]
    return value


def _without_logs(outputs: Mapping[str, Any]) -> dict[str, Any]:
    artifacts = outputs.get("artifacts", {})
    kept = {name: found for name, found in artifacts.items() if not _is_of_driver(found)}
    return {**outputs, "artifacts": kept} if artifacts else dict(outputs)


def _is_of_driver(found: Mapping[str, Any]) -> bool:
    return any(one.get("type", {}).get("schemaTitle") == _OF_DRIVER for one in found.get("artifacts", ()))


def _accepted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _accepted(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_accepted(one) for one in value if one is not None]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
