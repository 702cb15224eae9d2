import time

import tensorflow as tf

from infeed.components.feed.meter import Meter

PAUSE = 0.02


def slow(value):
    time.sleep(PAUSE)
    return value


def slow_dataset(steps):
    return tf.data.Dataset.range(steps).map(lambda i: tf.ensure_shape(tf.py_function(slow, [i], tf.int64), []))


def consume(meter, dataset, steps):
    @tf.function
    def loop(iterator):
        total = tf.constant(0, tf.int64)
        for _ in tf.range(steps):
            total += meter.next(iterator)
        return total

    return int(loop(iter(dataset)))


def test_it_counts_at_least_the_time_the_input_took():
    meter = Meter()
    assert consume(meter, slow_dataset(10), 10) == sum(range(10))  # every batch is handed on
    assert meter.seconds >= 10 * PAUSE * 0.9


def test_ready_input_costs_a_small_part_of_slow_input():
    ready, waited = Meter(), Meter()
    consume(ready, tf.data.Dataset.range(10), 10)
    consume(waited, slow_dataset(10), 10)
    assert ready.seconds < waited.seconds / 4


def test_reset_starts_again_at_zero():
    meter = Meter()
    consume(meter, slow_dataset(2), 2)
    meter.reset()
    assert meter.seconds == 0
