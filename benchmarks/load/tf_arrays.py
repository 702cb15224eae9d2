"""tf.data: row numbers shuffled over the whole epoch, each batch gathered from the arrays, `as_numpy_iterator`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from arrays import Job, serve


def make(job: Job) -> Iterator[Any]:
    x, y = tf.constant(job.x), tf.constant(job.y)
    rows = tf.data.Dataset.range(len(job.x)).shuffle(len(job.x)).repeat().batch(job.batch, drop_remainder=True)
    batches = rows.map(lambda rows: {"x": tf.gather(x, rows), "y": tf.gather(y, rows)}, tf.data.AUTOTUNE)
    return iter(batches.prefetch(tf.data.AUTOTUNE).as_numpy_iterator())


if __name__ == "__main__":
    serve(make)
