"""Wall and CPU seconds, including child processes, and their medians. Requires Linux, and only Python.

All benchmarks use this module, also the contenders of `benchmarks/images/`, whose environments have few packages.
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
# Fields of /proc/PID/stat after the name: user and system time, of the process and of its ended children.
_CPU_FIELDS = slice(11, 15)
_RESTING = 0.03  # share of a core below which a process counts as idle


@dataclass(frozen=True)
class Cost:
    """Wall and CPU seconds. `cpu` includes all descendant processes."""

    wall: float
    cpu: float

    def __truediv__(self, count: float) -> Cost:
        return Cost(self.wall / count, self.cpu / count)


class Stopwatch:
    """Stopwatch that starts at its creation."""

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
    """Return the cost of one call."""
    watch = Stopwatch()
    run()
    return watch.cost


def median(costs: Iterable[Cost]) -> Cost:
    """Return the median of the wall seconds and the median of the CPU seconds, independently.

    Raises:
      statistics.StatisticsError: there are no costs.
    """
    known = list(costs)
    return Cost(statistics.median(one.wall for one in known), statistics.median(one.cpu for one in known))


def cpu_seconds() -> float:
    """Return the CPU seconds so far of this process, its ended children, and all running descendants."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = sum(_cpu_seconds_of(pid) for pid in below(os.getpid()))
    return time.process_time() + ended.ru_utime + ended.ru_stime + running


def settle(every: float = 0.1, rounds: int = 50) -> None:
    """Wait until this process and its descendants are idle, but at most `rounds` times `every` seconds."""
    for _ in range(rounds):
        watch = Stopwatch()
        time.sleep(every)
        if watch.cpu <= _RESTING * every:
            return


def below(pid: int) -> Iterator[int]:
    """Yield the ids of all descendants of a process."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):  # the process has ended meanwhile
        return
    for child in children:
        yield child
        yield from below(child)


def _cpu_seconds_of(pid: int) -> float:
    """Return the CPU seconds of a process. 0 if it has ended, because its parent's time then includes it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[_CPU_FIELDS])) / _TICKS
