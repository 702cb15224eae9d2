"""Messages between Kubeflow's launcher and a TFX step: fixes for the ExecutorInput and the ExecutorOutput.

The driver adds an output. ML Metadata loses the types of inputs and wraps lists and objects. The launcher rejects
nulls, NaN and infinities. Observed with Kubeflow Pipelines 2.5.0, 2.17.0 and later. TFX's own entry point fails there
(https://github.com/tensorflow/tfx/issues/7768).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
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


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a copy of JSON data with `change` applied to every value except lists and dicts."""
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [mapped(item, change) for item in value]
    return change(value)


def read(arguments: Sequence[str]) -> tuple[Any, int]:
    """Return the ExecutorInput as the component declares it, and its index in the command line."""
    place = arguments.index(ARGUMENT) + 1
    message = json.loads(arguments[place])
    inputs, outputs = message.setdefault("inputs", {}), message["outputs"]
    # TFX's compiler wrote the types of the inputs into the command line.
    declared = json.loads(arguments[arguments.index(INPUTS) + 1]) if INPUTS in arguments else {}
    for name, found in inputs.get("artifacts", {}).items():
        type_ = declared.get("artifacts", {}).get(name, {}).get("artifactType")
        for artifact in found.setdefault("artifacts", []):  # the driver omits an empty list
            metadata = {key: _unwrapped(value) for key, value in artifact.get("metadata", {}).items()}
            artifact |= present({"type": type_, "metadata": metadata})
    if artifacts := outputs.get("artifacts"):
        outputs["artifacts"] = {name: found for name, found in artifacts.items() if not _is_of_driver(found)}
    return message, place


def accepted(output: Any) -> str:
    """Return an ExecutorOutput as JSON that the launcher accepts: NaN and infinities as text, and no nulls."""
    return json.dumps(_accepted(output), allow_nan=False)


def _unwrapped(value: Any) -> Any:
    if isinstance(value, Mapping) and len(value) == 1 and (name := next(iter(value))) in _WRAPPERS:
        return value[name]
    return value


def _is_of_driver(found: Mapping[str, Any]) -> bool:
    return any(one.get("type", {}).get("schemaTitle") == _OF_DRIVER for one in found.get("artifacts", ()))


def _accepted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _accepted(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_accepted(one) for one in value if one is not None]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
