"""Who trains together, and what each process does: read from TF_CONFIG or, on Vertex AI, from CLUSTER_SPEC.

Asking what a process is starts nothing of TensorFlow's, so it can be asked before anything else happens in it. Of a
cluster with parameter servers the chief alone runs the training program; workers and parameter servers carry out what
it sends, and end after it.
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

from infeed.components.errors import InfeedError
from infeed.components.feed.options import WorkerContext

_CHIEF_COMES_SECONDS = 900.0  # the machines of a job do not start together
_LOOK_SECONDS = 1.0
_log = logging.getLogger(__name__)
_LOOKS = 3  # that find no chief, one after the other, before it counts as gone
_TRAINING_TASKS = ("chief", "worker")  # in the order in which TensorFlow numbers them

# https://cloud.google.com/vertex-ai/docs/training/distributed-training: the place of a pool says what its machines do.
_VERTEX_POOLS = {"workerpool0": "chief", "workerpool1": "worker", "workerpool2": "ps", "workerpool3": "evaluator"}


def adopt_cluster_spec(environ: MutableMapping[str, str] = os.environ) -> None:
    """Sets TF_CONFIG, which TensorFlow reads, from the CLUSTER_SPEC that Vertex AI sets on each machine of a job.

    A TF_CONFIG that stands beside it is not relied upon: Google's may call the first machine `master`, a task that
    TensorFlow 2 does not know.

    Raises:
      InfeedError: CLUSTER_SPEC is no JSON.
    """
    if environ.get("CLUSTER_SPEC"):
        environ["TF_CONFIG"] = json.dumps(tf_config(_config(environ, "CLUSTER_SPEC")))


def tf_config(cluster_spec: Mapping[str, Any]) -> dict[str, Any]:
    """The value of TF_CONFIG for a value of CLUSTER_SPEC: the same machines, with TensorFlow's names of their tasks."""
    task = cluster_spec["task"]
    return {
        "cluster": {_VERTEX_POOLS[pool]: machines for pool, machines in cluster_spec["cluster"].items()},
        "task": {"type": _VERTEX_POOLS[task["type"]], "index": int(task["index"])},
    }


def cluster_here(environ: Mapping[str, str] = os.environ) -> tuple[dict[str, list[str]], tuple[str, int]]:
    """The addresses of each kind of task, and which task this process is, by kind and index.

    Raises:
      InfeedError: TF_CONFIG is no JSON.
    """
    config = _config(environ, "TF_CONFIG")
    task = config.get("task", {})
    return config.get("cluster", {}), (task.get("type", ""), int(task.get("index", 0)))


def worker_context(environ: Mapping[str, str] = os.environ) -> WorkerContext:
    """Which worker of how many this process is; worker 0 is the chief, which exports and reports.

    Raises:
      InfeedError: TF_CONFIG is no JSON, or names a task that does not train, such as an evaluator.
    """
    cluster, here = cluster_here(environ)
    tasks = [(kind, index) for kind in _TRAINING_TASKS for index in range(len(cluster.get(kind, ())))]
    if not tasks:
        return WorkerContext()
    if here not in tasks:
        raise _does_not_train(*here, _TRAINING_TASKS)
    return WorkerContext(tasks.index(here), len(tasks))


def coordinated_workers(environ: Mapping[str, str] = os.environ) -> WorkerContext:
    """The workers that train for the chief of a cluster with parameter servers.

    The chief trains nothing itself; it stands for the first of them: it reports and exports.

    Raises:
      InfeedError: TF_CONFIG does not name one chief, workers and parameter servers, or this is another task.
    """
    cluster, (kind, index) = cluster_here(environ)
    chiefs, workers, servers = (len(cluster.get(kind, ())) for kind in ("chief", "worker", "ps"))
    if chiefs != 1 or not workers or not servers:
        raise InfeedError(
            "parameter_server needs one chief, workers and parameter servers, "
            f"and there are {chiefs} chief, {workers} worker and {servers} ps",
            where="environment variable TF_CONFIG",
            do="name them there; for machines that are all alike use the strategy multi_worker_mirrored",
        )
    if kind != "chief":
        raise _does_not_train(kind, index, ("chief", "worker", "ps"))
    return WorkerContext(0, workers)


