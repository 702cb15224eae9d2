"""tf.data and `as_numpy_iterator`: each batch gathered from the arrays, in an exact shuffle.

The row numbers are those of a permutation an epoch, a batch in an element; or they come one by one from
`Dataset.shuffle`. Or one batch comes again and again, which costs nothing but to hand it over: the limit of whatever
TensorFlow hands to Python.
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
    else:  # row numbers of each batch, drawn one by one
        rows = tf.data.Dataset.range(len(job.x)).shuffle(len(job.x)).repeat().batch(job.batch, drop_remainder=True)
    batches = rows.map(lambda rows: {"x": tf.gather(x, rows), "y": tf.gather(y, rows)}, tf.data.AUTOTUNE)
    if job.how == "again":
        again = tf.data.Dataset.from_tensors(next(iter(batches))).repeat()
        return iter(again.as_numpy_iterator())
    return iter(batches.prefetch(tf.data.AUTOTUNE).as_numpy_iterator())


def permuted(rows: int, size: int) -> tf.data.Dataset:
    """Row numbers of each batch, of one permutation an epoch."""
    steps = rows // size

    def epoch(_: tf.Tensor) -> tf.data.Dataset:
        order = tf.random.shuffle(tf.range(rows, dtype=tf.int64))[: steps * size]
        return tf.data.Dataset.from_tensor_slices(tf.reshape(order, [steps, size]))

    return tf.data.Dataset.range(1 << 60).flat_map(epoch)


if __name__ == "__main__":
    serve(make)
