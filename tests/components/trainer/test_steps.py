"""The graphs of steps on their own; `test_loop` trains with them, under Keras' `fit` and under a strategy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from infeed.components.feed.meter import Meter
from infeed.components.feed.row_batches import CallRows
from infeed.components.trainer.steps import make_row_steps, make_test_steps, make_train_steps, prepare, unless_empty

pytestmark = [pytest.mark.slow, pytest.mark.stack]  # TensorFlow and Keras take seconds to load

ONE = tf.distribute.get_strategy()


def model():
    keras.utils.set_random_seed(0)
    made = keras.Sequential([keras.Input([2], name="x"), keras.layers.Dense(1)])
    made.compile("sgd", "mse", metrics=["mae"])
    return made


def batches(*sizes):
    given = [(tf.ones([size, 2]), tf.zeros([size])) for size in sizes]
    spec = tf.TensorSpec([None, 2]), tf.TensorSpec([None])
    return tf.data.Dataset.from_generator(lambda: given, output_signature=spec)


def test_a_call_makes_as_many_steps_as_it_is_asked_for():
    made, data = model(), batches(4, 4, 4, 4)
    prepare(made, ONE, data.element_spec)
    iterator = iter(data)
    steps = make_train_steps(made, ONE, Meter())
    steps(iterator, tf.constant(3))
    assert int(made.optimizer.iterations) == 3
    assert len(list(iterator)) == 1


def test_a_call_that_is_given_row_numbers_makes_as_many_steps_as_it_is_asked_for():
    made, meter = model(), Meter()
    prepare(made, ONE, batches(4).element_spec)
    seen = tf.Variable(tf.zeros([4], tf.int64))

    class Rows:
        def gather(self, numbers):
            return numbers

        def batch_of(self, numbers, step, first):
            seen.scatter_nd_add(numbers[step][:, tf.newaxis], tf.ones_like(numbers[step]))
            return tf.ones([2, 2]), tf.zeros([2])

    calls = [[[0, 1], [0, 1]], [[2, 2], [3, 3]], [[3, 3]]]
    rows = tf.data.Dataset.from_generator(lambda: calls, output_signature=tf.TensorSpec([None, 2], tf.int64))
    iterator = iter(rows.map(lambda numbers: CallRows(numbers, tf.constant(0, tf.int64))))
    make_row_steps(made, ONE, meter, Rows())(iterator, tf.constant(3))
    assert int(made.optimizer.iterations) == 3
    assert seen.numpy().tolist() == [2, 2, 2, 0]
    assert meter.seconds[0] > 0
    assert next(iterator).numbers.numpy().tolist() == calls[2]


def test_evaluation_takes_what_is_left_and_says_when_there_is_nothing():
    made, data = model(), batches(4, 4, 2)
    prepare(made, ONE, data.element_spec)
    iterator, steps = iter(data), make_test_steps(made, ONE)
    assert [bool(steps(iterator, tf.constant(2))) for _ in range(3)] == [True, True, False]
    error = float(made(tf.ones([1, 2]))[0, 0])
    np.testing.assert_allclose(made.get_metrics_result()["mae"], abs(error), rtol=1e-6)


def test_a_batch_of_no_rows_is_left_out():
    seen = tf.Variable(0)

    def count(batch):
        seen.assign_add(1)

    step = unless_empty(count)
    for rows in (0, 3):
        tf.function(step)((tf.zeros([rows, 2]), tf.zeros([rows])))
    assert int(seen) == 1
