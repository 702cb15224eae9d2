"""Parameter servers: which process does what, and when it ends.

The chief alone runs the training program. Workers and parameter servers carry out what it sends, and end after it.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager

import tensorflow as tf

from infeed.components.errors import InfeedError
from infeed.components.feed.options import Workers
from infeed.components.trainer.cluster import cluster_here

_CHIEF_COMES_SECONDS = 900.0  # the machines of a job do not start together
_LOOK_SECONDS = 1.0
_LOOKS = 3  # that find no chief, one after the other, before it counts as gone


def chief_of(environ: Mapping[str, str] = os.environ) -> Workers:
    """The workers that train for the chief, which stands for the first of them: it reports and exports.

    Raises:
      InfeedError: TF_CONFIG does not name one chief, workers and parameter servers, or this is another task.
    """
    cluster, (kind, index) = cluster_here(environ)
    counts = [len(cluster.get(kind, ())) for kind in ("chief", "worker", "ps")]
    if counts[0] != 1 or 0 in counts:
        raise InfeedError(
            "parameter_server needs one chief, workers and parameter servers, "
            f"and there are {counts[0]} chief, {counts[1]} worker and {counts[2]} ps",
            where="environment variable TF_CONFIG",
            do="Name them there; for machines that are all alike use the strategy multi_worker_mirrored.",
        )
    if kind != "chief":
        raise InfeedError(
            f"the task {kind} {index} does not train",
            where="environment variable TF_CONFIG",
            do="Start this program only as chief, worker or ps; evaluation runs in the same processes.",
        )
    return Workers(0, counts[1])


def only_serves(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is to carry out what a chief sends."""
    return cluster_here(environ)[1][0] in ("worker", "ps")


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
            do="Start one worker a GPU, and show it that one by CUDA_VISIBLE_DEVICES.",
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
            do="Its log says why. Start all processes again, together; training goes on from the last checkpoint.",
        )


@contextmanager
def naming_lost_processes() -> Iterator[None]:
    """Raises InfeedError where another process of the training is gone for good."""
    try:
        yield
    except tf.errors.UnavailableError as error:
        raise InfeedError(
            f"a process of the training is gone: {str(error).splitlines()[0]}",
            where="cluster of TF_CONFIG",
            do="Start all processes again, together; training goes on from the last checkpoint.",
        ) from error


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
                do="Start it with the same TF_CONFIG, as the task chief 0.",
            )
        time.sleep(_LOOK_SECONDS)


def _wait_until_gone(chief: str) -> None:
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
