"""The steps of `ingest` in several processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from infeed.components.errors import InfeedError
from infeed.components.example_gen.ingest import Each

A = TypeVar("A")
B = TypeVar("B")
BYTES_PER_WORKER = 128 << 20  # of input; each process takes a second to start, in which one reads about 30 MB of CSV


def processes_that_pay(tasks: int, source_bytes: int) -> int:
    """How many processes to use: no more than CPUs or tasks, and each with enough to do."""
    cpus = len(os.sched_getaffinity(0))
    return max(1, min(cpus, tasks, source_bytes // BYTES_PER_WORKER))


@contextmanager
def processes(count: int) -> Iterator[Each]:
    """Yields a function like `map`, unordered, over `count` processes; 1 means this process alone.

    Leaving early, by an error or by Ctrl-C, kills them; when this process is killed, they end by themselves.

    Raises:
      InfeedError: one of them was killed.
    """
    if count == 1:
        yield map
        return
    # Spawned, not forked: threads of Arrow and clients of object stores do not survive a fork.
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), initializer=_end_with_parent)
    ours = set(multiprocessing.active_children())

    def each(function: Callable[[A], B], items: Sequence[A], /) -> Iterable[B]:
        for future in as_completed([pool.submit(_call, function, item) for item in items]):
            yield future.result()

    try:
        yield each
    except BaseException as error:
        for child in set(multiprocessing.active_children()) - ours:
            child.kill()
        if isinstance(error, BrokenProcessPool):
            do = "most often memory ran out: use fewer workers or smaller blocks, then run again"
            raise InfeedError("a worker process was killed", do=do) from error
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _call(function: Callable[[A], Any], item: A) -> Any:
    result = function(item)
    return list(result) if isinstance(result, Iterator) else result  # a generator cannot be sent to another process


def _end_with_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the parent decides
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: Any) -> None:
    parent.join()
    os._exit(1)
