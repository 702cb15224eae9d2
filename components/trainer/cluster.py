"""Who trains together: the cluster that TF_CONFIG describes, as TensorFlow, Kubeflow and Vertex AI set it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from infeed.components.errors import InfeedError
from infeed.components.feed.options import Workers

_TRAINING_TASKS = ("chief", "worker")  # in the order in which TensorFlow numbers them


def workers_here(environ: Mapping[str, str] = os.environ) -> Workers:
    """Which worker of how many this process is; worker 0 is the chief, which exports and reports.

    Raises:
      InfeedError: TF_CONFIG is no JSON, or names a task that does not train, such as an evaluator.
    """
    config = _config(environ.get("TF_CONFIG", ""))
    cluster = config.get("cluster", {})
    tasks = [(kind, index) for kind in _TRAINING_TASKS for index in range(len(cluster.get(kind, ())))]
    if not tasks:
        return Workers()
    task = config.get("task", {})
    here = (task.get("type"), int(task.get("index", 0)))
    if here not in tasks:
        raise InfeedError(
            f"the task {here[0]} {here[1]} does not train",
            where="environment variable TF_CONFIG",
            do=f"Start this program only as {' or '.join(_TRAINING_TASKS)}; evaluation runs in the same processes.",
        )
    return Workers(tasks.index(here), len(tasks))


def _config(text: str) -> dict[str, Any]:
    try:
        return json.loads(text) if text else {}
    except ValueError as error:
        raise InfeedError(
            f"not valid JSON: {error}", where="environment variable TF_CONFIG", do="Mend it, or unset it."
        ) from error


def distribute(dataset: tf.data.Dataset, strategy: tf.distribute.Strategy, batch_size: int) -> Any:
    """This worker's batches, each dealt out in equal parts to the replicas of this worker.

    Args:
      dataset: [batch of this worker, ...]; in evaluation the last batch may be short.
      strategy: the one that trains.
      batch_size: of the global batch, a multiple of the number of replicas.
    """

    def deal(context: tf.distribute.InputContext) -> tf.data.Dataset:
        one_replica = context.num_replicas_in_sync == context.num_input_pipelines
        return dataset if one_replica else dataset.rebatch(batch_size // context.num_replicas_in_sync)

    return strategy.distribute_datasets_from_function(deal)


def agreed(value: float, strategy: tf.distribute.Strategy) -> float:
    """The mean of all replicas' values, the same on every worker."""

    @tf.function
    def mean(value: tf.Tensor) -> tf.Tensor:
        return strategy.reduce("MEAN", strategy.run(lambda: tf.identity(value)), axis=None)

    return float(mean(tf.constant(value, tf.float32)))


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
