"""Python loads this at its start where the PYTHONPATH names its folder: a process of `server.py` then does the work.

A signal to this process goes on to that one, and as that one ends, so does this one. That one does not outlive it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys


def run_elsewhere(address: str) -> int:
    """The exit code of the process that has done what this one was started for, negative for a signal."""
    files = [0, 1, 2, *handed_files()]
    order = {"argv": sys.orig_argv[1:], "env": dict(os.environ), "cwd": os.getcwd(), "path": sys.path, "files": files}
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        socket.send_fds(server, [b"."], files)
        server.sendall(json.dumps(order).encode() + b"\n")
        answers = server.makefile()
        group = int(answers.readline())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.killpg(group, number))
        return os.waitstatus_to_exitcode(int(answers.readline()))


def handed_files() -> list[int]:
    """Numbers of the open files that this process was handed, beside the streams. Python's own are not inheritable."""
    return [number for number in map(int, os.listdir("/proc/self/fd")) if number > 2 and is_inherited(number)]


def is_inherited(number: int) -> bool:
    try:
        return os.get_inheritable(number)
    except OSError:  # the folder that has just been listed
        return False


def end(code: int) -> None:
    """Ends this process by the signal or with the exit code."""
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def server_for(command: list[str]) -> str | None:
    """The address of the server that has imported what the command needs. Python's own options are its own."""
    first, begins = command[0] if command else "-", " ".join(command[:2])
    if "multiprocessing" in begins or (first.startswith("-") and first not in ("-c", "-m")):
        return None
    return os.environ.get("WARM_JAX" if "on_jax" in begins else "WARM_PYTHON")


if address := server_for(sys.orig_argv[1:]):
    end(run_elsewhere(address))
