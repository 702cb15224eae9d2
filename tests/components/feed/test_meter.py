import time

import pytest
import tensorflow as tf

from infeed.components.feed.meter import Meter

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

PAUSE = 0.02


def slow(value):
    time.sleep(PAUSE)
    return value


def slow_dataset(steps):
    batches = tf.data.Dataset.range(steps).map(lambda i: tf.ensure_shape(tf.py_function(slow, [i], tf.int64), []))
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # which makes batches before anybody asks for them
    return batches.with_options(options)


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
    assert sum(meter.seconds) >= 10 * PAUSE * 0.9


def test_ready_input_costs_a_small_part_of_slow_input():
    def measured(dataset):
        meter = Meter()
        consume(meter, dataset, 10)
        return sum(meter.seconds)

    ready = min(measured(tf.data.Dataset.range(10)) for _ in range(5))  # a busy machine may interrupt some of them
    assert ready < measured(slow_dataset(10)) / 4


def test_reset_starts_again_at_zero():
    meter = Meter()
    consume(meter, slow_dataset(2), 2)
    meter.reset()
    assert meter.seconds == [0]


def test_a_tap_tells_waiting_from_computing_epoch_by_epoch():
    from infeed.components.feed.meter import Tap

    def late(number):
        time.sleep(0.02)
        return number

    batches = tf.data.Dataset.range(7).map(lambda n: tf.numpy_function(late, [n], tf.int64))
    tap, seen = Tap(steps_per_epoch=4), []
    for batch in tap.measured(batches):
        seen.append(int(batch))
        time.sleep(0.01)
    assert seen == list(range(7))
    (first, *_), (second, *_) = tap.epochs
    assert (first, second) == (4, 3)
    for batches_of, seconds, waited in tap.epochs:
        assert waited >= 0.02 * batches_of
        assert seconds - waited >= 0.01 * batches_of
