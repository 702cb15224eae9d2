"""Cluster of a distributed training, read from TF_CONFIG or, on Vertex AI, from CLUSTER_SPEC.

Reading the cluster does not initialize TensorFlow. With parameter servers, only the chief runs the training program.
Workers and parameter servers execute the functions that the chief sends, and exit after the chief.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import WorkerContext

_CHIEF_COMES_SECONDS = 900.0  # machines of a job start at different times
_LOOK_SECONDS = 1.0
_log = logging.getLogger(__name__)
_LOOKS = 3  # consecutive failed connections after which the chief counts as gone
_TRAINING_TASKS = ("chief", "worker")  # in TensorFlow's numbering order

# https://cloud.google.com/vertex-ai/docs/training/distributed-training: the position of a
# pool determines its task.
_VERTEX_POOLS = {"workerpool0": "chief", "workerpool1": "worker", "workerpool2": "ps", "workerpool3": "evaluator"}


def adopt_cluster_spec(environ: MutableMapping[str, str] = os.environ) -> None:
    """Set TF_CONFIG from the CLUSTER_SPEC, valid JSON, that Vertex AI sets on each machine of a job.

    CLUSTER_SPEC overrides an existing TF_CONFIG, because Google's may name the first machine `master`, a task that
    TensorFlow 2 does not support.
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
    """Return the addresses of each task type, and this process's; raise InfeedError if TF_CONFIG is no valid JSON."""
    config = _config(environ, "TF_CONFIG")
    task = config.get("task", {})
    return config.get("cluster", {}), (task.get("type", ""), int(task.get("index", 0)))


def worker_context(environ: Mapping[str, str] = os.environ) -> WorkerContext:
    """Return the index of this worker and the number of workers. Worker 0 is the chief, which exports and reports.

    Raise InfeedError if TF_CONFIG is not valid JSON, or names a task that does not train, such as an evaluator.
    """
    cluster, here = cluster_here(environ)
    tasks = [(kind, index) for kind in _TRAINING_TASKS for index in range(len(cluster.get(kind, ())))]
    if not tasks:
        return WorkerContext()
    if here not in tasks:
        raise _does_not_train(*here, _TRAINING_TASKS)
    return WorkerContext(tasks.index(here), len(tasks))


def coordinated_workers(environ: Mapping[str, str] = os.environ) -> WorkerContext:
    """Return the workers of a cluster with parameter servers, for the chief: it has index 0, reports and exports.

    Raise InfeedError if TF_CONFIG does not name one chief, workers and parameter servers, or this is not the chief.
    """
    cluster, (kind, index) = cluster_here(environ)
    chiefs, workers, servers = (len(cluster.get(kind, ())) for kind in ("chief", "worker", "ps"))
    if chiefs != 1 or not workers or not servers:
        raise InfeedError(
            "parameter_server needs one chief, workers and parameter servers, "
            f"and there are {chiefs} chief, {workers} worker and {servers} ps",
            where="environment variable TF_CONFIG",
            do="name them there, or use the strategy multi_worker_mirrored if all machines are alike",
        )
    if kind != "chief":
        raise _does_not_train(kind, index, ("chief", "worker", "ps"))
    return WorkerContext(0, workers)


