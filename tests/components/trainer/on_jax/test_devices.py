"""Batches that a thread makes ahead of the steps, and evaluation batches that several processes share."""

import threading
from dataclasses import dataclass, field

import numpy as np
import pytest
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.feed.meter import Meter
from infeed.components.trainer.on_jax.devices import Ahead, evaluation_batches, training_batches

pytestmark = [pytest.mark.slow, pytest.mark.stack]


@dataclass
class OneOfTwoWorkers:
    """Devices of a process beside one that has `other` rows in each evaluation batch."""

    other: list[int]
    placed: list[bool] = field(default_factory=list)

    def gather(self, values):
        return [*values, self.other.pop(0)]

    def gather_rows(self, batch):
        return tf.nest.map_structure(lambda one: np.concatenate([one, one + 100]), batch)

    def place(self, batch, *, whole=False):
        self.placed.append(whole)
        return batch


def numbers(count, size):
    return tf.data.Dataset.range(count).map(lambda n: ({"x": n[tf.newaxis]}, n)).batch(size)


def labels(batches):
    return [batch[1].tolist() for batch in batches]


def test_a_batch_that_is_ready_does_not_count_as_waiting():
    asked, meter = threading.Event(), Meter()

    def make():
        yield from (1, 2)
        asked.set()
        yield 3

    ahead = Ahead(make(), meter)
    asked.wait()
    assert [ahead.next(()), ahead.next(())] == [1, 2]
    assert meter.seconds == [0.0]
    ahead.close()


def test_the_clock_runs_while_there_is_no_batch():
    let, meter = threading.Event(), Meter()

    def make():
        let.wait()
        yield 1

    ahead = Ahead(make(), meter)
    threading.Timer(0.05, let.set).start()
    assert ahead.next(()) == 1
    assert meter.seconds[0] > 0
    ahead.close()


def test_an_error_of_the_feed_is_raised_by_the_loop():
    def make():
        yield 1
        raise InfeedError("corrupt record", do="write it again")

    ahead = Ahead(make(), Meter())
    assert ahead.next(()) == 1
    with pytest.raises(InfeedError, match="corrupt record"):
        ahead.next(())


def test_whole_numbers_have_32_bits_and_larger_ones_are_refused():
    devices = OneOfTwoWorkers([])
    [(features, label)] = training_batches(numbers(3, 3), devices)
    assert features["x"].dtype == label.dtype == np.int32
    too_large = numbers(3, 3).map(lambda features, label: (features, label + 2**40))
    with pytest.raises(InfeedError, match=str(2**40 + 2)):
        list(training_batches(too_large, devices))


def test_full_batches_of_evaluation_are_shared_and_the_last_rows_are_on_every_device():
    devices = OneOfTwoWorkers([2, 1, 0])
    assert labels(evaluation_batches(numbers(4, 2), devices, 2)) == [[0, 1], [2, 3, 102]]
    assert devices.placed == [False, True]


def test_a_process_without_rows_takes_part_in_the_evaluation_of_the_others():
    devices = OneOfTwoWorkers([2, 2, 0])
    assert labels(evaluation_batches(numbers(2, 2), devices, 2)) == [[0, 1], [100, 100]]
    assert devices.placed == [False, True]
