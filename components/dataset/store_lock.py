"""Best-effort lock on a folder of an object store. Object stores have no native locks.

The lock is an object that names its owner. The owner rewrites the object every 30 seconds, so an older object belongs
to a killed process. If two processes write the object at once, the one that reads back its own text after a second
holds the lock.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from infeed.components.base.errors import InfeedError
from infeed.components.base.locks import owner_of, this_process
from infeed.components.dataset import files

_log = logging.getLogger(__name__)
_STALE = 120.0  # seconds: four missed renewals, with a margin for clock differences


@contextmanager
def alone_on_store(
    path: str, *, where: str, do: str, renews: float = 30.0, settles: float = 1.0, wait: bool = False
) -> Iterator[None]:
    """Hold the lock during the body, and remove the lock object afterwards unless another process took it over.

    The lock protects the folder `where`. It is renewed every `renews` seconds, and two concurrent writers read the same
    text after `settles` seconds. If another process holds the lock, wait for it, or raise InfeedError, which names the
    process. `do` is the remedy.
    """
    mine = json.dumps({**this_process(), "token": uuid.uuid4().hex}).encode()
    while not _take(path, mine, settles):
        if not wait:
            raise InfeedError(f"another process is writing to it{owner_of(_content(path))}", where=where, do=do)
        time.sleep(settles)
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(renews):
            with suppress(OSError, InfeedError):  # retried three times before the lock becomes stale
                if _content(path) != mine:
                    _log.warning("%s: another process has taken over the lock", path)
                    return
                files.write_bytes(path, mine)

    renewing = threading.Thread(target=renew, daemon=True)
    renewing.start()
    try:
        yield
    finally:
        ended.set()
        renewing.join()
        with files.logged_failures(path):
            if _content(path) == mine:
                files.remove(path)


def _take(path: str, mine: bytes, settles: float) -> bool:
    """Return whether this process holds the lock now."""
    with suppress(FileNotFoundError):
        if time.time() - files.stat(path).mtime_ns / 1e9 < _STALE:
            return False
    files.write_bytes(path, mine)
    # Another process may have written at the same time. After the pause, both read the text of the last writer.
    time.sleep(settles)
    return _content(path) == mine


def _content(path: str) -> bytes:
    with suppress(FileNotFoundError):
        return files.read_bytes(path)
    return b""