def only_serves(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether this process only executes functions of a chief, in a cluster with parameter servers."""
    return cluster_here(environ)[1][0] in ("worker", "ps")


@dataclass(frozen=True)
class OutputDirs:
    """Output folders of a training. `run` is the model run, with logs, traces, and `input_profile.json`."""

    model: str
    run: str
    checkpoints: str


@contextmanager
def chief_writes(places: OutputDirs, workers: WorkerContext) -> Iterator[OutputDirs]:
    """Yield `places` on the chief and temporary folders on other workers: all must save, but one copy is kept."""
    if workers.index == 0:
        yield places
        return
    with tempfile.TemporaryDirectory() as scratch:
        yield OutputDirs(*(os.path.join(scratch, name) for name in ("model", "run", "checkpoints")))


def connect(environ: MutableMapping[str, str] = os.environ) -> tf.distribute.Strategy:
    """Return the chief's strategy once all servers answer; raise InfeedError if a worker has several GPUs."""
    _notice_dead_processes(environ)
    strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
    if strategy.num_replicas_in_sync > 1:
        what = f"a worker has {strategy.num_replicas_in_sync} GPUs, which the optimizers of Keras 3 cannot share"
        do = "start one worker per GPU, and select the GPU with CUDA_VISIBLE_DEVICES"
        raise InfeedError(what, where="strategy parameter_server", do=do)
    tf.distribute.coordinator.ClusterCoordinator(strategy)  # copies every table loaded from now on to all workers
    return strategy


def serve(model: str, environ: MutableMapping[str, str] = os.environ) -> None:
    """Execute the functions that the chief sends, until the chief exits.

    Raise InfeedError if the chief did not start, or if its folder `model` holds no exported model afterwards.
    """
    _notice_dead_processes(environ)
    warn_of_open_port(environ)
    cluster, (kind, index) = cluster_here(environ)
    server = tf.distribute.Server(tf.train.ClusterSpec(cluster), kind, index, protocol="grpc")
    chief = cluster["chief"][0]
    until = time.monotonic() + _CHIEF_COMES_SECONDS
    while not _answers(chief):
        if time.monotonic() > until:
            what = f"the chief did not start within {_CHIEF_COMES_SECONDS / 60:.0f} minutes"
            raise InfeedError(what, where=f"chief {chief}", do="start it with the same TF_CONFIG, as the task chief 0")
        time.sleep(_LOOK_SECONDS)
    missed = 0
    while missed < _LOOKS:  # TensorFlow's `Server.join` never returns, even after the chief exits
        time.sleep(_LOOK_SECONDS)
        missed = 0 if _answers(chief) else missed + 1
    del server
    if not tf.io.gfile.exists(os.path.join(model, "saved_model.pb")):
        do = "read its log, then start all processes again together; training resumes from the last checkpoint"
        raise InfeedError("the chief exited without exporting a model", where=f"chief {chief}", do=do)


@contextmanager
def lost_process_context() -> Iterator[None]:
    """Raise InfeedError if another process of the training is lost."""
    try:
        yield
    except tf.errors.UnavailableError as error:
        what = f"a process of the training is gone: {str(error).splitlines()[0]}"
        do = "start all processes again together; training resumes from the last checkpoint"
        raise InfeedError(what, where="cluster of TF_CONFIG", do=do) from error


def _config(environ: Mapping[str, str], name: str) -> dict[str, Any]:
    text = environ.get(name)
    try:
        return json.loads(text) if text else {}
    except ValueError as error:
        raise InfeedError(
            f"the value is not valid JSON: {error}", where=f"environment variable {name}", do="correct it, or unset it"
        ) from error


def _does_not_train(kind: str, index: int, training: tuple[str, ...]) -> InfeedError:
    *most, last = training
    do = f"start this program only as {', '.join(most)} or {last}; evaluation runs in the same processes"
    return InfeedError(f"the task {kind} {index} does not train", where="environment variable TF_CONFIG", do=do)


def warn_of_open_port(environ: Mapping[str, str] = os.environ) -> None:
    """Warn that TensorFlow's server binds to all addresses without authentication, regardless of TF_CONFIG."""
    cluster, (kind, index) = cluster_here(environ)
    port = cluster[kind][index].rpartition(":")[2]
    _log.warning(
        "TensorFlow listens on port %s of all addresses and runs any function it receives, without authentication: "
        "restrict the port to the cluster's network, on Kubernetes with a NetworkPolicy",
        port,
    )


def _notice_dead_processes(environ: MutableMapping[str, str]) -> None:
    # Without this variable, TensorFlow waits forever for a lost process, as its tutorial on parameter servers explains.
    environ.setdefault("GRPC_FAIL_FAST", "use_caller")


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_LOOK_SECONDS).close()
    except OSError:
        return False
    return True
