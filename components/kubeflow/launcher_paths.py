"""Local paths that Kubeflow's launcher gives to artifacts in an object store.

The launcher downloads each input artifact before a step and uploads each output artifact after it. It derives the local
path from the URI: `s3://bucket/x` is `/s3/bucket/x`. See `LocalPathForURI` in
https://github.com/kubeflow/pipelines/blob/master/backend/src/v2/component/launcher_v2.go.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infeed.components.kubeflow.message import mapped

FOLDERS: Mapping[str, str] = {"gs": "gcs", "minio": "minio", "s3": "s3"}
ROOT_VARIABLE = "INFEED_LAUNCHER_ROOT"
"""Environment variable for the parent folder of `/gcs`, `/minio` and `/s3`. A rehearsal sets it."""


def local_path(uri: str, root: str | None = None) -> str | None:
    """Return the local path of an artifact. None if the launcher does not support the scheme of its URI.

    `root` is the parent of the folders: by default `INFEED_LAUNCHER_ROOT`, and then `/`.
    """
    scheme, is_uri, rest = uri.partition("://")
    if not is_uri or scheme not in FOLDERS:
        return None
    return os.path.join(root or os.environ.get(ROOT_VARIABLE, "/"), FOLDERS[scheme], rest.rstrip("/"))


def artifacts(message: Any, kind: str, *, later: bool = False) -> Iterator[Any]:
    """Yield the artifacts of the inputs or outputs of a step. With `later`, skip the first of each list."""
    for found in message.get(kind, {}).get("artifacts", {}).values():
        yield from found.get("artifacts", [])[int(later) :]


@dataclass(frozen=True)
class PathMap:
    """Two-way mapping between the URIs of a step's artifacts and their local paths."""

    paths: Mapping[str, str]

    @classmethod
    def of(cls, uris: Iterable[str]) -> PathMap:
        """Map every URI whose scheme the launcher supports."""
        found = {uri: local_path(uri) for uri in uris}
        return cls({uri: path for uri, path in found.items() if path is not None})

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
