"""Messages of Kubeflow's driver and launcher, by version: the ExecutorInput of a step, and checks of its output.

ML Metadata loses the types of artifacts, booleans and lists. The launcher parses the ExecutorOutput as protobuf's JSON
and rejects other values. The tests compare this module with messages of real versions in `tests/data/kubeflow`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Literal

from infeed.components.base.errors import InfeedError
from infeed.components.kubeflow.message import mapped, present

Kfp = Literal["2.5", "2.14", "2.15", "2.17"]
"""First version of Kubeflow Pipelines for each form of the messages."""
LOGS = "executor-logs"
"""Output that the driver adds to every step."""
_LOST_TYPE = {"instanceSchema": ""}
_FIELDS = {"parameters", "artifacts", "parameterValues", "parameter_values"}
_ARTIFACT_FIELDS = {
    *("name", "type", "uri", "properties", "customProperties", "custom_properties"),
    *("metadata", "customPath", "custom_path"),
}
_DO = "correct what the step writes: Kubeflow's launcher fails the step after it has succeeded"


def since(kfp: Kfp, version: Kfp) -> bool:
    """Report whether `kfp` is `version` or a later one."""
    return _number(kfp) >= _number(version)


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def logs_name(kfp: Kfp, attempt: int) -> str:
    """Return the last part of the URI of the logs. `attempt` counts from 1."""
    return f"{LOGS}-{attempt - 1}" if since(kfp, "2.17") else LOGS


def handed(message: Any, kfp: Kfp, logs_uri: str, number_of: Callable[[str], int]) -> Any:
    """Return an ExecutorInput as the driver passes it to a step.

    `number_of` returns the id of an input artifact in the metadata store, from the artifact's name.
    """
    inputs, outputs = message["inputs"], message["outputs"]
    taken = {**inputs, "artifacts": _each(inputs["artifacts"], lambda _, one: _input(one, number_of(one["name"])))}
    logs = {"artifacts": [{"type": {"schemaTitle": "system.Artifact"}, "uri": logs_uri, "metadata": {}}]}
    written = {
        "parameters": outputs["parameters"],
        "artifacts": _each({**outputs["artifacts"], LOGS: logs}, lambda key, one: _output(one, key, kfp)),
        "outputFile": outputs["outputFile"],
    }
    return {"inputs": present(taken), "outputs": present(written)}


def _each(artifacts: Mapping[str, Any], change: Callable[[str, Any], Any]) -> dict[str, Any]:
    return {key: {"artifacts": [change(key, one) for one in found["artifacts"]]} for key, found in artifacts.items()}


def _input(artifact: Mapping[str, Any], number: int) -> dict[str, Any]:
    provider = artifact["uri"].partition("://")[0] if "://" in artifact["uri"] else "s3"
    session = json.dumps({"Provider": provider, "Params": {"fromEnv": "true"}}, separators=(",", ":"))
    kept = {name: kept_value(value) for name, value in artifact["metadata"].items()}
    key = artifact["name"].rpartition("/")[2]  # empty for an artifact of an importer, which has no display name
    metadata = {**present({"display_name": key}), "store_session_info": session, **kept}
    return {"name": str(number), "type": _LOST_TYPE, "uri": artifact["uri"], "metadata": metadata}


def _output(artifact: Mapping[str, Any], key: str, kfp: Kfp) -> dict[str, Any]:
    named = {"name": key} if since(kfp, "2.15") else {}
    declared = {"type": artifact["type"], "uri": artifact["uri"]}
    return {**named, **declared, **present({"metadata": whole_numbers(artifact["metadata"])})}


def kept_value(value: Any) -> Any:
    """Return a metadata value as ML Metadata returns it: booleans as integers, lists and objects wrapped."""
    if isinstance(value, bool):
        return int(value)
    whole = whole_numbers(value)
    if isinstance(value, (list, dict)):
        return {"list" if isinstance(value, list) else "struct": whole}
    return whole


def whole_numbers(value: Any) -> Any:
    """Return JSON data with 3 in place of 3.0, because protobuf's JSON writes the shortest form."""
    return mapped(value, lambda one: int(Decimal(repr(one))) if isinstance(one, float) and one.is_integer() else one)


def read_strictly(text: str, where: str, root: str) -> Any:
    """Read an ExecutorOutput as the launcher does, and return it.

    `root` is the folder of the run's artifacts. Raises InfeedError for NaN and infinities, null in metadata, unknown
    fields, and a URI outside the root.
    """

    def refuse(what: str) -> InfeedError:
        return InfeedError(f"the launcher refuses the ExecutorOutput: {what}", where=where, do=_DO)

    def constant(name: str) -> Any:
        raise refuse(f"invalid value {name}")

    output = json.loads(text, parse_constant=constant)
    for field in output.keys() - _FIELDS:
        raise refuse(f"unknown field {field!r}")
    for key, found in output.get("artifacts", {}).items():
        for one in found.get("artifacts", ()):
            for field in one.keys() - _ARTIFACT_FIELDS:
                raise refuse(f"unknown field {field!r} of artifact {key!r}")
            if any(value is None for value in one.get("metadata", {}).values()):
                raise refuse(f"null in the metadata of artifact {key!r}")
            uri = one.get("uri") or root
            if uri != root and not uri.startswith(f"{root.rstrip('/')}/"):
                raise refuse(f"the URI {uri!r} of artifact {key!r} is outside the run's root {root!r}")
    return output