def only_serves(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is to carry out what a chief sends, in a cluster with parameter servers."""
    return cluster_here(environ)[1][0] in ("worker", "ps")


@dataclass(frozen=True)
class OutputDirs:
    """Folders that a training writes to.

    Attributes:
      model: the saved model.
      run: the model run: logs, traces, and `input_profile.json`.
      checkpoints: what the training resumes from.
    """

    model: str
    run: str
    checkpoints: str


@contextmanager
def chief_writes(places: OutputDirs, workers: WorkerContext) -> Iterator[OutputDirs]:
    """`places` for the chief; for others scratch folders, removed afterwards.

    Saving what is spread over workers needs all of them, though one copy is enough.
    """
    if workers.index == 0:
        yield places
        return
    with tempfile.TemporaryDirectory() as scratch:
        yield OutputDirs(*(os.path.join(scratch, name) for name in ("model", "run", "checkpoints")))


def connect(environ: MutableMapping[str, str] = os.environ) -> tf.distribute.Strategy:
    """The strategy, on the chief, once all workers and parameter servers answer.

    Raises:
      InfeedError: a worker has several GPUs.
    """
    _notice_dead_processes(environ)
    strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
    if strategy.num_replicas_in_sync > 1:
        raise InfeedError(
            f"a worker has {strategy.num_replicas_in_sync} GPUs; the optimizers of Keras 3 cannot share them",
            where="strategy parameter_server",
            do="start one worker a GPU, and show it that one by CUDA_VISIBLE_DEVICES",
        )
    tf.distribute.coordinator.ClusterCoordinator(strategy)  # from now on a table that is loaded is on every worker
    return strategy


def serve(model: str, environ: MutableMapping[str, str] = os.environ) -> None:
    """Carries out what the chief sends, until the chief's process is gone.

    Args:
      model: folder that the chief exports to; without a model in there the chief has failed.

    Raises:
      InfeedError: the chief did not come, or left no model.
    """
    _notice_dead_processes(environ)
    warn_of_open_port(environ)
    cluster, (kind, index) = cluster_here(environ)
    server = tf.distribute.Server(tf.train.ClusterSpec(cluster), kind, index, protocol="grpc")
    chief = cluster["chief"][0]
    _wait_for(chief)
    _wait_until_gone(chief)
    del server
    if not tf.io.gfile.exists(os.path.join(model, "saved_model.pb")):
        raise InfeedError(
            "the chief ended and left no model",
            where=f"chief {chief}",
            do="see its log, and start all processes again, together; training goes on from the last checkpoint",
        )


@contextmanager
def lost_process_context() -> Iterator[None]:
    """Raises InfeedError where another process of the training is gone for good."""
    try:
        yield
    except tf.errors.UnavailableError as error:
        raise InfeedError(
            f"a process of the training is gone: {str(error).splitlines()[0]}",
            where="cluster of TF_CONFIG",
            do="start all processes again, together; training goes on from the last checkpoint",
        ) from error


def _config(environ: Mapping[str, str], name: str) -> dict[str, Any]:
    text = environ.get(name)
    try:
        return json.loads(text) if text else {}
    except ValueError as error:
        raise InfeedError(
            f"it is not valid JSON: {error}", where=f"environment variable {name}", do="correct it, or unset it"
        ) from error


def _does_not_train(kind: str, index: int, training: tuple[str, ...]) -> InfeedError:
    *most, last = training
    return InfeedError(
        f"the task {kind} {index} does not train",
        where="environment variable TF_CONFIG",
        do=f"start this program only as {', '.join(most)} or {last}; evaluation runs in the same processes",
    )


def warn_of_open_port(environ: Mapping[str, str] = os.environ) -> None:
    """TensorFlow's server binds to all addresses, whatever TF_CONFIG says, without authentication."""
    cluster, (kind, index) = cluster_here(environ)
    port = cluster[kind][index].rpartition(":")[2]
    _log.warning(
        "TensorFlow listens on port %s of all addresses and runs what it is sent, without authentication: "
        "keep the port inside of the cluster's network, on Kubernetes by a NetworkPolicy",
        port,
    )


def _notice_dead_processes(environ: MutableMapping[str, str]) -> None:
    """TensorFlow would wait for ever for a process that is gone; it says so of this variable in its own tutorial."""
    environ.setdefault("GRPC_FAIL_FAST", "use_caller")


def _wait_for(chief: str) -> None:
    until = time.monotonic() + _CHIEF_COMES_SECONDS
    while not _answers(chief):
        if time.monotonic() > until:
            raise InfeedError(
                f"the chief did not come within {_CHIEF_COMES_SECONDS / 60:.0f} minutes",
                where=f"chief {chief}",
                do="start it with the same TF_CONFIG, as the task chief 0",
            )
        time.sleep(_LOOK_SECONDS)


def _wait_until_gone(chief: str) -> None:
    # TensorFlow's own `Server.join` never returns, even when the chief is gone: the job would have to be killed.
    missed = 0
    while missed < _LOOKS:
        time.sleep(_LOOK_SECONDS)
        missed = 0 if _answers(chief) else missed + 1


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_LOOK_SECONDS).close()
    except OSError:
        return False
    return True
