"""Cores and memory that this process may use, the work that another process is worth, and the end at SIGTERM.

The limits are those of the cgroup or of the machine: a container limited to 4 of 96 cores must not start 96 readers.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Maximum memory of a process.
MEMORY = 1 << 30  # reads with Arrow
TENSORFLOW_MEMORY = 2 << 30  # loads TensorFlow and a graph or a model
STEP_MEMORY = 4 << 30  # a step of a pipeline, with TFX and a model

# Bytes of input for each process.
INGEST_BYTES = 32 << 20  # ingesting them as CSV takes about 1.7 s; a process takes 0.8 s to start
STATISTICS_BYTES = 32 << 20  # of compressed shards. Reading them takes 2.5 s; a process takes 1 s to start
SURVEY_BYTES = 128 << 20  # of text: scanning it takes about 2.7 s; a process takes 1 s to start
TRANSFORM_BYTES = 96 << 20  # compressed: a process takes about 8 s to load TensorFlow and tft
EVALUATE_BYTES = 96 << 20  # of examples: a process takes about 8 s to load TensorFlow, TFMA and a model
COUNT_BYTES = 256 << 20  # of examples that are only counted
PREDICT_BYTES = 64 << 20  # of examples: a process takes about 5 s to load TensorFlow and a model


CGROUP = Path("/sys/fs/cgroup")
_PROCESS = Path("/proc/self")


def cpus(cgroup: Path = CGROUP) -> int:
    """Return the number of cores that this process may use, rounded up."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    words = _read(cgroup / "cpu.max").split()  # cgroup v2: "quota period" or "max period" in µs
    if not words:  # cgroup v1 has two files, with -1 for no limit
        words = [_read(cgroup / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    quota, period = [*words, "", ""][:2]
    if not (quota.isdigit() and period.isdigit()):
        return allowed
    return min(allowed, max(1, -(-int(quota) // int(period))))


def memory_bytes(cgroup: Path = CGROUP) -> int:
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    text = _read(cgroup / "memory.max") or _read(cgroup / "memory" / "memory.limit_in_bytes")
    return min(installed, int(text)) if text.isdigit() else installed


def reset_peak_memory() -> int | None:
    """Return unused memory to the system, and reset the peak of this process's resident memory.

    Return the current resident bytes, or None if the system cannot reset the peak. Only Linux can.
    """
    try:
        ctypes.CDLL(None).malloc_trim(0)
        (_PROCESS / "clear_refs").write_text("5")  # the kernel's code for the peak
        return _resident("VmRSS")
    except (OSError, AttributeError, KeyError):  # the file or the function does not exist
        return None


def peak_memory() -> int:
    """Return the peak of resident bytes since `reset_peak_memory`."""
    return _resident("VmHWM")


def _resident(name: str) -> int:
    fields = dict(line.split(":", 1) for line in (_PROCESS / "status").read_text().splitlines())
    return int(fields[name].split()[0]) * 1024


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """Raise SystemExit in the body at SIGTERM. Only the main thread receives signals; elsewhere this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
