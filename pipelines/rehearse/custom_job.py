"""A custom job of Vertex AI as processes of this machine: one for each machine that the job asks for."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

_POLL = 0.2  # seconds between looks at what still runs
_GRACE = 10.0  # seconds that the other machines have to end when one has ended badly, or the first has ended well

# TensorFlow's names for the machines of each pool; Vertex AI allows no more pools.
_TASKS = ("chief", "worker", "ps", "evaluator")


@dataclass(frozen=True)
class Machine:
    """One replica of a worker pool.

    Attributes:
      pool: number of its pool; the machine of pool 0 stands for the job as a whole.
      index: its place in the pool.
      command: its container's command line.
      env: that the job gives the container.
    """

    pool: int
    index: int
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:
        """As Vertex AI calls it: workerpool1-0."""
        return f"workerpool{self.pool}-{self.index}"


def machines(job_spec: Mapping[str, Any]) -> list[Machine]:
    """The machines of a CustomJobSpec, pool by pool."""
    return [
        Machine(number, index, _command(pool["container_spec"]), _env(pool["container_spec"]))
        for number, pool in enumerate(job_spec["worker_pool_specs"])
        for index in range(int(pool.get("replica_count", 1)))
    ]


def cluster_environment(machine: Machine, addresses: Mapping[Machine, str]) -> dict[str, str]:
    """What Vertex AI tells a machine about all: CLUSTER_SPEC, and where there are several TF_CONFIG as well.

    The format of https://cloud.google.com/vertex-ai/docs/training/distributed-training.

    Args:
      addresses: `host:port` of every machine, in order.
    """
    spec = {"cluster": _by_pool(addresses, "workerpool{}".format), "task": _task(machine, f"workerpool{machine.pool}")}
    environment = {"CLUSTER_SPEC": json.dumps({**spec, "environment": "cloud"})}
    if len(addresses) > 1:
        config = {"cluster": _by_pool(addresses, _TASKS.__getitem__), "task": _task(machine, _TASKS[machine.pool])}
        environment["TF_CONFIG"] = json.dumps({**config, "environment": "cloud"})
    return environment


def run_machines(wanted: Sequence[Machine]) -> str:
    """Runs them side by side until the first machine has ended, or any has failed; the others end with it.

    Returns:
      Which machine failed and how, in the words of Vertex AI; empty where the first ended well.

    Raises:
      OSError: a command cannot be started.
    """
    addresses = dict(zip(wanted, _free_addresses(len(wanted)), strict=True))
    with ExitStack() as running:
        processes = {}
        for machine in wanted:
            env = {**os.environ, **machine.env, **cluster_environment(machine, addresses)}
            processes[machine] = subprocess.Popen(machine.command, env=env)
            running.callback(_end, processes[machine])
        first = processes[wanted[0]]
        while True:
            for machine, process in processes.items():
                if process.poll():
                    return f"The replica {machine.name} exited with a non-zero status of {process.returncode}."
            if first.returncode == 0:
                return ""
            time.sleep(_POLL)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _command(container: Mapping[str, Any]) -> tuple[str, ...]:
    return (*container.get("command", ()), *container.get("args", ()))


def _env(container: Mapping[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container.get("env", ())}


def _by_pool(addresses: Mapping[Machine, str], name: Any) -> dict[str, list[str]]:
    pools: dict[str, list[str]] = {}
    for machine, address in addresses.items():
        pools.setdefault(name(machine.pool), []).append(address)
    return pools


def _task(machine: Machine, kind: str) -> dict[str, Any]:
    return {"type": kind, "index": machine.index}


def _free_addresses(count: int) -> list[str]:
    with ExitStack() as held:  # all at once, so that no port is given twice
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("localhost", 0))
        return [f"localhost:{each.getsockname()[1]}" for each in sockets]
