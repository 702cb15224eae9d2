"""Cluster of a distributed training, read from TF_CONFIG or, on Vertex AI, from CLUSTER_SPEC.

Reading the cluster does not initialize TensorFlow.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import WorkerContext

_log = logging.getLogger(__name__)
TRAINING_TASKS = ("chief", "worker")  # in TensorFlow's numbering order

# https://cloud.google.com/vertex-ai/docs/training/distributed-training: the position of a
# pool determines its task.
_VERTEX_POOLS = {"workerpool0": "chief", "workerpool1": "worker", "workerpool2": "ps", "workerpool3": "evaluator"}


def adopt_cluster_spec(environ: MutableMapping[str, str] = os.environ) -> None:
    """Set TF_CONFIG from the CLUSTER_SPEC, valid JSON, that Vertex AI sets on each machine of a job.

    CLUSTER_SPEC overrides an existing TF_CONFIG. Google's TF_CONFIG may use the task `master`, which TensorFlow 2 does
    not support.
    """
    if environ.get("CLUSTER_SPEC"):
        environ["TF_CONFIG"] = json.dumps(tf_config(_config(environ, "CLUSTER_SPEC")))


def tf_config(cluster_spec: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a CLUSTER_SPEC to a TF_CONFIG, which uses TensorFlow's task names."""
    task = cluster_spec["task"]
    return {
        "cluster": {_VERTEX_POOLS[pool]: machines for pool, machines in cluster_spec["cluster"].items()},
        "task": {"type": _VERTEX_POOLS[task["type"]], "index": int(task["index"])},
    }


def cluster_here(environ: Mapping[str, str] = os.environ) -> tuple[dict[str, list[str]], tuple[str, int]]:
    """Return the addresses of each task type, and this process's task.

    Raise InfeedError if TF_CONFIG is not valid JSON.
    """
    config = _config(environ, "TF_CONFIG")
    task = config.get("task", {})
    return config.get("cluster", {}), (task.get("type", ""), int(task.get("index", 0)))


def worker_context(environ: Mapping[str, str] = os.environ) -> WorkerContext:
    """Return the index of this worker and the number of workers. Worker 0 is the chief, which exports and reports.

    Raise InfeedError if TF_CONFIG is not valid JSON, or names a task that does not train, such as an evaluator.
    """
    cluster, here = cluster_here(environ)
    tasks = [(kind, index) for kind in TRAINING_TASKS for index in range(len(cluster.get(kind, ())))]
    if not tasks:
        return WorkerContext()
    if here not in tasks:
        kind, index = here
        do = "start this program only as chief or worker; evaluation runs in the same processes"
        raise InfeedError(f"the task {kind} {index} does not train", where="environment variable TF_CONFIG", do=do)
    return WorkerContext(tasks.index(here), len(tasks))


def jax_workers(environ: Mapping[str, str] = os.environ) -> WorkerContext:
    """Return the worker of a training on JAX: from TF_CONFIG, JAX's own variables, or those of a TPU pod.

    Raise InfeedError if a number is missing or does not fit.
    """
    if environ.get("TF_CONFIG"):
        return worker_context(environ)
    if environ.get("JAX_COORDINATOR_ADDRESS"):
        names = "JAX_PROCESS_ID", "JAX_NUM_PROCESSES"
        index, count = (environ.get(name, "") for name in names)
    else:
        names = "TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES"
        hosts = environ.get("TPU_WORKER_HOSTNAMES", "").split(",")
        index, count = environ.get("TPU_WORKER_ID") or "0", str(len(hosts))
    if not (index.isdecimal() and count.isdecimal() and int(index) < int(count)):
        what = f"{names[0]} is {index!r}, and {names[1]} {count!r}"
        raise InfeedError(what, where="environment variables of JAX", do="number the processes from 0, and give both")
    return WorkerContext(int(index), int(count))


@dataclass(frozen=True)
class OutputDirs:
    """Output folders of a training. `run` is the model run, with logs, traces, and `input_profile.json`."""

    model: str
    run: str
    checkpoints: str


@contextmanager
def chief_writes(places: OutputDirs, workers: WorkerContext) -> Iterator[OutputDirs]:
    """Yield `places` on the chief, and temporary folders on other workers, which must save, too."""
    if workers.index == 0:
        yield places
        return
    with tempfile.TemporaryDirectory() as scratch:
        yield OutputDirs(*(os.path.join(scratch, name) for name in ("model", "run", "checkpoints")))


@contextmanager
def lost_process_context() -> Iterator[None]:
    """Raise InfeedError if another process of the training is lost during the body."""
    try:
        yield
    except tf.errors.UnavailableError as error:
        what = f"lost a process of the training: {str(error).splitlines()[0]}"
        do = "start all processes again together; training resumes from the last checkpoint"
        raise InfeedError(what, where="cluster of TF_CONFIG", do=do) from error


def _config(environ: Mapping[str, str], name: str) -> dict[str, Any]:
    text = environ.get(name)
    try:
        return json.loads(text) if text else {}
    except ValueError as error:
        what, where = f"the value is not valid JSON: {error}", f"environment variable {name}"
        raise InfeedError(what, where=where, do="correct it, or unset it") from error


def warn_of_open_port(environ: Mapping[str, str] = os.environ) -> None:
    """Warn that TensorFlow's server binds to all addresses without authentication, regardless of TF_CONFIG."""
    cluster, (kind, index) = cluster_here(environ)
    port = cluster[kind][index].rpartition(":")[2]
    _log.warning(
        "TensorFlow listens on port %s of all addresses and runs any function it receives, without authentication: "
        "restrict the port to the cluster's network, on Kubernetes with a NetworkPolicy",
        port,
    )
