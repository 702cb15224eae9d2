"""Best-effort lock on a folder of an object store, which has no locks of its own.

The lock is an object that names its owner. The owner rewrites the object every 30 seconds, so an older object belongs
to a killed process. If two processes write the object at once, the process that reads back its own text after a second
holds the lock.
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

_STALE = 120.0  # seconds: four renewals, with room for clocks that differ


@contextmanager
def alone_on_store(path: str, *, where: str, do: str, renews: float = 30.0, settles: float = 1.0) -> Iterator[None]:
    """Hold the lock inside the body, and remove the lock object afterwards.

    The lock protects the folder `where`. It is renewed every `renews` seconds, and two concurrent writers read the same
    text after `settles` seconds. Raises InfeedError, which names the other process, if that holds the lock. `do` is the
    remedy.
    """
    held = False
    with suppress(FileNotFoundError):
        held = time.time() - files.stat(path).mtime_ns / 1e9 < _STALE
    _refuse_if(held, path, where, do)
    mine = json.dumps({**this_process(), "token": uuid.uuid4().hex}).encode()
    files.write_bytes(path, mine)
    time.sleep(settles)
    _refuse_if(files.read_bytes(path) != mine, path, where, do)
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(renews):
            with suppress(OSError, InfeedError):  # retried three times before the lock is stale
                files.write_bytes(path, mine)

    renewing = threading.Thread(target=renew, daemon=True)
    renewing.start()
    try:
        yield
    finally:
        ended.set()
        renewing.join()
        files.remove(path)


def _refuse_if(held: bool, path: str, where: str, do: str) -> None:
    if held:
        owner = ""
        with suppress(OSError):  # the owner may have released the lock meanwhile
            owner = owner_of(files.read_bytes(path))
        raise InfeedError(f"another process is writing to it{owner}", where=where, do=do)
