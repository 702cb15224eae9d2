"""Report the progress of long steps to listeners in this process.

Plain functions call `count` or `report`. Without a listener, both are nearly free.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Any, TypeVar

from infeed.components import units

_SECONDS = 0.5  # minimum time between reports of counts
_SECONDS_TO_FORECAST = 5.0  # shorter steps do not say how long they take
_Listener = TypeVar("_Listener", bound=Callable[[str, bool], None])
_listeners: list[Callable[[str, bool], None]] = []
_counts: Counter[str] = Counter()
_lock = threading.Lock()
_reported = 0.0
_place = ""
_parts: Parts | None = None


@contextmanager
def listening(listener: _Listener) -> Iterator[_Listener]:
    """Call `listener(words, is_result)` at each change in the body. Counts start at 0.

    `is_result` means that the text is worth showing after the step.
    """
    global _parts
    _counts.clear()
    _parts = None
    place("")
    _listeners.append(listener)
    try:
        yield listener
        if _counts:
            _parts = None
            report(_counted(next(reversed(_counts))), is_result=True)
    finally:
        _listeners.remove(listener)


def is_heard() -> bool:
    return bool(_listeners)


def report(words: str, *, is_result: bool = False) -> None:
    for listener in tuple(_listeners):
        listener(words, is_result)


def place(where: str) -> None:
    """Set where the step runs, such as "on 4 processes". Reports append it to the counts."""
    global _place
    _place = where


class Parts:
    """Iterator over the results of the parts of a step. It knows how many are finished, and how long the rest takes.

    If the parts, `items`, have no length, nothing is known about the rest.
    """

    def __init__(self, results: Iterable[Any], items: Iterable[object]) -> None:
        self._results, self._count = iter(results), len(items) if isinstance(items, Sized) else 0
        self._done, self._started = 0, time.monotonic()

    def __iter__(self) -> Iterator[Any]:
        global _parts
        for result in self._results:
            self._done += 1
            _parts = self
            yield result

    def __str__(self) -> str:
        passed = time.monotonic() - self._started
        if not 0 < self._done < self._count:
            return ""
        left = passed / self._done * (self._count - self._done)
        words = f"{self._done:,} of {self._count:,} parts"
        return f"{words}, {units.seconds_left(left)}" if passed >= _SECONDS_TO_FORECAST else words


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Yield the counts of the body, for a process that sends them to another one."""
    _counts.clear()
    with listening(lambda words, is_result: None):
        yield _counts


def count(what: str, more: int) -> None:
    """Add to a count, such as "rows read", and report it at most twice a second."""
    global _reported
    if not _listeners:
        return
    with _lock:
        _counts[what] += more
        now = time.monotonic()
        if now - _reported < _SECONDS:
            return
        _reported = now
    report(_counted(what), is_result=True)


def _counted(what: str) -> str:
    counted = f"{_counts[what]:,} {what} {_place}".rstrip()
    return ", ".join(filter(None, (counted, str(_parts or ""))))
