"""What this process may really use: the cgroup's limits where there are any, else the machine's own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Machine:
    """CPU cores and bytes of memory that the plan may count on."""

    cpus: int
    memory_bytes: int

    @classmethod
    def here(cls, cgroup: Path = _CGROUP) -> Machine:
        """Reads this process's limits. A container that may use 4 of 96 cores must not start 96 readers."""
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return cls(
            cpus=min(cpus, _cpu_quota(cgroup) or cpus),
            memory_bytes=min(memory, _memory_limit(cgroup) or memory),
        )


def _cpu_quota(cgroup: Path) -> int | None:
    """Whole cores of the quota, rounded up. cgroup v2 `cpu.max` is "quota period" in microseconds, or "max period"."""
    words = _read(cgroup / "cpu.max").split()
    if not words:  # cgroup v1 keeps the two in files of their own, -1 for no limit
        words = [_read(cgroup / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    quota, period = [*words, "", ""][:2]
    if not (quota.isdigit() and period.isdigit()):
        return None
    return max(1, -(-int(quota) // int(period)))


def _memory_limit(cgroup: Path) -> int | None:
    text = _read(cgroup / "memory.max") or _read(cgroup / "memory" / "memory.limit_in_bytes")
    return int(text) if text.isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
