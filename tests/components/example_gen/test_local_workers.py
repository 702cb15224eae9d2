from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from infeed.components.example_gen import local

pytestmark = pytest.mark.slow

SCRIPT = """
import os, signal, sys, time
from infeed.components.example_gen.local import processes

def double(number):
    yield number
    yield 2 * number

def die(number):
    os.kill(os.getpid(), signal.SIGKILL)

def wait(number):
    open(sys.argv[2] + f"/{os.getpid()}", "w").close()
    time.sleep(600)

def fail(number):
    raise ValueError(number)

if __name__ == "__main__":
    if sys.argv[1] == "beside":
        import multiprocessing
        with processes(2) as each:
            mine = multiprocessing.get_context("spawn").Process(target=time.sleep, args=[60])
            mine.start()
            try:
                with processes(2) as other:
                    list(other(fail, [1, 2]))
            except ValueError:
                time.sleep(1)
                print(mine.is_alive(), list(each(double, [1])))
        mine.kill()
        sys.exit()
    with processes(2) as each:
        results = list(each(globals()[sys.argv[1]], [1, 2, 3, 4]))
    print(results)
"""


def script(folder: Path, *arguments: str) -> list[str]:
    (folder / "script.py").write_text(SCRIPT)
    return [sys.executable, str(folder / "script.py"), *arguments]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(script(folder, *arguments), capture_output=True, text=True, timeout=120, check=False)


def test_every_item_is_worked_on_once_and_generators_come_back_as_lists(tmp_path: Path) -> None:
    results = json.loads(run(tmp_path, "double").stdout)
    assert sorted(results) == [[1, 2], [2, 4], [3, 6], [4, 8]]


def test_a_killed_worker_is_an_error_not_a_wait(tmp_path: Path) -> None:
    ended = run(tmp_path, "die")
    assert "InfeedError: a worker process was killed" in ended.stderr
    assert ended.returncode == 1


def test_a_failure_ends_its_own_workers_and_no_other_child_of_the_caller(tmp_path: Path) -> None:
    assert run(tmp_path, "beside").stdout == "True [[1, 2]]\n"


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(tmp_path: Path, ending: signal.Signals) -> None:
    (started := tmp_path / "started").mkdir()
    parent = subprocess.Popen(script(tmp_path, "wait", str(started)), stderr=subprocess.DEVNULL)
    wait_until(lambda: len(list(started.iterdir())) == 2)
    parent.send_signal(ending)
    parent.wait(60)
    for child in started.iterdir():
        wait_until(lambda child=child: not alive(int(child.name)))  # type: ignore[misc]


def test_one_process_is_this_one() -> None:
    with local.processes(1) as each:
        assert list(each(lambda number: os.getpid(), [1])) == [os.getpid()]


@pytest.mark.parametrize(("tasks", "size", "expected"), [(1, 1 << 40, 1), (100, 1 << 20, 1), (100, 1 << 40, None)])
def test_more_processes_only_where_they_pay(tasks: int, size: int, expected: int | None) -> None:
    assert local.processes_that_pay(tasks, size) == (expected or min(100, len(os.sched_getaffinity(0))))


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def wait_until(true: Callable[[], bool]) -> None:
    for _ in range(1_200):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("waited for a minute in vain")
