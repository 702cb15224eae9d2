"""Disk of a step's pod. Kubernetes evicts a pod that uses more ephemeral storage than its limit.

The artifacts that Kubeflow's launcher downloads count, so a step can compare their size with the limit.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from infeed.components.base.errors import InfeedError
from infeed.components.base.units import size
from infeed.components.dataset import files

RESOURCE = "ephemeral-storage"
"""Kubernetes' name of the resource."""
VARIABLE = "INFEED_EPHEMERAL_STORAGE"
"""Environment variable of a step: its limit in bytes. Not set if there is none, or the downloads go to a volume."""


def limit_of(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return the limit of a step in bytes; None for no limit."""
    return int(environment[VARIABLE]) if VARIABLE in environment else None


def remedy(*, direct: bool) -> str:
    """Return what to do about a disk that is too small.

    `direct` is whether the step would read Examples from the store with `deploy.reading: direct`.
    """
    more = ", or set deploy.reading: direct" if direct else ""
    return f"raise ephemeral_storage, or mount ephemeral_volumes at /gcs, /s3 or /minio{more}"


def check_inputs(
    places: Iterable[str], limit: int | None, where: str = "deploy.resources", *, direct: bool = False
) -> None:
    """Raise InfeedError if the inputs of a step, paths or URIs, take more than its limit in bytes; None for no limit.

    `where` is the setting of the step, for the error. For `direct` see `remedy`.
    """
    if limit is None:
        return
    sizes = {place: bytes_of(place) for place in places}
    needed = sum(sizes.values())
    if needed > limit:
        largest = max(sizes, key=lambda place: sizes[place])
        raise InfeedError(
            f"the inputs take {size(needed)} of the pod's disk, {files.name(largest)!r} {size(sizes[largest])} of it, "
            f"and ephemeral_storage is {size(limit)}",
            where=where,
            do=remedy(direct=direct),
        )


def bytes_of(place: str) -> int:
    """Return the size of a file, or of all files below a folder; 0 if there is none."""
    if files.is_folder(place):
        return sum(file.size for file in files.list_files(place, depth=100))
    return files.stat(place).size if files.exists(place) else 0
