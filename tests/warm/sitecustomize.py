"""Python loads this at its start where the PYTHONPATH names its folder: a process of `server.py` then does the work.

A signal to this process goes on to that one, and as that one ends, so does this one. That one does not outlive it.
"""

import json
import os
import signal
import socket
import sys


def run_elsewhere(address: str) -> int:
    """The exit code of the process that has done what this one was started for, negative for a signal."""
    order = {"argv": sys.orig_argv[1:], "env": dict(os.environ), "cwd": os.getcwd(), "path": sys.path}
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        socket.send_fds(server, [b"."], [0, 1, 2])
        server.sendall(json.dumps(order).encode() + b"\n")
        answers = server.makefile()
        group = int(answers.readline())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.killpg(group, number))
        return os.waitstatus_to_exitcode(int(answers.readline()))


def end(code: int) -> None:
    """Ends this process by the signal or with the exit code."""
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def can_run_elsewhere(command: list[str]) -> bool:
    """Python's own options are its own; children of `multiprocessing` and `on_jax` are handed open files by number."""
    first, begins = command[0] if command else "-", " ".join(command[:2])
    is_handed_files = "multiprocessing" in begins or "on_jax" in begins
    return (first in ("-c", "-m") or not first.startswith("-")) and not is_handed_files


if "WARM_PYTHON" in os.environ and can_run_elsewhere(sys.orig_argv[1:]):
    end(run_elsewhere(os.environ["WARM_PYTHON"]))
