"""Disk of a step's pod, and Examples that steps read from the object store instead: `deploy.reading: direct`.

Kubernetes evicts a pod that uses more ephemeral storage than its limit. Downloaded artifacts count toward the limit, so
a step compares their size with it.

Kubeflow's launcher downloads every input artifact whole before a step begins, and has no option to skip one. With
`direct`, an ExampleGen writes its Examples to the folder `direct` beside the artifact. The artifact holds only a file
that names the folder, and the launcher moves that file. The steps of this package read the Examples from the store.
For other steps, the entry point downloads them.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from infeed.components.base.errors import InfeedError
from infeed.components.base.units import size
from infeed.components.dataset import files
from infeed.components.kubeflow.message import PathMap, artifacts, title_of

RESOURCE = "ephemeral-storage"
"""Kubernetes' name of the resource."""
LIMIT_VARIABLE = "INFEED_EPHEMERAL_STORAGE"
"""Environment variable of a step: its limit in bytes. Unset without a limit, or if downloads go to a volume."""
READING_VARIABLE = "INFEED_READING"
"""Environment variable of the steps; the value `direct` turns the setting on."""
POINTER = "direct.txt"


def limit_of(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return the limit of a step in bytes. None without a limit."""
    return int(environment[LIMIT_VARIABLE]) if LIMIT_VARIABLE in environment else None


def remedy(*, direct: bool) -> str:
    """Return the remedy for a disk that is too small.

    `direct` is whether `deploy.reading: direct` would make the step read Examples from the store.
    """
    more = ", or set deploy.reading: direct" if direct else ""
    return f"raise ephemeral_storage, or mount ephemeral_volumes at /gcs, /s3 or /minio{more}"


def check_inputs(
    places: Iterable[str], limit: int | None, where: str = "deploy.resources", *, direct: bool = False
) -> None:
    """Raise InfeedError if the inputs of a step, paths or URIs, exceed its limit in bytes. None is no limit.

    `where` is the setting of the step, for the error. For `direct` see `remedy`.
    """
    if limit is None:
        return
    sizes = {place: bytes_of(place) for place in places}
    needed = sum(sizes.values())
    if needed > limit:
        largest = max(sizes, key=lambda place: sizes[place])
        raise InfeedError(
            f"the inputs take {size(needed)} of the pod's disk, including {size(sizes[largest])} of "
            f"{files.name(largest)!r}, but ephemeral_storage is {size(limit)}",
            where=where,
            do=remedy(direct=direct),
        )


def bytes_of(place: str) -> int:
    """Return the size of a file, or of all files below a folder. 0 if it does not exist."""
    if files.is_folder(place):
        return sum(file.size for file in files.list_files(place, depth=100))
    return files.stat(place).size if files.exists(place) else 0


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
    if os.environ.get(READING_VARIABLE) == "direct" and executor.startswith("infeed.components.example_gen."):
        for uri in _examples(message, "outputs", uris):
            # Not a sibling with the artifact's name as its prefix: the launcher would download it as well.
            place = f"{posixpath.dirname(uri)}/direct/{files.name(uri)}"
            files.write_bytes(os.path.join(paths[uri], POINTER), place.encode())
            paths[uri] = place
    return PathMap(paths)


def download(uri: str, path: str) -> None:
    """Copy a folder from the store to this disk. Raise InfeedError if it does not fit."""
    needed = bytes_of(uri)
    os.makedirs(path, exist_ok=True)
    free = min(shutil.disk_usage(path).free, limit_of() or sys.maxsize)
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
