"""Checkpoints in a store that TensorFlow cannot open: written locally, and copied to the store after each save.

TensorFlow 2.18 and later opens neither `s3://` nor `minio://`. A retried step runs on another machine, so checkpoints
must leave this one.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files

_STATE = "checkpoint"  # TensorFlow's list of checkpoints, which every save rewrites
_SCHEMES = ("s3://", "minio://")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CheckpointMirror:
    """Folder of checkpoints in a store (`remote`), and its copy on this machine (`local`)."""

    remote: str
    local: str

    @classmethod
    def of(cls, folder: str) -> CheckpointMirror | None:
        """Copy the checkpoints of `folder` to this machine, until this process exits.

        Return None if TensorFlow can open the folder.
        """
        if not folder.startswith(_SCHEMES):
            return None
        mirror = cls(folder.rstrip("/"), files.folder_until_exit("infeed-checkpoints-"))
        if files.exists(mirror.remote):
            _log.info("downloading checkpoints from %s", mirror.remote)
            files.copy(mirror.remote, mirror.local)
        return mirror

    def upload(self) -> None:
        """Copy new files to the store, the index of a checkpoint last, and delete files that no longer exist locally.

        A checkpoint without its index does not count, so after a killed upload the previous one is used. Raises
        OSError if the store fails.
        """
        here = {file.name for file in os.scandir(self.local) if file.is_file()}
        try:
            there = {files.name(file.path) for file in files.list_files(self.remote)}
            # Files of a checkpoint never change, except TensorFlow's list of checkpoints.
            new = [name for name in here if name not in there or name == _STATE]
            for name in sorted(new, key=_is_index):
                files.copy(os.path.join(self.local, name), files.join(self.remote, name))
            for name in sorted(there - here, key=_is_index, reverse=True):
                files.remove(files.join(self.remote, name))
        except InfeedError as error:  # after an OSError, training continues without a checkpoint
            raise OSError(str(error)) from error

    def remove(self) -> None:
        files.remove(self.remote)


def _is_index(name: str) -> bool:
    return name.endswith(".index")
