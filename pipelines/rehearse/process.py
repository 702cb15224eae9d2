"""One process of a step, with all that it starts, from its beginning to its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO

_GRACE = 10.0  # seconds from the request to end to the end by force; Kubernetes gives 30
_POLL = 0.005  # seconds between looks at what a process that is to be killed has written


def run(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    log: IO[str],
    lock: IO[str],
    dies_when: Callable[[], bool] | None = None,
) -> int:
    """Runs `argv` to its end, its output going to `log`, and returns its exit status, negative for a signal.

    Args:
      env: added to this process's own environment.
      lock: a locked file: it stays so until the process has ended, whatever becomes of this one, and holds its id.
      dies_when: ends the process, as Kubernetes ends a pod that it evicts, as soon as this is true.

    Raises:
      OSError: it cannot be started.
    """
    process = subprocess.Popen(
        argv,
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,  # a group of its own, which ends as a whole
        pass_fds=[lock.fileno()],
    )
    try:
        lock.truncate(0)
        lock.write(str(process.pid))
        lock.flush()
        while dies_when and process.poll() is None:
            if dies_when():
                _end(process)
            time.sleep(_POLL)
        return process.wait()
    finally:
        _end(process)  # what it has started, and on an interrupt the process itself
        lock.truncate(0)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the whole process group: what the process started does not outlive it, as in a container."""
    with contextlib.suppress(ProcessLookupError):  # nothing is left
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
