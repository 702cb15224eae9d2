"""tf.data and `as_numpy_iterator`: each batch gathered from the arrays, in an exact shuffle.

The row numbers come from one permutation per epoch, a batch per element, or one by one from `Dataset.shuffle`. A third
variant repeats one batch. It measures only the transfer from TensorFlow to Python, which is the limit of all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from arrays import Job, serve


def make(job: Job) -> Iterator[Any]:
    x, y = tf.constant(job.x), tf.constant(job.y)
    if job.how == "permutation":
        rows = permuted(len(job.x), job.batch)
    else:  # draws row numbers one by one, and batches them
        rows = tf.data.Dataset.range(len(job.x)).shuffle(len(job.x)).repeat().batch(job.batch, drop_remainder=True)
    batches = rows.map(lambda rows: {"x": tf.gather(x, rows), "y": tf.gather(y, rows)}, tf.data.AUTOTUNE)
    if job.how == "again":
        again = tf.data.Dataset.from_tensors(next(iter(batches))).repeat()
        return iter(again.as_numpy_iterator())
    return iter(batches.prefetch(tf.data.AUTOTUNE).as_numpy_iterator())


def permuted(rows: int, size: int) -> tf.data.Dataset:
    """Yield the row numbers of each batch, from one permutation per epoch."""
    steps = rows // size

    def epoch(_: tf.Tensor) -> tf.data.Dataset:
        order = tf.random.shuffle(tf.range(rows, dtype=tf.int64))[: steps * size]
        return tf.data.Dataset.from_tensor_slices(tf.reshape(order, [steps, size]))

    return tf.data.Dataset.range(1 << 60).flat_map(epoch)


if __name__ == "__main__":
    serve(make)
