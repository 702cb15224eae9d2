"""Process pools of Python whose workers are killed: their threads would wait for ever for a worker that is gone.

A thread of `ProcessPoolExecutor` reads the rest of a result that a killed worker has begun to write, or writes a call
that no worker reads. Neither ends, because this process itself holds the other end of the pipe:
https://github.com/python/cpython/issues/94777. The names are those of Python 3.10 to 3.13.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from concurrent.futures.process import ProcessPoolExecutor

R = TypeVar("R")
_LOOK = 1.0  # seconds between two checks
_GRACE = 2.0  # seconds for workers that are at work when this process exits
_LOOKS = 5  # a pool notices at once that a worker has died, unless its thread waits for that worker


def result(pool: ProcessPoolExecutor, future: Future[R], check: Callable[[], None] = lambda: None) -> R:
    """Wait for a result of a pool, and call `check` each second.

    Raises BrokenProcessPool if a worker was killed, also in the middle of a result.
    """
    lost = 0
    while not wait([future], _LOOK).done:
        check()
        lost = lost + 1 if any(worker.exitcode is not None for worker in _workers(pool)) else 0
        if lost == _LOOKS:
            end_workers(pool)
    return future.result()


def end_workers(pool: ProcessPoolExecutor) -> None:
    """Kill the workers of a pool, and end what its threads wait for. The pool is then broken."""
    _end(_workers(pool), _own_ends(pool))


def end_at_exit(pool: ProcessPoolExecutor) -> None:
    """Let this process exit although a worker stands still. Python would wait for it, before functions of `atexit`."""

    def end() -> None:
        workers, ends = _workers(pool), _own_ends(pool)
        pool.shutdown(wait=False, cancel_futures=True)
        until = time.monotonic() + _GRACE
        for worker in workers:
            worker.join(max(0.0, until - time.monotonic()))
        _end(workers, ends)

    register: Any = threading
    register._register_atexit(end)  # the last one that is registered runs first, and Python's own is there by now


def _end(workers: tuple[Any, ...], ends: tuple[Any, ...]) -> None:
    for worker in workers:
        worker.kill()
    for end in ends:
        with suppress(OSError):  # the pool's thread has noticed as well, and closes it at this moment
            end.close()


def _own_ends(pool: ProcessPoolExecutor) -> tuple[Any, ...]:
    """Return the ends of the pool's pipes that its workers use, and that this process holds as well."""
    queues: Any = pool
    ends = (queues._result_queue, "_writer"), (queues._call_queue, "_reader")
    return tuple(getattr(queue, end) for queue, end in ends if queue is not None)  # None after a shutdown


def _workers(pool: ProcessPoolExecutor) -> tuple[Any, ...]:
    return tuple((pool._processes or {}).values())  # None after a shutdown
