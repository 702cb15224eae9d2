"""Emulates Vertex AI's custom jobs on this machine.

`python -m` of this module, with the name of a step's entry point, runs this entry point. TFX's code handles everything
except the requests of Vertex AI's client. Each machine of the job is a local process.
"""

from __future__ import annotations

import json
import os
import runpy
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from infeed.components.base.errors import InfeedError
from infeed.components.seams import tfx as tfx_seam
from infeed.pipelines.job.compiled import STEP
from infeed.pipelines.rehearse.launch import end_process

ENTRY_POINT = "tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor"
EXECUTORS = ("infeed.components.trainer.vertex_executor.", "tfx.extensions.google_cloud_ai_platform.trainer.")
_POLL = 0.2  # seconds between checks of the processes

# TensorFlow's names for the machines of each pool; Vertex AI allows no more pools.
_TASKS = ("chief", "worker", "ps", "evaluator")


def starts_custom_job(words: Sequence[str]) -> bool:
    """Report whether the command line is a Trainer that starts a custom job."""
    return not {ENTRY_POINT, STEP[-1]}.isdisjoint(words) and any(word.startswith(EXECUTORS) for word in words)


def with_local_job_service(words: Sequence[str]) -> list[str]:
    """Return the command line with this module before the entry point, which it runs."""
    place = next(number for number, word in enumerate(words) if word in (ENTRY_POINT, STEP[-1]))
    return [*words[:place], __name__, *words[place:]]


class JobService:
    """Emulates `aiplatform_v1.JobServiceClient` for TFX. Creating a job runs the job to its end."""

    def __init__(self, client_options: Mapping[str, Any]) -> None:
        del client_options  # the address of Vertex AI
        self._jobs: dict[str, Any] = {}

    def create_custom_job(self, parent: str, custom_job: Mapping[str, Any]) -> Any:
        """Run a job. Raises ValueError or TypeError for an invalid CustomJob, as the real client does."""
        from google.cloud.aiplatform_v1.types import CustomJob, JobState

        CustomJob(custom_job)
        failure = run_replicas(replicas(custom_job["job_spec"]))
        state = JobState.JOB_STATE_FAILED if failure else JobState.JOB_STATE_SUCCEEDED
        name = f"{parent}/customJobs/{len(self._jobs) + 1}"
        self._jobs[name] = CustomJob(name=name, state=state, error={"message": failure} if failure else None)
        return self._jobs[name]

    def get_custom_job(self, name: str, retry: Any) -> Any:
        del retry
        return self._jobs[name]


def _no_ai_platform() -> None:
    do = "train on Vertex AI: set ai_platform_enable_vertex in custom_config"
    raise InfeedError("the Trainer would start a job of AI Platform, the predecessor of Vertex AI", do=do)


def main() -> None:
    """Run the entry point that the first argument of this process names, with the others."""
    tfx_seam.CUSTOM_JOBS.require("submit the job to Vertex AI, or install a TFX of docs/compatibility.md")
    tfx_seam.run_custom_jobs_by(JobService, _no_ai_platform)
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)


@dataclass(frozen=True)
class Replica:
    """One replica of a worker pool, with the command line of its container."""

    pool: int  # index; the job ends with the machine of pool 0
    index: int  # within the pool
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:
        """Vertex AI's name of the replica, such as workerpool1-0."""
        return f"workerpool{self.pool}-{self.index}"


def replicas(job_spec: Mapping[str, Any]) -> list[Replica]:
    """Return the machines of a CustomJobSpec, pool by pool."""
    found = []
    for number, pool in enumerate(job_spec["worker_pool_specs"]):
        container = pool["container_spec"]
        command = (*container.get("command", ()), *container.get("args", ()))
        env = {variable["name"]: variable["value"] for variable in container.get("env", ())}
        found += [Replica(number, index, command, env) for index in range(int(pool.get("replica_count", 1)))]
    return found


def cluster_environment(machine: Replica, addresses: Mapping[Replica, str]) -> dict[str, str]:
    """Return the variables that Vertex AI sets: CLUSTER_SPEC, and TF_CONFIG if the job has several machines.

    https://cloud.google.com/vertex-ai/docs/training/distributed-training defines the format. The addresses are the
    `host:port` of every machine, in order.
    """
    environment = {"CLUSTER_SPEC": _cluster(machine, addresses, "workerpool{}".format)}
    if len(addresses) > 1:
        environment["TF_CONFIG"] = _cluster(machine, addresses, _TASKS.__getitem__)
    return environment


def _cluster(machine: Replica, addresses: Mapping[Replica, str], name: Callable[[int], str]) -> str:
    """Return the cluster as JSON; `name` maps the index of a pool to its name."""
    pools: dict[str, list[str]] = {}
    for each, address in addresses.items():
        pools.setdefault(name(each.pool), []).append(address)
    task = {"type": name(machine.pool), "index": machine.index}
    return json.dumps({"cluster": pools, "task": task, "environment": "cloud"})


def run_replicas(wanted: Sequence[Replica]) -> str:
    """Run the machines in parallel until the first machine ends or any machine fails, and then stop the others.

    Returns:
      Vertex AI's error message for the failed machine, or an empty string if the first machine succeeded.

    Raises:
      OSError: a command cannot start.
    """
    with ExitStack() as held:  # open at the same time, so that all ports differ
        sockets = [held.enter_context(socket.socket()) for _ in wanted]
        for each in sockets:
            each.bind(("localhost", 0))
        ports = [each.getsockname()[1] for each in sockets]
    addresses = {machine: f"localhost:{port}" for machine, port in zip(wanted, ports, strict=True)}
    with ExitStack() as running:
        processes = {}
        for machine in wanted:
            env = {**os.environ, **machine.env, **cluster_environment(machine, addresses)}
            processes[machine] = subprocess.Popen(machine.command, env=env)
            running.callback(end_process, processes[machine])
        first = processes[wanted[0]]
        while True:
            for machine, process in processes.items():
                if process.poll():
                    return f"The replica {machine.name} exited with a non-zero status of {process.returncode}."
            if first.returncode == 0:
                return ""
            time.sleep(_POLL)


if __name__ == "__main__":
    main()
