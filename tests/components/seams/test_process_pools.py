"""A pool whose worker is killed ends, whatever its threads wait for."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from infeed.components.seams import process_pools

pytestmark = [pytest.mark.slow, pytest.mark.stack]

WORKER = """
import os, signal, struct, sys

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def die_in_the_middle_of_a_result():
    frame = sys._getframe()
    while "result_queue" not in frame.f_locals:
        frame = frame.f_back
    os.write(frame.f_locals["result_queue"]._writer.fileno(), struct.pack("!i", 1_000) + b"its first bytes")
    die()
"""


STUCK = """
import multiprocessing, time
from concurrent.futures import ProcessPoolExecutor
from infeed.components.seams import process_pools

if __name__ == "__main__":
    pool = ProcessPoolExecutor(2, multiprocessing.get_context("spawn"))
    process_pools.end_at_exit(pool)
    stuck = pool.submit(time.sleep, 1_000)
    print(process_pools.result(pool, pool.submit(pow, 2, 10)))
"""


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "dying_worker.py").write_text(WORKER)
    monkeypatch.syspath_prepend(str(tmp_path))
    return importlib.import_module("dying_worker")


@pytest.fixture
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield pool


def test_a_result_arrives(pool: ProcessPoolExecutor) -> None:
    assert process_pools.result(pool, pool.submit(pow, 2, 10)) == 1024


def test_a_worker_that_dies_in_the_middle_of_a_result_breaks_the_pool(worker: Any, pool: ProcessPoolExecutor) -> None:
    with pytest.raises(BrokenProcessPool):
        process_pools.result(pool, pool.submit(worker.die_in_the_middle_of_a_result))


def test_an_end_that_the_pools_thread_closes_at_the_same_moment_is_no_error(pool: ProcessPoolExecutor) -> None:
    process_pools.result(pool, pool.submit(pow, 2, 10))
    for end in process_pools._own_ends(pool):
        os.close(end.fileno())
    process_pools.end_workers(pool)


def test_calls_that_no_worker_reads_any_more_break_with_the_pool(worker: Any, pool: ProcessPoolExecutor) -> None:
    large = bytes(1_000_000)  # more than a pipe holds
    calls = [pool.submit(worker.die, large) for _ in range(4)]
    with pytest.raises(BrokenProcessPool):
        process_pools.result(pool, calls[0])
    process_pools.end_workers(pool)


def test_workers_that_are_ended_leave_no_call_waiting(pool: ProcessPoolExecutor) -> None:
    assert process_pools.result(pool, pool.submit(pow, 2, 1)) == 2
    process_pools.end_workers(pool)
    with pytest.raises(BrokenProcessPool):
        process_pools.result(pool, pool.submit(pow, 2, 2))


def test_a_process_exits_although_a_worker_stands_still(tmp_path: Path) -> None:
    script = tmp_path / "stuck.py"
    script.write_text(STUCK)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "1024\n"
    assert "leaked" not in done.stderr
