from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from infeed.pipelines.cluster.rehearse.launch import StepLock, run_process

pytestmark = pytest.mark.slow

# Starts a process that would go on, says which, and waits for it.
PARENT = (
    "import subprocess, sys; "
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
    "print(child.pid, flush=True); child.wait()"
)


def is_running(pid: int) -> bool:
    """Asked until a process that was killed has had its turn to die."""
    stat = Path(f"/proc/{pid}/stat")
    for _ in range(1000):
        if not stat.exists() or stat.read_text().split()[2] == "Z":
            return False
        time.sleep(0.01)
    return True


def test_what_a_process_started_ends_with_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as file, (tmp_path / "lock").open("a+") as lock:
        parent = [sys.executable, "-c", PARENT]
        shared = {"lock": StepLock(lock), "stop": threading.Event()}
        status = run_process(parent, cwd=".", env={}, log=file, **shared, dies_when=lambda: bool(log.read_text()))
    assert status == -15
    assert not is_running(int(log.read_text()))


def test_output_and_status_are_the_processs_own(tmp_path: Path) -> None:
    code = "import os, sys; print(os.environ['NAME'], os.getcwd()); sys.exit(4)"
    with (tmp_path / "log").open("w") as file, (tmp_path / "lock").open("a+") as lock:
        shared = {"lock": StepLock(lock), "stop": threading.Event()}
        assert run_process([sys.executable, "-c", code], cwd=str(tmp_path), env={"NAME": "x"}, log=file, **shared) == 4
    assert (tmp_path / "log").read_text() == f"x {tmp_path}\n"


def test_the_lock_names_the_running_processes(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("a+") as file:
        lock = StepLock(file)
        with lock.holding(11), lock.holding(12):
            assert (tmp_path / "lock").read_text() == "-11 -12"
        assert (tmp_path / "lock").read_text() == ""
