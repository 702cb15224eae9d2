"""Messages between Kubeflow's launcher and a TFX step, with the local paths and the long parameters in them.

The driver adds an output. ML Metadata loses the types of inputs and wraps lists and objects. The launcher rejects
nulls, NaN and infinities. Observed with Kubeflow Pipelines 2.5.0, 2.17.0 and later. TFX's own entry point fails there
(https://github.com/tensorflow/tfx/issues/7768).

The launcher downloads each input artifact before a step and uploads each output artifact after it. It derives the local
path from the URI: `s3://bucket/x` is `/s3/bucket/x`. See `LocalPathForURI` in
https://github.com/kubeflow/pipelines/blob/master/backend/src/v2/component/launcher_v2.go.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ARGUMENT = "--json_serialized_invocation_args"
INPUTS = "--json_serialized_inputs_spec_args"
FOLDERS: Mapping[str, str] = {"gs": "gcs", "minio": "minio", "s3": "s3"}
ROOT_VARIABLE = "INFEED_LAUNCHER_ROOT"
"""Environment variable for the parent folder of `/gcs`, `/minio` and `/s3`. A rehearsal sets it."""
_OF_DRIVER = "system.Artifact"  # type of `executor-logs`, a file that exists before the step; TFX has no such type
_WRAPPERS = ("list", "struct")  # ML Metadata keeps a list or an object as a struct with this one key
_TITLE = re.compile(r"^title:\s*(.+?)\s*$", re.MULTILINE)
_PACKED = "infeed+gzip:"


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


def artifacts(message: Any, kind: str, *, later: bool = False) -> Iterator[Any]:
    """Yield the artifacts of the inputs or outputs of a step. With `later`, skip the first of each list."""
    for found in message.get(kind, {}).get("artifacts", {}).values():
        yield from found.get("artifacts", [])[int(later) :]


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
            metadata = artifact.get("metadata", {})
            for key, value in metadata.items():
                if isinstance(value, dict) and len(value) == 1 and (wrapper := next(iter(value))) in _WRAPPERS:
                    metadata[key] = value[wrapper]
            artifact |= present({"type": type_, "metadata": metadata})
    if given := outputs.get("artifacts"):
        of_driver = {
            name
            for name, found in given.items()
            for one in found.get("artifacts", ())
            if one.get("type", {}).get("schemaTitle") == _OF_DRIVER
        }
        outputs["artifacts"] = {name: found for name, found in given.items() if name not in of_driver}
    return message, place


def accepted(output: Any) -> str:
    """Return an ExecutorOutput as JSON that the launcher accepts: NaN and infinities as text, and no nulls."""

    def sound(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: sound(one) for key, one in value.items() if one is not None}
        if isinstance(value, list):
            return [sound(one) for one in value if one is not None]
        return str(value) if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(sound(output), allow_nan=False)


def local_path(uri: str, root: str | None = None) -> str | None:
    """Return the local path of an artifact. None if the launcher does not support the scheme of its URI.

    `root` is the parent of the folders: by default `INFEED_LAUNCHER_ROOT`, and then `/`.
    """
    scheme, is_uri, rest = uri.partition("://")
    if not is_uri or scheme not in FOLDERS:
        return None
    return os.path.join(root or os.environ.get(ROOT_VARIABLE, "/"), FOLDERS[scheme], rest.rstrip("/"))


@dataclass(frozen=True)
class PathMap:
    """Two-way mapping between the URIs of a step's artifacts and their local paths."""

    paths: Mapping[str, str]

    @classmethod
    def of(cls, uris: Iterable[str]) -> PathMap:
        """Map every URI whose scheme the launcher supports."""
        return cls({uri: path for uri in uris if (path := local_path(uri)) is not None})

    def to_local(self, value: Any) -> Any:
        """Replace the URIs in JSON data, and paths below them, with local paths."""
        return _replaced(value, self.paths)

    def to_uris(self, value: Any) -> Any:
        """Replace the local paths in JSON data, and paths below them, with URIs."""
        return _replaced(value, {path: uri for uri, path in self.paths.items()})


def _replaced(value: Any, names: Mapping[str, str]) -> Any:
    def in_text(one: Any) -> Any:
        for old, new in names.items() if isinstance(one, str) else ():
            if one == old or one.startswith(f"{old}/"):
                return new + one[len(old) :]
        return one

    return mapped(value, in_text)


def pack(text: str) -> str:
    """Compress a long parameter to ASCII. The result is deterministic.

    Kubeflow and Vertex AI pass all parameters of a step in one argument, and Linux limits an argument to 128 KiB. The
    features of a table with thousands of columns exceed the limit.
    """
    return _PACKED + base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def is_packed(value: Any) -> bool:
    """Return whether `pack` compressed the value."""
    return isinstance(value, str) and value.startswith(_PACKED)


def unpack(value: Any) -> Any:
    """Decompress a text that `pack` compressed. Return any other value unchanged."""
    if not is_packed(value):
        return value
    return gzip.decompress(base64.b64decode(value.removeprefix(_PACKED))).decode()
