"""Starts the processes of a step, on this machine or inside the image, and says how they ended.

Some are made to fail: what a preempted machine or a full disk would do, when it is convenient.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from infeed.components.errors import InfeedError
from infeed.pipelines.containers import Mount, find_engine
from infeed.pipelines.job.compiled import Task

_GRACE = 10.0  # seconds from the request to end to the end by force; Kubernetes gives 30
_POLL = 0.005  # seconds between looks at what a process that is to be killed has written
_ERROR = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Interrupt|Exit)): (.*)$")


@dataclass(frozen=True)
class LocalLauncher:
    """Starts a container's command as a process of this machine: the current Python is the one of the image.

    Attributes:
      packages: folder for what steps install by pip, as kfp's components in Python do: not into this environment.
    """

    packages: str

    def command(self, argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
        """The command line that can be started here; `env` is what the job gives the container."""
        first = sys.executable if argv[0] in ("python", "python3") else argv[0]
        return [first, *argv[1:]]

    @property
    def environment(self) -> Mapping[str, str]:
        """What that command line needs beside; shell scripts that call `python3` find the current one on the PATH."""
        return {
            "PATH": _path(os.path.dirname(sys.executable), "PATH"),
            "PIP_TARGET": self.packages,
            "PYTHONPATH": _path(self.packages, "PYTHONPATH"),
        }

    def image(self, given: str) -> str:
        """What stands for the image that the job names; steps of another one are not the same."""
        return f"local:{given}"


@dataclass(frozen=True)
class ContainerLauncher:
    """The same inside an image, which sees the given folders under their own names."""

    name: str
    folders: tuple[str, ...]

    def command(self, argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
        mounts = [Mount(folder, os.path.abspath(folder)) for folder in self.folders]
        return find_engine().run(self.name, argv, mounts=mounts, env=env)

    @property
    def environment(self) -> Mapping[str, str]:
        return {}

    def image(self, given: str) -> str:
        return self.name


Launcher = LocalLauncher | ContainerLauncher


def _path(first: str, variable: str) -> str:
    """`first`, then what the variable holds already."""
    return os.pathsep.join([first, *filter(None, [os.environ.get(variable)])])


def run_process(
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


def describe_exit(status: int, log: Path, begun: int) -> str:
    """How a process ended, and of what: the last of our own errors, which others wrap, else the last that it named.

    Args:
      begun: where the output of the process begins in the log.
    """
    how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    with log.open("rb") as file:
        file.seek(begun)
        text = file.read().decode(errors="replace")
    if ours := InfeedError.told_in(text):
        return str(InfeedError(f"{ours.what} ({how})", where=ours.where, do=ours.do))
    named = [found for found in map(_ERROR.match, text.splitlines()) if found]
    return f"{named[-1][1]}: {named[-1][2]} ({how})" if named else how


def last_lines(log: Path, count: int = 15) -> list[str]:
    """The end of a log, long lines cut."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return [line if len(line) <= 300 else f"{line[:300]} ..." for line in lines[-count:]]


@dataclass(frozen=True)
class Faults:
    """What is to go wrong.

    Attributes:
      kills: by node, how many of its first attempts are killed once they have begun to write.
      dirty_retries: nodes whose attempts all write to one place, as where the pod alone is started again: the second
        attempt finds what the first, which is killed, has left behind.
    """

    kills: Mapping[str, int] = field(default_factory=dict)
    dirty_retries: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, fail: Sequence[str], leave: Sequence[str]) -> Faults:
        """Reads `NODE` or `NODE:3` of each `--fail`, and the nodes of `--leave`, which fail once if `--fail` is silent.

        Raises:
          InfeedError: the number is not one.
        """
        kills = dict.fromkeys(leave, 1)
        for text in fail:
            node, colon, count = text.partition(":")
            if colon and not (count.isdecimal() and int(count)):
                do = f"write --fail {node}:2, say, for the first two attempts"
                raise InfeedError(f"{count!r} is not a number of attempts", where=f"--fail {text}", do=do)
            kills[node] = int(count) if colon else 1
        return cls(kills, frozenset(leave))

    def check(self, tasks: Sequence[Task]) -> None:
        """Raises InfeedError unless these are steps of the job that can fail in that way."""
        steps = {task.node: task for task in tasks if task.container is not None}
        for node in self.kills:
            if node not in steps:
                do = f"the steps that run something: {', '.join(steps)}"
                raise InfeedError(f"there is no step {node!r} to fail", do=do)
        for node in sorted(self.dirty_retries):
            if not steps[node].retries:
                raise InfeedError(
                    f"{node} is not retried, so there is no attempt to find what an earlier one left",
                    do="give it retries in the config's deploy.resources, and compile again",
                )


def has_begun(folders: Sequence[str]) -> bool:
    """Whether any of the outputs exists in part: the moment at which a death does the most harm."""
    return any(os.path.isfile(path) or any(files for _, _, files in os.walk(path)) for path in folders)
