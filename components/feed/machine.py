"""What this process may really use: the cgroup's limits where there are any, else the machine's own."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Machine:
    """CPU cores, bytes of memory and of free disk that the plan may count on."""

    cpus: int
    memory_bytes: int
    disk_bytes: int = 0

    @classmethod
    def here(cls, cgroup: Path = _CGROUP, cache_dir: str | None = None) -> Machine:
        """Reads this process's limits. A container that may use 4 of 96 cores must not start 96 readers.

        Args:
          cgroup: where the kernel tells the limits.
          cache_dir: the folder on whose disk columns may be kept; None counts on no disk.
        """
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return cls(
            cpus=min(cpus, _cpu_quota(cgroup) or cpus),
            memory_bytes=min(memory, _memory_limit(cgroup) or memory),
            disk_bytes=_disk_bytes(Path(cache_dir).expanduser()) if cache_dir else 0,
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


def _disk_bytes(folder: Path) -> int:
    """Free bytes, and those that our own files take: a plan must not change because the one before kept its columns."""
    ours = sum(file.stat().st_blocks * 512 for file in folder.glob("*/*"))
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free + ours


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
