"""tf.data and `as_numpy_iterator`: row numbers shuffled over the whole epoch, each batch gathered from the arrays.

Or one batch again and again, which costs nothing but to hand it over: the limit of whatever TensorFlow hands to Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from arrays import Job, serve


def make(job: Job) -> Iterator[Any]:
    x, y = tf.constant(job.x), tf.constant(job.y)
    rows = tf.data.Dataset.range(len(job.x)).shuffle(len(job.x)).repeat().batch(job.batch, drop_remainder=True)
    batches = rows.map(lambda rows: {"x": tf.gather(x, rows), "y": tf.gather(y, rows)}, tf.data.AUTOTUNE)
    if job.how == "again":
        again = tf.data.Dataset.from_tensors(next(iter(batches))).repeat()
        return iter(again.as_numpy_iterator())
    return iter(batches.prefetch(tf.data.AUTOTUNE).as_numpy_iterator())


if __name__ == "__main__":
    serve(make)
