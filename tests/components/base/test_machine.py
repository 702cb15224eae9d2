"""Limits of cgroups are tested with `feed/test_capacity.py`, which reads them through `Machine.here`."""

from __future__ import annotations

import os
from pathlib import Path

from infeed.components.base import machine


def test_without_limits_the_machine_counts(tmp_path: Path) -> None:
    assert machine.cpus(tmp_path) == len(os.sched_getaffinity(0))
    assert machine.memory_bytes(tmp_path) == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_a_quota_is_rounded_up_to_whole_cores(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert machine.cpus(tmp_path) == 1


def test_a_memory_limit_of_the_cgroup_counts(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000000\n")
    assert machine.memory_bytes(tmp_path) == 1_000_000
