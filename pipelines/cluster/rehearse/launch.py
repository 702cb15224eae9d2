"""Starts the processes of a step, on this machine or in the image, with the disk of a pod, and injects failures.

Like Kubeflow's launcher, a `Pod` downloads the inputs of a step from the store, and uploads its outputs. On a cluster,
the disk of the pod is lost after the step. Here it is a folder below the root, whose path is in `INFEED_LAUNCHER_ROOT`.

An injected failure kills a process, as a preempted machine or a full disk does.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.kubeflow.message import ROOT_VARIABLE, local_path
from infeed.pipelines.cluster.containers import find_engine
from infeed.pipelines.cluster.job.compiled import Task
from infeed.pipelines.cluster.rehearse.executor_io import Artifact

_GRACE = 10.0  # seconds from SIGTERM to SIGKILL; Kubernetes waits 30 s
_POLL = 0.005  # seconds between checks of the outputs of a process to kill
_POLL_STOP = 0.2  # seconds between checks for an interrupt
_ERROR = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Interrupt|Exit)): (.*)$")


@dataclass(frozen=True)
class LocalLauncher:
    """Runs a container's command as a local process. The current Python replaces the image's Python."""

    packages: str  # folder for packages that steps install with pip, as kfp's Python components do

    def command(self, argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
        """Return the command line for this machine; `env` holds the job's environment variables."""
        first = sys.executable if argv[0] in ("python", "python3") else argv[0]
        return [first, *argv[1:]]

    @property
    def environment(self) -> Mapping[str, str]:
        """Additional environment variables. PATH starts with the current Python, for shell scripts."""
        return {
            "TF_FORCE_GPU_ALLOW_GROWTH": "true",  # steps that run side by side share the GPU
            "PATH": _path(os.path.dirname(sys.executable), "PATH"),
            "PIP_TARGET": self.packages,
            "PYTHONPATH": _path(self.packages, "PYTHONPATH"),
        }

    def image(self, given: str) -> str:
        """Return the image name for the cache, so that steps with different images do not share outputs."""
        return f"local:{given}"


@dataclass(frozen=True)
class ContainerLauncher:
    """Runs a container's command in an image. The mounted folders keep their paths."""

    name: str
    folders: tuple[str, ...]

    def command(self, argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
        return find_engine().run(self.name, argv, folders=self.folders, env=env)

    @property
    def environment(self) -> Mapping[str, str]:
        return {}

    def image(self, given: str) -> str:
        return self.name


Launcher = LocalLauncher | ContainerLauncher


def _path(first: str, variable: str) -> str:
    """Prepend `first` to a path variable."""
    return os.pathsep.join([first, *filter(None, [os.environ.get(variable)])])


class StepLock:
    """Locked file that holds the process ids of the running steps.

    The steps inherit the lock, because they outlive a killed rehearsal and would write into the files of the next one.
    """

    def __init__(self, file: IO[str]) -> None:
        self.file = file
        self._running: list[int] = []
        self._mutex = threading.Lock()

    @contextlib.contextmanager
    def holding(self, process: int) -> Iterator[None]:
        """Keep the id of a process in the file."""
        self._write(self._running.append, process)
        try:
            yield
        finally:
            self._write(self._running.remove, process)

    def _write(self, change: Callable[[int], None], process: int) -> None:
        with self._mutex:
            change(process)
            self.file.truncate(0)
            self.file.write(" ".join(f"-{one}" for one in self._running))
            self.file.flush()


def run_process(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    log: IO[str],
    lock: StepLock,
    stop: threading.Event,
    dies_when: Callable[[], bool] | None = None,
) -> int:
    """Run `argv` with additional environment variables and return its exit status, which is negative for a signal.

    The process holds the lock until it ends, even if this process is killed. The event `stop` ends the process, and so
    does the condition `dies_when`, in the way Kubernetes stops an evicted pod. Raises OSError if the process cannot
    start.
    """
    process = subprocess.Popen(
        argv,
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,  # a new process group, to stop the process with its children
        pass_fds=[lock.file.fileno()],
    )
    try:
        with lock.holding(process.pid):
            while process.poll() is None and not stop.is_set():
                if dies_when and dies_when():
                    _end(process)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL if dies_when else _POLL_STOP)
    finally:
        _end(process)  # stops its children, and after an interrupt the process itself
    return process.returncode


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stop the whole process group, because in a container no child outlives the process."""
    with contextlib.suppress(ProcessLookupError):  # the group has ended
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def describe_exit(status: int, log: Path, begun: int) -> str:
    """Return the exit status and cause: the last InfeedError in the log, or else the last other exception.

    The output of the process begins at the byte `begun` of the log.
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
    """Return the last lines of a log, and truncate long lines."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return [line if len(line) <= 300 else f"{line[:300]} ..." for line in lines[-count:]]


@dataclass(frozen=True)
class Faults:
    """Failures to inject.

    `kills` has the number of first attempts to kill by node. The kill happens after the attempt starts to write. The
    attempts of the nodes in `dirty_retries` share one output folder, as when only the pod restarts. A retry then finds
    the files of the killed attempt.
    """

    kills: Mapping[str, int] = field(default_factory=dict)
    dirty_retries: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, fail: Sequence[str], leave: Sequence[str]) -> Faults:
        """Parse `NODE` or `NODE:3` of each `--fail`, and the nodes of `--leave`, which fail once by default.

        Raises InfeedError if the number of attempts is invalid.
        """
        kills = dict.fromkeys(leave, 1)
        for text in fail:
            node, colon, count = text.partition(":")
            if colon and not (count.isdecimal() and int(count)):
                do = f"use for example --fail {node}:2 for the first two attempts"
                raise InfeedError(f"{count!r} is not a number of attempts", where=f"--fail {text}", do=do)
            kills[node] = int(count) if colon else 1
        return cls(kills, frozenset(leave))

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise InfeedError if a node is not a step of the job, or if a node of `dirty_retries` has no retries."""
        steps = {task.node: task for task in tasks if task.container is not None}
        for node in self.kills:
            if node not in steps:
                do = f"use one of the steps that run a container: {', '.join(steps)}"
                raise InfeedError(f"there is no step {node!r} to fail", do=do)
        for node in sorted(self.dirty_retries):
            if not steps[node].retries:
                what = f"{node} is not retried, so no later attempt can find the files of a killed one"
                raise InfeedError(what, do="set retries for it in deploy.resources of the config, and compile again")


