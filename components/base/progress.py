"""Report the progress of long steps to listeners in this process, for each step apart.

Plain functions call `count` or `report`. Without a listener, both are nearly free.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from infeed.components.base import units

_SECONDS = 0.5  # minimum time between reports of counts
_SECONDS_TO_FORECAST = 5.0  # shorter steps do not say how long they take
A = TypeVar("A")
B = TypeVar("B")
_Listener = TypeVar("_Listener", bound=Callable[[str, bool], None])


class _Step:
    """The counts of one step, and who listens to them. Threads of the step count together."""

    def __init__(self, listeners: Sequence[Callable[[str, bool], None]]) -> None:
        self.listeners = listeners
        self.counts = Counter[str]()
        self.place = ""
        self.parts: Parts | None = None
        self._lock = threading.Lock()
        self._reported = 0.0

    def report(self, words: str, is_result: bool) -> None:
        for listener in self.listeners:
            listener(words, is_result)

    def count(self, what: str, more: int) -> None:
        with self._lock:
            self.counts[what] += more
            now = time.monotonic()
            if now - self._reported < _SECONDS:
                return
            self._reported = now
        self.report(self.counted(what), True)

    def counted(self, what: str) -> str:
        counted = f"{self.counts[what]:,} {what} {self.place}".rstrip()
        return ", ".join(filter(None, (counted, str(self.parts or ""))))


_step: ContextVar[_Step | None] = ContextVar("step", default=None)  # two threads, or two programs, do not mix


@contextmanager
def listening(listener: _Listener) -> Iterator[_Listener]:
    """Call `listener(words, is_result)` at each change in the body, by this thread. Counts start at 0.

    `is_result` means that the text is worth showing after the step. Listeners of an enclosing body hear it, too.
    """
    outer = _step.get()
    step = _Step((*(outer.listeners if outer else ()), listener))
    token = _step.set(step)
    try:
        yield listener
        if step.counts:
            step.parts = None
            step.report(step.counted(next(reversed(step.counts))), True)
    finally:
        _step.reset(token)


def is_heard() -> bool:
    return _step.get() is not None


def report(words: str, *, is_result: bool = False) -> None:
    if step := _step.get():
        step.report(words, is_result)


def place(where: str) -> None:
    """Set where the step runs, such as "on 4 processes". Reports append it to the counts."""
    if step := _step.get():
        step.place = where


class Parts:
    """Iterator over the results of the parts of a step. It knows how many are finished, and how long the rest takes.

    If the parts, `items`, have no length, nothing is known about the rest.
    """

    def __init__(self, results: Iterable[Any], items: Iterable[object]) -> None:
        self._results, self._count = iter(results), len(items) if isinstance(items, Sized) else 0
        self._done, self._started = 0, time.monotonic()

    def __iter__(self) -> Iterator[Any]:
        for result in self._results:
            self._done += 1
            if step := _step.get():
                step.parts = self
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
    counts = Counter[str]()
    with listening(lambda words, is_result: None):
        yield counts
        if step := _step.get():
            counts.update(step.counts)


def count(what: str, more: int) -> None:
    """Add to a count, such as "rows read", and report it at most twice a second. Does nothing without a listener."""
    if step := _step.get():
        step.count(what, more)


def for_threads(function: Callable[[A], B]) -> Callable[[A], B]:
    """Return a function that does the same in other threads, which then count for the step of this thread."""
    context = copy_context()
    return lambda item: context.copy().run(function, item)
