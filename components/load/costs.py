"""CPU time of the stages that decode and map batches, measured while a loop reads them."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

from infeed.components.base.units import counted, percent

R = TypeVar("R")


class StageCosts:
    """CPU seconds of each stage in the threads of this process."""

    def __init__(self) -> None:
        self._seconds, self._batches = defaultdict[str, float](float), defaultdict[str, int](int)
        self._lock = threading.Lock()

    def timed(self, stage: str, function: Callable[..., R], *arguments: Any) -> R:
        """Call a function, and add the CPU time of this thread to the stage."""
        began = time.thread_time()
        made = function(*arguments)
        took = time.thread_time() - began
        with self._lock:
            self._seconds[stage] += took
            self._batches[stage] += 1
        return made

    def limit(self, rows: int, threads: int) -> str:
        """Name the most expensive stage, and the rate of all stages. Empty before the first batch.

        Args:
          rows: rows of a batch.
          threads: threads that prepare batches, each on a core.
        """
        a_batch = {stage: seconds / self._batches[stage] for stage, seconds in self._seconds.items()}
        total = sum(a_batch.values())
        if not total:
            return ""
        slowest = max(a_batch, key=lambda stage: a_batch[stage])
        return (
            f"{slowest} takes {percent(a_batch[slowest] / total)} of {total * 1e3:.3g} ms of CPU a batch, so "
            f"{counted(threads, 'thread')} with a core each can prepare {rows * threads / total:,.0f} rows a second"
        )
