"""Runs the machines of a JobSet or a TrainJob as processes of this machine, and kills and restarts them.

Only what a training job of `infeed compile` uses is imitated: one Indexed Job, environment variables, restarts of the
whole set after a failure. Secrets, volumes and limits are ignored, as for the steps of a rehearsal.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from infeed.components.dataset import files
from infeed.components.kubeflow.launcher_paths import ROOT_VARIABLE
from infeed.components.kubeflow.training_job import APIS, INDEX, INDEX_ANNOTATION, NODE
from infeed.pipelines.rehearse.launch import end_process
from infeed.pipelines.rehearse.network import Host, hosts

_POLL = 0.05
_GRACE = 10.0  # seconds until the log of an ended process has been read
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_]\w*)\)")


@dataclass(frozen=True)
class Kills:
    """Machines to kill on purpose: the last machine, in each of the first `count` starts of the job."""

    count: int = 0
    checkpoints: str = ""  # folder of checkpoints; the kill follows the first new one

    def state(self) -> set[tuple[str, int]]:
        """Return the checkpoints that exist, with their times."""
        found = files.list_files(self.checkpoints, depth=1)
        return {(file.path, file.mtime_ns) for file in found if file.path.endswith(".index")}


class Machine:
    """Pod number `number` of a job: a process with its log. `env` holds the variables besides the container's."""

    def __init__(self, job: str, number: int, container: Mapping[str, Any], host: Host, env: Mapping[str, str]) -> None:
        self.name = f"{job}-{NODE}-0-{number}-{uuid.uuid4().hex[:5]}"
        self.number = number
        self.lines: list[tuple[int, str]] = []
        variables = {**os.environ, **env}
        command = [_expanded(word, variables) for word in container["command"]]
        if command[0] == "python":
            command[0] = sys.executable
        self.process = subprocess.Popen(
            [*host.prefix, *command], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None, "started with a pipe"
        for line in self.process.stdout:
            self.lines.append((time.time_ns(), line.decode(errors="replace").rstrip("\n")))

    def end(self) -> None:
        """Stop the process, if it runs, and read its log to the end."""
        end_process(self.process)
        self._reader.join(_GRACE)

    def log(self, since: int = 0, tail: int | None = None, timestamps: bool = False) -> str:
        """Return the lines after `since`, in nanoseconds since the epoch, and of these the last `tail`."""
        found = [(when, text) for when, text in [*self.lines] if when >= since]
        found = found[-tail:] if tail else found
        return "".join(f"{_rfc3339(when)} {text}\n" if timestamps else f"{text}\n" for when, text in found)

    def pod(self, job: str) -> dict[str, Any]:
        """Return the pod as Kubernetes shows it."""
        code = self.process.poll()
        phase = "Running" if code is None else "Failed" if code else "Succeeded"
        status = 128 - code if code is not None and code < 0 else code
        ended = {"exitCode": status, "reason": "Error" if status else "Completed"}
        state = {"running": {}} if code is None else {"terminated": ended}
        container = {"name": NODE, "image": "", "imageID": "", "ready": code is None, "restartCount": 0}
        labels = {"jobset.sigs.k8s.io/jobset-name": job}
        annotations = {INDEX_ANNOTATION: str(self.number)}
        return {
            "metadata": {"name": self.name, "labels": labels, "annotations": annotations},
            "spec": {"containers": [{"name": NODE}]},
            "status": {"phase": phase, "containerStatuses": [{**container, "state": state}]},
        }


@dataclass
class LocalJob:
    """A JobSet or a TrainJob that runs in a thread."""

    body: Mapping[str, Any]  # the object as it was created
    kills: Kills = field(default_factory=Kills)
    machines: list[Machine] = field(default_factory=list)  # pods of the current start
    restarts: int = 0
    condition: tuple[str, str] | None = None  # type and message of the final condition; None while the job runs

    def __post_init__(self) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    def object(self) -> dict[str, Any]:
        status: dict[str, Any] = {}
        if self.condition is not None:
            (kind, message), now = self.condition, _rfc3339(time.time_ns())
            ended = {"type": kind, "status": "True", "reason": kind, "message": message, "lastTransitionTime": now}
            status["conditions"] = [ended]
        if self.body["kind"] == "JobSet":
            status["restarts"] = self.restarts
        return {**self.body, "status": status}

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        count, container, allowed = _read(self.body)
        completed = next(api.completed for api in APIS.values() if api.kind == self.body["kind"])
        try:
            with hosts(count, isolated=ROOT_VARIABLE not in os.environ) as found:
                while not self._start(container, found):
                    if self.restarts == allowed or self._stopped.is_set():
                        self.condition = ("Failed", "jobset failed due to one or more job failures")
                        return
                    self.restarts += 1
            self.condition = (completed, "jobset completed successfully")
        except Exception as error:  # the thread has no other way to report it
            self.condition = ("Failed", f"the rehearsal cannot run the job: {error!r}")

    def _start(self, container: Mapping[str, Any], found: list[Host]) -> bool:
        """Run all machines to their end, and return whether all succeeded."""
        kills = self.kills if self.restarts < self.kills.count else None
        before = kills.state() if kills else set()
        with ExitStack() as running:
            self.machines = []
            for number, host in enumerate(found):
                env = _environment(container, self.name, number, found)
                machine = Machine(self.name, number, container, host, env)
                running.callback(machine.end)
                self.machines = [*self.machines, machine]
            return self._wait(kills, before)

    def _wait(self, kills: Kills | None, before: set[tuple[str, int]]) -> bool:
        while not self._stopped.wait(_POLL):
            codes = [machine.process.poll() for machine in self.machines]
            if any(codes):
                return False
            if None not in codes:
                return True
            if kills and kills.state() - before:
                self.machines[-1].process.kill()
                kills = None
        return False


def _read(body: Mapping[str, Any]) -> tuple[int, Mapping[str, Any], int]:
    """Return the number of machines, their container, and the number of restarts.

    A TrainJob has no restarts here: its training runtime, which decides, is in the cluster.
    """
    spec = body["spec"]
    if body["kind"] == "TrainJob":
        return spec["trainer"]["numNodes"], spec["trainer"], 0
    job = spec["replicatedJobs"][0]["template"]["spec"]
    return job["completions"], job["template"]["spec"]["containers"][0], spec["failurePolicy"]["maxRestarts"]


def _environment(container: Mapping[str, Any], job: str, number: int, found: list[Host]) -> dict[str, str]:
    """Return the variables of a container, with the addresses of this machine in place of the names of the pods."""
    given = {INDEX: str(number)}
    for one in container.get("env", ()):
        if "value" in one:
            given[one["name"]] = _expanded(one["value"], given)
    addresses = {f"{job}-{NODE}-0-{other}.": host.address for other, host in enumerate(found)}
    for name, address in addresses.items():
        given["TF_CONFIG"] = re.sub(rf'(?<="){re.escape(name)}[^"]*', address, given["TF_CONFIG"])
    if root := os.environ.get(ROOT_VARIABLE):
        given[ROOT_VARIABLE] = os.path.join(root, "machines", str(number))
    return given


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    """Replace $(NAME) by a variable that is known, and $$ by $, as Kubernetes does."""

    def replaced(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else variables.get(found[1], found[0])

    return _REFERENCE.sub(replaced, text)


def _rfc3339(when: int) -> str:
    seconds, nanoseconds = divmod(when, 10**9)
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"
