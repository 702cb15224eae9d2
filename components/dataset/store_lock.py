"""One process at a time in a folder of an object store, as far as a store without locks allows it.

The lock is an object that names its owner and is written anew every half minute, so one that is older was left by a
process that was killed. Of two that write it at the same moment, the one goes on that finds its own words there after a
second.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from infeed.components.dataset import files
from infeed.components.errors import InfeedError
from infeed.components.locks import owner_of, this_process

_EVERY = 30.0  # seconds between two renewals
_STALE = 4 * _EVERY  # seconds, with room for clocks that differ
_SETTLES = 1.0  # seconds until the words of two that write at once are those of one


@contextmanager
def alone_on_store(path: str, *, where: str, do: str) -> Iterator[None]:
    """Hold the lock inside; the object is removed in the end.

    Args:
      path: of the object.
      where: folder that the lock protects, for the error.
      do: what the user of the second process can do.

    Raises:
      InfeedError: another process holds the lock, and the error names it.
    """
    _refuse_if(_is_held(path), path, where, do)
    mine = json.dumps({**this_process(), "token": uuid.uuid4().hex}).encode()
    files.write_bytes(path, mine)
    time.sleep(_SETTLES)
    _refuse_if(files.read_bytes(path) != mine, path, where, do)
    ended = threading.Event()
    renewing = threading.Thread(target=_renew, args=(path, mine, ended), daemon=True)
    renewing.start()
    try:
        yield
    finally:
        ended.set()
        renewing.join()
        files.remove(path)


def _is_held(path: str) -> bool:
    try:
        return time.time() - files.stat(path).mtime_ns / 1e9 < _STALE
    except FileNotFoundError:
        return False


def _refuse_if(held: bool, path: str, where: str, do: str) -> None:
    if held:
        owner = ""
        with suppress(OSError):  # it may have ended meanwhile
            owner = owner_of(files.read_bytes(path))
        raise InfeedError(f"another process is writing there{owner}", where=where, do=do)


def _renew(path: str, mine: bytes, ended: threading.Event) -> None:
    while not ended.wait(_EVERY):
        with suppress(OSError, InfeedError):  # it is tried again, three times before the lock is stale
            files.write_bytes(path, mine)
