"""File lock that one process holds at a time. The operating system releases it when the process ends, even if killed.

The file describes the owner, for error messages of other processes. A file that a killed process left is not a lock.
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

from infeed.components.base.errors import InfeedError

_log = logging.getLogger(__name__)
_MOST_BYTES = 1 << 16  # maximum bytes of the file to read


@contextmanager
def alone(path: Path, *, doing: str, where: str, do: str, wait: bool = False) -> Iterator[None]:
    """Hold a lock file during the body, and remove it afterwards. The folder of `path` must exist.

    If another process holds the lock, wait, or raise InfeedError. The error names the owner, its task
    (`doing`, such as "another run uses this folder"), the locked path (`where`), and the remedy (`do`). Also raises
    InfeedError if the file cannot be created.
    """
    handle = _locked(path, doing, where, do, wait)
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(this_process()).encode(), 0)
        yield
    finally:
        # Unlink before the lock is released, because another process may then create and lock a new file.
        with suppress(FileNotFoundError):
            path.unlink()
        os.close(handle)


def is_held(path: Path) -> bool:
    """Return whether any process holds the lock on `path`. False on a file system without locks."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # the file system does not support locks: `alone` continues without one
        return False
    finally:
        os.close(handle)
    return False


def _locked(path: Path, doing: str, where: str, do: str, wait: bool) -> int:
    # Not filelock, because some versions keep its file and others empty it.
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            permit = "choose another folder, or change the permissions"
            raise InfeedError(f"cannot write: {error.strerror}", where=where, do=permit) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            owner = owner_of(os.pread(handle, _MOST_BYTES, 0))
            os.close(handle)
            raise InfeedError(f"{doing}{owner}", where=where, do=do) from error
        except OSError as error:
            _log.warning(
                "%s: the file system does not support locks (%s). Make sure that no other process uses the folder",
                path,
                error,
            )
            return handle
        # A lock on a file that its previous owner has just removed excludes no one, so try again with the new file.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                return handle
        os.close(handle)


def this_process() -> dict[str, str | int]:
    """Describe this process as the owner of a lock."""
    now = datetime.now().isoformat(sep=" ", timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": now, "command": " ".join(sys.argv)}


def owner_of(content: bytes) -> str:
    """Describe the owner of a lock, such as `: process 12 on host 'a' since 2026-01-31 12:00:00: infeed run`."""
    with suppress(ValueError, TypeError, KeyError):
        found = json.loads(content)
        return f": process {found['pid']} on host {found['host']!r} since {found['since']}: {found['command']}"
    return ""
