"""Wall and CPU seconds, those of child processes included, and their medians; needs Linux and nothing but Python.

Every benchmark measures by it, also the contenders of `benchmarks/images/`, whose environments hold little else.
"""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_CPU_FIELDS = slice(11, 15)  # of /proc/PID/stat, behind the name: user and system, own and of children that have ended
_RESTING = 0.03  # of a core: a process that uses less has nothing to do


@dataclass(frozen=True)
class Cost:
    """What something took, in seconds; `cpu` is of this process and of all below it."""

    wall: float
    cpu: float

    def __truediv__(self, count: float) -> Cost:
        return Cost(self.wall / count, self.cpu / count)


class Stopwatch:
    """Runs from when it is made."""

    def __init__(self) -> None:
        self._cpu = cpu_seconds()
        self._wall = time.perf_counter()

    @property
    def wall(self) -> float:
        return time.perf_counter() - self._wall

    @property
    def cpu(self) -> float:
        return cpu_seconds() - self._cpu

    @property
    def cost(self) -> Cost:
        return Cost(self.wall, self.cpu)


def timed(run: Callable[[], object]) -> Cost:
    """What one call took."""
    watch = Stopwatch()
    run()
    return watch.cost


def median(costs: Iterable[Cost]) -> Cost:
    """The median of wall and that of CPU, each by itself.

    Raises:
      statistics.StatisticsError: there are no costs.
    """
    known = list(costs)
    return Cost(statistics.median(one.wall for one in known), statistics.median(one.cpu for one in known))


def cpu_seconds() -> float:
    """CPU seconds so far of this process, of its children that have ended, and of all that run below it."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = sum(_cpu_seconds_of(pid) for pid in below(os.getpid()))
    return time.process_time() + ended.ru_utime + ended.ru_stime + running


def settle(every: float = 0.1, rounds: int = 50) -> None:
    """Waits until neither this process nor one below it works: on a busy machine no longer than so many rounds."""
    for _ in range(rounds):
        watch = Stopwatch()
        time.sleep(every)
        if watch.cpu <= _RESTING * every:
            return


def below(pid: int) -> Iterator[int]:
    """All processes that a process has started, and that they have."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return
    for child in children:
        yield child
        yield from below(child)


def _cpu_seconds_of(pid: int) -> float:
    """0 once it has ended: then its parent's time holds it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[_CPU_FIELDS])) / _TICKS
