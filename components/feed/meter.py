"""Measures, in the graph, how long training waited for each batch.

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
      clocks: how many processes measure at the same time; `seconds` is what one of them waited, on average.
    """

    def __init__(self, clocks: int = 1) -> None:
        self._clocks = clocks
        with tf.device("cpu:0"):
            self.waited = tf.Variable(0.0, dtype=tf.float64, trainable=False, name="seconds_waited_for_input")

    def next(self, iterator: Any) -> Any:
        """The iterator's next batch, timed. Call it where the batch is used, inside the `tf.function`."""
        asked = tf.timestamp()
        with tf.control_dependencies([asked]):
            batch = next(iterator)
        with tf.control_dependencies(_local_tensors(batch)):
            arrived = tf.timestamp()
        self.waited.assign_add(arrived - asked)
        return batch

    @property
    def seconds(self) -> float:
        """Seconds waited since the last reset."""
        return float(self.waited.numpy()) / self._clocks

    def reset(self) -> None:
        """Starts again at zero."""
        self.waited.assign(0.0)


def _local_tensors(batch: Any) -> list[tf.Tensor]:
    """All tensors of a batch, those of every local replica where it is distributed."""
    strategy = tf.distribute.get_strategy()
    return [
        tensor
        for value in tf.nest.flatten(batch)
        for local in strategy.experimental_local_results(value)
        for tensor in tf.nest.flatten(local, expand_composites=True)
    ]