def has_begun(folders: Sequence[str]) -> bool:
    """Report whether a step has started to write outputs. A kill at this time does the most harm."""
    return any(os.path.isfile(path) or any(files for _, _, files in os.walk(path)) for path in folders)


_DEPTH = 100  # folders below an artifact


@dataclass(frozen=True)
class Pod:
    """Disk of one attempt of a step."""

    folder: str | None = None  # parent of `gcs`, `minio` and `s3`; None if the artifacts are on this machine
    downloads_all: bool = True  # before 2.14, the launcher downloads only the first artifact of each input

    @property
    def environment(self) -> Mapping[str, str]:
        return {ROOT_VARIABLE: self.folder} if self.folder else {}

    def path(self, uri: str) -> str:
        """Return the path of an artifact for the step: a local path if the launcher supports the scheme."""
        return (self.folder and local_path(uri, self.folder)) or uri

    def download(self, inputs: Mapping[str, Sequence[Artifact]]) -> None:
        """Download the artifacts of each input, as the launcher does.

        Raises InfeedError for an artifact that is not in the store.
        """
        for key, found in inputs.items():
            for artifact in found if self.downloads_all else found[:1]:
                path = self.path(artifact.uri)
                if path == artifact.uri:
                    continue
                try:
                    if files.exists(artifact.uri):  # the launcher ignores an artifact without files
                        files.copy(artifact.uri, path)
                except (InfeedError, OSError) as error:
                    why = error.what if isinstance(error, InfeedError) else error
                    do = "check the store, and rehearse again"
                    what = f"cannot download the input {key!r}: {why}"
                    raise InfeedError(what, where=artifact.uri, do=do) from error

    def upload(self, outputs: Mapping[str, Sequence[Artifact]]) -> None:
        """Upload the outputs that exist. Raises InfeedError if a file is missing in the store afterwards."""
        for key, found in outputs.items():
            for artifact in found:
                path = self.path(artifact.uri)
                if path != artifact.uri and os.path.exists(path):
                    files.copy(path, artifact.uri)
                    _check_complete(path, artifact.uri, key)


@contextlib.contextmanager
def pod_below(folder: Path | None, *, downloads_all: bool = True) -> Iterator[Pod]:
    """Yield a new pod, and remove its disk afterwards. Without a folder, the steps open the artifacts directly."""
    if folder is None:
        yield Pod()
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield Pod(str(folder), downloads_all)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_complete(path: str, uri: str, key: str) -> None:
    sent, there = _sizes(path), _sizes(uri)
    lost = sorted(name for name, size in sent.items() if there.get(name) != size)
    if lost:
        what = f"the store lost {lost[0]} of the output {key!r}" + (f" and {len(lost) - 1} more" if lost[1:] else "")
        do = "check the store; Kubeflow's launcher does not notice the loss, and the next step fails"
        raise InfeedError(what, where=files.join(uri, lost[0]), do=do)


def _sizes(place: str) -> dict[str, int]:
    """Return the sizes of a file, or of all files below a folder, by their path below `place`."""
    if not files.is_folder(place):
        return {"": files.stat(place).size} if files.exists(place) else {}
    return {files.relative(file.path, place): file.size for file in files.list_files(place, depth=_DEPTH)}
