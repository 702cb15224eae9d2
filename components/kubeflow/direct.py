"""Examples that steps read from the object store: `deploy.reading: direct`.

Kubeflow's launcher downloads every input artifact whole before a step begins, and has no option to skip one. With
this setting, an ExampleGen writes its Examples to the folder `direct` beside the artifact. The artifact holds only a
file that names the folder, and the launcher moves that file. The steps of this package read the Examples from the
store. For other steps, the entry point downloads them.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import sys
from collections.abc import Iterator
from typing import Any

from infeed.components.base.errors import InfeedError
from infeed.components.base.units import size
from infeed.components.dataset import files
from infeed.components.kubeflow import disk
from infeed.components.kubeflow.launcher_paths import PathMap, artifacts
from infeed.components.kubeflow.message import title_of

VARIABLE = "INFEED_READING"
"""Environment variable of the steps; the value `direct` turns the setting on."""
POINTER = "direct.txt"


def replaced(uris: PathMap, message: Any, executor: str) -> PathMap:
    """Replace the local paths of Examples with their folders in the store.

    If the executor, an import path, is not in this package, download its Examples. Raise InfeedError if they do not
    fit on the disk.
    """
    paths = dict(uris.paths)
    for uri in _examples(message, "inputs", uris):
        if os.path.isfile(pointer := os.path.join(paths[uri], POINTER)):
            place = files.read_bytes(pointer).decode()
            if executor.startswith("infeed.components."):
                paths[uri] = place
            else:
                download(place, paths[uri])
    if os.environ.get(VARIABLE) == "direct" and executor.startswith("infeed.components.example_gen."):
        for uri in _examples(message, "outputs", uris):
            # Not a sibling with the artifact's name as its prefix: the launcher would download it as well.
            place = f"{posixpath.dirname(uri)}/direct/{files.name(uri)}"
            files.write_bytes(os.path.join(paths[uri], POINTER), place.encode())
            paths[uri] = place
    return PathMap(paths)


def download(uri: str, path: str) -> None:
    """Copy a folder from the store to this disk. Raise InfeedError if it does not fit."""
    needed = disk.bytes_of(uri)
    os.makedirs(path, exist_ok=True)
    free = min(shutil.disk_usage(path).free, disk.limit_of() or sys.maxsize)
    if needed > free:
        do = "mount a volume at /gcs, /s3 or /minio: ephemeral_volumes of the node in deploy.resources"
        raise InfeedError(
            f"the artifact takes {size(needed)}, but the disk has only {size(free)} free", where=uri, do=do
        )
    files.copy(uri, path)


def _examples(message: Any, kind: str, uris: PathMap) -> Iterator[str]:
    """Yield the URIs of the mapped Examples among the inputs or outputs."""
    for artifact in artifacts(message, kind):
        if artifact["uri"] in uris.paths and title_of(artifact.get("type", {})) == "tfx.Examples":
            yield artifact["uri"]
