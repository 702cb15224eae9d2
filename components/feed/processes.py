"""Processes that call a user's Python function: for `map_batches` and `map_examples`, and for maps of `infeed.load`."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from infeed.components.base.errors import InfeedError
from infeed.components.seams import process_pools

if TYPE_CHECKING:
    from concurrent.futures import Future
    from concurrent.futures.process import ProcessPoolExecutor


def submit(processes: int, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Call a function of a module in one of `processes` processes, which later calls reuse.

    Raises BrokenProcessPool, here or as the result, if a process was killed. See `naming_broken_pool`.
    """
    return _pool(processes).submit(function, *arguments)


def result(processes: int, future: Future[Any]) -> Any:
    """Wait for a result of `submit` with this number of processes, and raise its errors."""
    return process_pools.result(_pool(processes), future)


@contextmanager
def naming_broken_pool(where: str) -> Iterator[None]:
    """Convert the failure of a pool in the body to an InfeedError at `where`. The next call starts new processes."""
    from concurrent.futures.process import BrokenProcessPool

    try:
        yield
    except BrokenProcessPool:
        _pool.cache_clear()
        do = "check the memory, because the kernel may have killed it, and call main code of a script only under "
        do += "if __name__ == '__main__'"
        raise InfeedError("a process of the function exited", where=where, do=do) from None


@functools.cache
def _pool(processes: int) -> ProcessPoolExecutor:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    spawn = multiprocessing.get_context("spawn")  # TensorFlow may hang after a fork
    # Ctrl-C reaches every process, and this one handles it.
    pool = ProcessPoolExecutor(processes, spawn, signal.signal, (signal.SIGINT, signal.SIG_IGN))
    process_pools.end_at_exit(pool)
    return pool
