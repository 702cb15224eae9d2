"""Turns of a contender: it makes batches for some seconds, not counting batches that it has made in advance.

A contender is one process with an endless iterator of batches. Each line of its standard input is a number of seconds.
The process answers with one JSON line: the rows that it made in this time, and the wall and CPU seconds, including its
worker processes. The module requires only `clock` and Python.
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

_LOOK = 0.05  # seconds of a run-up between two readings of the CPU time
_FEW = 0.1  # share of the batches in advance that may be left, because the CPU time of a batch is not known better
_LONGEST = 6  # maximum number of run-ups, because a loader that fills faster than it is emptied is never empty


def serve(batches: Iterator[Any], size: int, started: float) -> None:
    """Run a contender until its standard input ends. Batches have `size` rows. The first batch has been made."""
    turns = Turns(batches, size)
    say({"ready": time.perf_counter() - started})
    for line in sys.stdin:
        say(turns.turn(float(line)))
    for pid in list(below(os.getpid())):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    sys.stdout.flush()
    os._exit(0)  # some loaders would wait for their workers forever


class Turns:
    """Turns of a loader.

    Args:
      batches: endless iterator of batches.
      size: rows of a batch.
      stopwatch, rest: returns a stopwatch of CPU and wall seconds, and waits until the loader is idle.
    """

    def __init__(
        self,
        batches: Iterator[Any],
        size: int,
        stopwatch: Callable[[], Any] = Stopwatch,
        rest: Callable[[], None] = lambda: settle(every=0.3, rounds=20),
    ) -> None:
        self._batches, self._size, self._stopwatch, self._rest = batches, size, stopwatch, rest
        self._a_batch = 0.0  # CPU seconds of a batch, measured from idle to idle
        self._ahead = 0.0  # batches that the loader makes during the turns of others

    def turn(self, seconds: float) -> dict[str, float]:
        """Use up the batches made in advance, then take batches for `seconds`, and return the cost.

        The CPU time counts from idle to idle, so that it covers exactly the batches that were taken.
        """
        self._rest()
        if not self._a_batch:
            self._measured(seconds)  # the number of batches made in advance is still unknown
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
        """Take batches until those made in advance are gone, and return their number."""
        began, taken = watch.wall, 0
        few = max(1.0, _FEW * self._ahead)
        while (gone := watch.wall - began) < seconds or (self._left(watch, taken) > few and gone < _LONGEST * seconds):
            taken += self._take(min(_LOOK, seconds))[0]
        return taken

    def _left(self, watch: Any, taken: int) -> float:
        """Estimate the batches that are left: made in advance, plus made since by CPU time, minus taken."""
        made = watch.cpu / self._a_batch if self._a_batch else 0.0
        return self._ahead + made - taken

    def _take(self, seconds: float) -> tuple[int, float]:
        """Take batches for at least `seconds`, and return their number and the seconds."""
        started, count = time.perf_counter(), 0
        while time.perf_counter() - started < seconds:
            next(self._batches)
            count += 1
        return count, time.perf_counter() - started


def say(answer: dict[str, float]) -> None:
    """Print one line for the process that runs the contender."""
    print(json.dumps(answer), flush=True)
