"""Progress reports of long steps, for listeners in this process. Each step has separate counts.

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
_SECONDS_TO_FORECAST = 5.0  # shorter steps show no remaining time
A = TypeVar("A")
B = TypeVar("B")
_Listener = TypeVar("_Listener", bound=Callable[[str, bool], None])


class _Step:
    """Counts and listeners of one step. All threads of the step share the counts."""

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
        noun, _, done = what.partition(" ")
        counted = " ".join(filter(None, (units.counted(self.counts[what], noun), done, self.place)))
        return ", ".join(filter(None, (counted, str(self.parts or ""))))


_step: ContextVar[_Step | None] = ContextVar("step", default=None)  # keeps threads and concurrent runs apart


@contextmanager
def listening(listener: _Listener) -> Iterator[_Listener]:
    """Call `listener(text, is_result)` in this thread at each change during the body. Counts start at 0.

    `is_result` marks a text to keep after the step. Listeners of enclosing bodies are called too.
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
    """Set where the step runs, such as "on 4 processes". Reports append this text to the counts."""
    if step := _step.get():
        step.place = where


class Parts:
    """Iterator over the results of a step's parts that tracks progress and estimates the remaining time.

    If `items` has no length, there is no estimate.
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
    """Yield the counts of the body, so that this process can send them to another one."""
    counts = Counter[str]()
    with listening(lambda words, is_result: None):
        yield counts
        if step := _step.get():
            counts.update(step.counts)


def count(what: str, more: int) -> None:
    """Add to a count and report it, at most twice a second. Does nothing without a listener.

    `what` begins with the noun in the singular, such as "row read".
    """
    if step := _step.get():
        step.count(what, more)


def for_threads(function: Callable[[A], B]) -> Callable[[A], B]:
    """Bind a function to the step of this thread, so that calls in other threads count for that step."""
    context = copy_context()
    return lambda item: context.copy().run(function, item)
