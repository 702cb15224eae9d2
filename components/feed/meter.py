"""Measures, in the graph, how long training waited for each batch: by a `Meter` in our loop, or in any by a `Tap`.

A clock is read before the iterator is asked and again once the batch is there. Both readings are tied to the batch by
control dependencies, so the number is the same whether the step runs eagerly, in a loop inside a `tf.function`, or
under a distribution strategy; nothing leaves the graph until `seconds` is read.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class Meter:
    """Sums the seconds waited for input; about two clock readings and one addition a step.

    Args:
      clocks: how many processes measure at the same time, each by its own clock.

    Attributes:
      waited: variable, float64 [clocks], seconds.
    """

    def __init__(self, clocks: int = 1) -> None:
        with tf.device("cpu:0"):
            zeros = tf.zeros([clocks], tf.float64)
            self.waited = tf.Variable(zeros, trainable=False, name="seconds_waited_for_input")

    def next(self, iterator: Any, clock: Any = 0) -> Any:
        """The iterator's next batch, timed by the clock of that number, int [].

        Call it where the batch is used, inside the `tf.function`.
        """
        asked = tf.timestamp()
        with tf.control_dependencies([asked]):
            batch = next(iterator)
        with tf.control_dependencies(_local_tensors(batch)):
            arrived = tf.timestamp()
        self.waited.scatter_nd_add([[clock]], [arrived - asked])
        return batch

    @property
    def seconds(self) -> list[float]:
        """Seconds waited since the last reset, by each clock."""
        return [float(one) for one in self.waited.numpy()]

    def reset(self) -> None:
        """Starts again at zero."""
        self.waited.assign(tf.zeros(self.waited.shape, tf.float64))


class Tap:
    """Measures a dataset from inside, for a loop that is not ours: what lies between asking for a batch and having it.

    It is right where batches are asked for by the loop itself. A `prefetch` behind it, or the one that TensorFlow puts
    behind a dataset that is dealt out to several devices, asks in the loop's place, and what is measured is that.

    Args:
      steps_per_epoch: batches that are counted as one epoch.
    """

    _EPOCHS = 10_000  # counted each by itself; what comes later counts to the last of them

    def __init__(self, steps_per_epoch: int) -> None:
        self._steps = steps_per_epoch
        with tf.device("cpu:0"):
            self._count = tf.Variable(0, dtype=tf.int64, trainable=False)
            self._asked_first, self._arrived_last, self._waited, self._batches = (
                tf.Variable(tf.fill([self._EPOCHS], tf.constant(start, tf.float64)), trainable=False)
                for start in (float("inf"), 0.0, 0.0, 0.0)
            )

    def measured(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """The same batches."""
        asked = tf.data.Dataset.counter().map(lambda _: tf.timestamp())
        tapped = tf.data.Dataset.zip((asked, dataset)).map(self._note)  # zip asks in this order
        options = tf.data.Options()
        # Else TensorFlow puts a prefetch behind this, which asks in the loop's place.
        options.experimental_optimization.inject_prefetch = False
        return tapped.with_options(options)

    @property
    def epochs(self) -> list[tuple[int, float, float]]:
        """Batches, seconds and the part of these spent waiting, of each epoch.

        The seconds end with an epoch's last batch; the time of training on it is taken for that of the others.
        """
        columns = (self._asked_first, self._arrived_last, self._waited, self._batches)
        return [_epoch(*row) for row in zip(*(column.numpy().tolist() for column in columns), strict=True) if row[3]]

    def _note(self, asked: tf.Tensor, batch: Any) -> Any:
        with tf.control_dependencies(tf.nest.flatten(batch, expand_composites=True)):
            arrived = tf.timestamp()
        epoch = tf.minimum((self._count.assign_add(1) - 1) // self._steps, self._EPOCHS - 1)[tf.newaxis, tf.newaxis]
        notes = [
            self._asked_first.scatter_nd_min(epoch, [asked]),
            self._arrived_last.scatter_nd_max(epoch, [arrived]),
            self._waited.scatter_nd_add(epoch, [arrived - asked]),
            self._batches.scatter_nd_add(epoch, tf.ones([1], tf.float64)),
        ]
        with tf.control_dependencies(notes):
            return tf.nest.map_structure(tf.identity, batch, expand_composites=True)


def _epoch(asked_first: float, arrived_last: float, waited: float, batches: float) -> tuple[int, float, float]:
    computed = max(0.0, arrived_last - asked_first - waited)
    return int(batches), waited + computed * batches / max(1.0, batches - 1), waited


def _local_tensors(batch: Any) -> list[tf.Tensor]:
    """All tensors of a batch, those of every local replica where it is distributed."""
    strategy = tf.distribute.get_strategy()
    return [
        tensor
        for value in tf.nest.flatten(batch)
        for local in strategy.experimental_local_results(value)
        for tensor in tf.nest.flatten(local, expand_composites=True)
    ]
