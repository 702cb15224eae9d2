"""Disk of a step's pod. Kubernetes evicts a pod that uses more ephemeral storage than its limit.

Downloaded artifacts count toward the limit, so a step compares their size with it.
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
"""Environment variable of a step: its limit in bytes. Unset without a limit, or if downloads go to a volume."""


def limit_of(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return the limit of a step in bytes. None without a limit."""
    return int(environment[VARIABLE]) if VARIABLE in environment else None


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
