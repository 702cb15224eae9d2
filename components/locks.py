"""One process at a time: a lock on a file, which the system releases when the process ends, however the process ends.

The file names its owner for the error of the second process. A file that a killed process left behind holds no lock.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from infeed.components.errors import InfeedError

_log = logging.getLogger(__name__)
_MOST_BYTES = 1 << 16  # of what the file says


@contextmanager
def alone(path: Path, *, doing: str, where: str, do: str) -> Iterator[None]:
    """Hold the lock on `path` inside; the file is removed in the end.

    Args:
      path: file of the lock; its folder exists.
      doing: what the owner does, such as "another run uses this folder".
      where: folder or file that the lock protects, for the error.
      do: what the user of the second process can do.

    Raises:
      InfeedError: another process holds the lock, and the error names it; or the file cannot be made.
    """
    handle = _locked(path, doing, where, do)
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(this_process()).encode(), 0)
        yield
    finally:
        with suppress(FileNotFoundError):
            path.unlink()
        os.close(handle)


def _locked(path: Path, doing: str, where: str, do: str) -> int:
    # By hand: filelock leaves its file behind or empties it, depending on its version.
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            permit = "choose another place, or change the permissions"
            raise InfeedError(f"cannot write there: {error.strerror}", where=where, do=permit) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = owner_of(os.pread(handle, _MOST_BYTES, 0))
            os.close(handle)
            raise InfeedError(f"{doing}{owner}", where=where, do=do) from error
        except OSError as error:
            _log.warning("%s: the file system has no locks (%s): keep other processes out yourself", path, error)
            return handle
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                return handle
        os.close(handle)  # the last owner has just removed the file


def this_process() -> dict[str, str | int]:
    """Describe this process as the owner of a lock."""
    now = datetime.now().isoformat(sep=" ", timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": now, "command": " ".join(sys.argv)}


def owner_of(content: bytes) -> str:
    """`: process 12 on host 'a' since 2026-01-31 12:00:00: infeed run`, as far as the owner has written it."""
    with suppress(ValueError, TypeError, KeyError):
        found = json.loads(content)
        return f": process {found['pid']} on host {found['host']!r} since {found['since']}: {found['command']}"
    return ""
