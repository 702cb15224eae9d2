"""The turns of a contender: it works for some seconds, and what it had made in advance does not count.

A contender is one process. It makes an endless iterator of batches and answers each line on its standard input, a
number of seconds, with one JSON line: the rows it made in that time, and the wall and CPU seconds that took, those of
its own worker processes included. Needs `clock` and nothing but Python.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from clock import Stopwatch, below, settle

_LOOK = 0.05  # seconds of a run-up between two looks at the processes' CPU
_FEW = 0.1  # of what was made in advance: the CPU of a batch is not known better
_LONGEST = 6  # run-ups of the shortest length: a loader that is slower to take from than to fill is never empty


def serve(batches: Iterator[Any], size: int, started: float) -> None:
    """Runs a contender until its standard input ends; `size` rows a batch, the first of which is made already."""
    turns = Turns(batches, size)
    say({"ready": time.perf_counter() - started})
    for line in sys.stdin:
        say(turns.turn(float(line)))
    for pid in list(below(os.getpid())):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    sys.stdout.flush()
    os._exit(0)  # loaders that wait for their workers would wait for ever


class Turns:
    """What a loader does in its turns.

    Args:
      batches: endless.
      size: rows of each.
      stopwatch, rest: of CPU and wall seconds, and what waits until the loader rests.
    """

    def __init__(
        self,
        batches: Iterator[Any],
        size: int,
        stopwatch: Callable[[], Any] = Stopwatch,
        rest: Callable[[], None] = lambda: settle(every=0.3, rounds=20),
    ) -> None:
        self._batches, self._size, self._stopwatch, self._rest = batches, size, stopwatch, rest
        self._a_batch = 0.0  # CPU seconds, from rest to rest
        self._ahead = 0.0  # batches that it makes while others have their turn

    def turn(self, seconds: float) -> dict[str, float]:
        """Takes batches for so long, once those are used up that were there before.

        CPU is counted from rest to rest, so that it is that of all batches taken, and of no others.
        """
        self._rest()
        if not self._a_batch:
            self._measured(seconds)  # nobody knows yet what it makes in advance
        return self._measured(seconds)

    def _measured(self, seconds: float) -> dict[str, float]:
        watch = self._stopwatch()
        run_up = self._use_up(watch, seconds / 2)
        count, wall = self._take(seconds)
        working = watch.cpu
        self._rest()
        self._a_batch = watch.cpu / (run_up + count)
        self._ahead = (watch.cpu - working) / self._a_batch if self._a_batch else 0.0
        return {"rows": count * self._size, "wall": wall, "cpu": self._a_batch * count}

    def _use_up(self, watch: Any, seconds: float) -> int:
        """Takes batches for at least so long, until what was made in advance is gone; how many those were."""
        began, taken = watch.wall, 0
        few = max(1.0, _FEW * self._ahead)
        while (gone := watch.wall - began) < seconds or (self._left(watch, taken) > few and gone < _LONGEST * seconds):
            taken += self._take(min(_LOOK, seconds))[0]
        return taken

    def _left(self, watch: Any, taken: int) -> float:
        """Batches that are there: those made in advance and since, by the CPU that took, but for those taken."""
        made = watch.cpu / self._a_batch if self._a_batch else 0.0
        return self._ahead + made - taken

    def _take(self, seconds: float) -> tuple[int, float]:
        """Batches taken in at least so many seconds, and the seconds that took."""
        started, count = time.perf_counter(), 0
        while time.perf_counter() - started < seconds:
            next(self._batches)
            count += 1
        return count, time.perf_counter() - started


def say(answer: dict[str, float]) -> None:
    """One line for who runs the contender."""
    print(json.dumps(answer), flush=True)
