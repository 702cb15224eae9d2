"""The lock of one process at a time: the second one learns whose it is, and a killed owner leaves no lock."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from infeed.components.base import locks
from infeed.components.base.errors import InfeedError
from infeed.components.base.locks import alone, is_held

HOLD = """
import sys, time
from pathlib import Path
from infeed.components.base.locks import alone
with alone(Path(sys.argv[1]), doing="busy", where="there", do="wait"):
    print("held", flush=True)
    time.sleep(60)
"""


def hold(lock: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE, text=True)
    assert child.stdout
    assert child.stdout.readline() == "held\n"
    return child


def take(lock: Path) -> None:
    with alone(lock, doing="busy", where="there", do="wait"):
        assert lock.exists()


def test_the_file_goes_with_the_lock(tmp_path: Path) -> None:
    take(tmp_path / "lock")
    take(tmp_path / "lock")
    assert not list(tmp_path.iterdir())


def test_the_second_process_is_refused_and_told_the_first(tmp_path: Path) -> None:
    with hold(tmp_path / "lock") as child:
        with pytest.raises(InfeedError, match=rf"busy: process {child.pid} on host") as raised:
            take(tmp_path / "lock")
        child.kill()
    assert raised.value.where == "there"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_owner_leaves_a_file_and_no_lock(tmp_path: Path, number: int) -> None:
    assert not is_held(tmp_path / "lock")
    with hold(tmp_path / "lock") as child:
        assert is_held(tmp_path / "lock")
        os.kill(child.pid, number)
        child.wait()
    assert (tmp_path / "lock").exists()
    assert not is_held(tmp_path / "lock")
    take(tmp_path / "lock")


def test_a_lock_of_another_host_that_is_not_held_is_taken(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text('{"pid": 1, "host": "elsewhere", "since": "", "command": ""}')
    take(tmp_path / "lock")


def test_a_place_that_cannot_be_written_is_an_error_with_the_place(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match="No such file") as raised:
        take(tmp_path / "missing" / "lock")
    assert raised.value.where == "there"


def test_a_file_system_without_locks_holds_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    (tmp_path / "lock").touch()
    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    assert not is_held(tmp_path / "lock")


def test_who_waits_gets_the_lock_once_it_is_free(tmp_path: Path) -> None:
    child = hold(tmp_path / "lock")
    threading.Timer(0.3, child.kill).start()
    with alone(tmp_path / "lock", doing="busy", where="there", do="wait", wait=True):
        assert child.wait(30) == -signal.SIGKILL
