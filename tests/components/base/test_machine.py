"""Limits of cgroups are tested with `feed/test_capacity.py`, which reads them through `Machine.here`."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infeed.components.base import machine
from infeed.components.base.machine import stopped_by_sigterm


def test_without_limits_the_machine_counts(tmp_path: Path) -> None:
    assert machine.cpus(tmp_path) == len(os.sched_getaffinity(0))
    assert machine.memory_bytes(tmp_path) == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_a_quota_is_rounded_up_to_whole_cores(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert machine.cpus(tmp_path) == 1


def test_a_memory_limit_of_the_cgroup_counts(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000000\n")
    assert machine.memory_bytes(tmp_path) == 1_000_000


def test_the_body_ends_with_the_code_of_the_signal() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as raised, stopped_by_sigterm():
        os.kill(os.getpid(), signal.SIGTERM)
    assert raised.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_thread_works_without_signals() -> None:
    def work() -> int:
        with stopped_by_sigterm():
            return 1

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(work).result() == 1
