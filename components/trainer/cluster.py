"""Who trains together: the cluster that TF_CONFIG or, on Vertex AI, CLUSTER_SPEC describes."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from infeed.components.errors import InfeedError
from infeed.components.feed.options import Workers
from infeed.components.trainer import devices

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


def workers_here(environ: Mapping[str, str] = os.environ) -> Workers:
    """Which worker of how many this process is; worker 0 is the chief, which exports and reports.

    Raises:
      InfeedError: TF_CONFIG is no JSON, or names a task that does not train, such as an evaluator.
    """
    cluster, here = cluster_here(environ)
    tasks = [(kind, index) for kind in _TRAINING_TASKS for index in range(len(cluster.get(kind, ())))]
    if not tasks:
        return Workers()
    if here not in tasks:
        raise InfeedError(
            f"the task {here[0]} {here[1]} does not train",
            where="environment variable TF_CONFIG",
            do=f"Start this program only as {' or '.join(_TRAINING_TASKS)}; evaluation runs in the same processes.",
        )
    return Workers(tasks.index(here), len(tasks))


def cluster_here(environ: Mapping[str, str] = os.environ) -> tuple[dict[str, list[str]], tuple[str, int]]:
    """The addresses of each kind of task, and which task this process is, by kind and index.

    Raises:
      InfeedError: TF_CONFIG is no JSON.
    """
    config = _config(environ, "TF_CONFIG")
    task = config.get("task", {})
    return config.get("cluster", {}), (task.get("type", ""), int(task.get("index", 0)))


def _config(environ: Mapping[str, str], name: str) -> dict[str, Any]:
    text = environ.get(name)
    try:
        return json.loads(text) if text else {}
    except ValueError as error:
        raise InfeedError(
            f"not valid JSON: {error}", where=f"environment variable {name}", do="Mend it, or unset it."
        ) from error


def is_coordinated(strategy: tf.distribute.Strategy) -> bool:
    """Whether one process schedules what the others do, as with parameter servers."""
    return isinstance(strategy, tf.distribute.ParameterServerStrategy)


def distribute(dataset: tf.data.Dataset, strategy: tf.distribute.Strategy, batch_size: int) -> Any:
    """This worker's batches, each dealt out in equal parts to the replicas of this worker, and copied to their devices.

    Args:
      dataset: [batch of this worker, ...]; in evaluation the last batch may be short.
      strategy: the one that trains.
      batch_size: of the global batch, a multiple of the number of replicas.
    """

    def deal(context: tf.distribute.InputContext) -> tf.data.Dataset:
        one_replica = context.num_replicas_in_sync == context.num_input_pipelines
        return dataset if one_replica else dataset.rebatch(batch_size // context.num_replicas_in_sync)

    if is_coordinated(strategy):
        return tf.distribute.coordinator.ClusterCoordinator(strategy).create_per_worker_dataset(dataset)
    return devices.feeding(strategy).distribute_datasets_from_function(deal)


def agreed(value: float, strategy: tf.distribute.Strategy) -> float:
    """The mean of all replicas' values, the same on every worker."""
    if is_coordinated(strategy):
        return value  # nobody else measures or decides

    @tf.function
    def mean(value: tf.Tensor) -> tf.Tensor:
        return strategy.reduce("MEAN", strategy.run(lambda: tf.identity(value)), axis=None)

    return float(mean(tf.constant(value, tf.float32)))


def of_all_workers(value: int, strategy: tf.distribute.Strategy) -> list[int]:
    """The values that the workers give, one for each replica, in the same order everywhere."""

    @tf.function
    def gathered(value: tf.Tensor) -> tf.Tensor:
        return strategy.gather(strategy.run(lambda: tf.reshape(value, [1])), axis=0)

    return [int(one) for one in gathered(tf.constant(value, tf.int64))]


def meet(strategy: tf.distribute.Strategy) -> None:
    """Returns when every worker has called it."""
    agreed(0.0, strategy)


@dataclass(frozen=True)
class Places:
    """Folders that a training writes to: the saved model, the model run, and its checkpoints."""

    model: str
    run: str
    checkpoints: str


@contextmanager
def chief_writes(places: Places, workers: Workers) -> Iterator[Places]:
    """`places` for the chief; for others scratch folders, removed afterwards.

    Saving what is spread over workers needs all of them, though one copy is enough.
    """
    if workers.index == 0:
        yield places
        return
    with tempfile.TemporaryDirectory() as scratch:
        yield Places(*(os.path.join(scratch, name) for name in ("model", "run", "checkpoints")))
