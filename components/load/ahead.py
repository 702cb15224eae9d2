"""Threads that prepare items in order, before the loop requests them.

NumPy, Arrow, image decoders and copies to a device release the GIL, so threads suffice. A thread never waits for the
loop, so threads end when the loop abandons the iterator.
"""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")
_END: Any = object()


def in_order(items: Iterable[T], make: Callable[[T], R], threads: int, ahead: int) -> Iterator[R]:
    """Call `make` for each item in `threads` threads, and yield the results in the order of the items.

    Up to `ahead` results are prepared in advance. The loop's thread reads `items`. The error of an item is raised in
    its place.
    """
    pool, is_exiting = ThreadPoolExecutor(threads, "infeed-ahead"), sys.is_finalizing
    try:
        yield from results(items, lambda item: pool.submit(make, item), ahead)
    finally:
        if not is_exiting():  # at exit, the threads have ended, and modules that `shutdown` calls may be gone
            # The collector of garbage may close an iterator anywhere, also in the thread itself or while this thread
            # imports a module. So closing does not wait for the thread, which ends after its present item.
            pool.shutdown(wait=False, cancel_futures=True)


def results(
    items: Iterable[T],
    submit: Callable[[T], Future[R]],
    ahead: int,
    result: Callable[[Future[R]], R] = Future.result,
) -> Iterator[R]:
    """Yield the results that `submit` promises for each item, like `in_order`. `result` waits for a promised one."""
    waiting: deque[Future[R]] = deque()
    failed: Exception | None = None
    source = iter(items)
    try:
        while True:
            try:
                item = next(source, _END)
            except Exception as error:  # raised in its place, after the results of earlier items
                failed, item = error, _END
            if item is _END:
                break
            waiting.append(submit(item))
            if len(waiting) > ahead:
                yield result(waiting.popleft())
        while waiting:
            yield result(waiting.popleft())
    finally:
        for promised in waiting:
            promised.cancel()
    if failed:
        raise failed


def in_background(items: Iterator[T], ahead: int) -> Iterator[T]:
    """Read `items` in one thread, up to `ahead` items in advance. With 0, the loop's thread reads them."""
    if not ahead:
        return items
    read = in_order(itertools.repeat(items), lambda some: next(some, _END), 1, ahead)
    return itertools.takewhile(lambda item: item is not _END, read)
