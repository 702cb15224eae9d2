"""In-graph measurement of the time that training waits for batches: `Meter` for our loop, `Tap` for other loops.

The clock is read before and after the iterator returns a batch. Control dependencies tie both readings to the batch, so
the measurement works in eager steps, in loops inside a `tf.function`, and under a distribution strategy.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class Meter:
    """Sum of the seconds waited for input, float64 [1]. A step costs two clock readings and one addition."""

    def __init__(self) -> None:
        with tf.device("cpu:0"):
            zeros = tf.zeros([1], tf.float64)
            self.waited = tf.Variable(zeros, trainable=False, name="seconds_waited_for_input")

    def next(self, iterator: Any) -> Any:
        """Return the iterator's next batch, and add the wait.

        Call this method inside the `tf.function` that uses the batch.
        """
        asked = tf.timestamp()
        with tf.control_dependencies([asked]):
            batch = next(iterator)
        strategy = tf.distribute.get_strategy()
        # The batch of every local replica.
        local = [strategy.experimental_local_results(one) for one in tf.nest.flatten(batch)]
        with tf.control_dependencies(tf.nest.flatten(local, expand_composites=True)):
            arrived = tf.timestamp()
        self.waited.scatter_nd_add([[0]], [arrived - asked])
        return batch

    @property
    def seconds(self) -> list[float]:
        """Seconds waited since the last reset."""
        return [float(one) for one in self.waited.numpy()]

    def reset(self) -> None:
        """Reset the clock to zero."""
        self.waited.assign(tf.zeros(self.waited.shape, tf.float64))


class Tap:
    """Measurement inside a dataset, for a user's loop: the time from the request to the arrival of each batch.

    The loop itself must request the batches. After a `prefetch`, including the one that TensorFlow adds for several
    devices, the measurement is wrong.
    """

    _EPOCHS = 10_000  # epochs after this many count toward the last one

    def __init__(self, steps_per_epoch: int) -> None:
        self._steps = steps_per_epoch
        with tf.device("cpu:0"):
            self._count = tf.Variable(0, dtype=tf.int64, trainable=False)
            self._asked_first, self._arrived_last, self._waited, self._batches = (
                tf.Variable(tf.fill([self._EPOCHS], tf.constant(start, tf.float64)), trainable=False)
                for start in (float("inf"), 0.0, 0.0, 0.0)
            )

    def measured(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Return the same batches, with measurement."""
        asked = tf.data.Dataset.counter().map(lambda _: tf.timestamp())
        tapped = tf.data.Dataset.zip((asked, dataset)).map(self._note)  # zip reads its inputs in this order
        options = tf.data.Options()
        # A prefetch that TensorFlow injects would request batches in place of the loop.
        options.experimental_optimization.inject_prefetch = False
        return tapped.with_options(options)

    @property
    def epochs(self) -> list[tuple[int, float, float]]:
        """Batches, seconds, and waited seconds of each epoch.

        The clock stops when the last batch arrives. The duration of the last step is the mean of the others.
        """
        columns = (self._asked_first, self._arrived_last, self._waited, self._batches)
        found = []
        for asked_first, arrived_last, waited, batches in zip(*(one.numpy().tolist() for one in columns), strict=True):
            if batches:
                computed = max(0.0, arrived_last - asked_first - waited)
                found.append((int(batches), waited + computed * batches / max(1.0, batches - 1), waited))
        return found

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
