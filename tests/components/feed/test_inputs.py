"""Generators as datasets, in this process and in another."""

import os
import signal

import numpy as np
import pytest
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.feed.inputs import Input, from_generator, from_process, items_of

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

SIGNATURE = tf.TensorSpec([2], tf.int64)

GENERATORS = """
import numpy as np

def pairs(count):
    for number in range(count):
        yield np.array([number, number])

def failing():
    yield np.array([0, 0])
    raise ValueError("the source is gone")

def pids():
    import os
    while True:
        yield os.getpid()
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "generators.py"
    path.write_text(GENERATORS)
    return path


def firsts(dataset):
    return [int(batch[0]) for batch in dataset]


def test_a_generator_is_called_anew_for_each_pass_and_runs_ahead_by_no_more_than_the_queue():
    given = []

    def batches():
        for number in range(20):
            given.append(number)
            yield np.array([number, number])

    dataset = from_generator(batches, SIGNATURE, ahead=2)
    assert firsts(dataset) == firsts(dataset) == list(range(20))
    given.clear()
    assert int(next(iter(dataset))[0]) == 0
    assert len(given) <= 5  # one taken, two in the queue, and those on their way in tf.data


def test_training_begins_again_when_the_batches_end_and_starts_anywhere():
    dataset = from_generator(lambda: iter(np.arange(3).repeat(2).reshape(3, 2)), SIGNATURE)
    assert firsts(Input(dataset).dataset(start_step=4).take(4)) == [1, 2, 0, 1]
    assert firsts(Input(dataset, repeatable=False).dataset(start_step=4).take(4)) == [0, 1, 2, 0]
    numbered = Input(lambda start: tf.data.Dataset.counter(start).batch(2))
    assert firsts(numbered.dataset(start_step=4).take(2)) == [4, 6]


def test_a_function_that_does_not_exist_is_told_before_a_process_starts(file):
    with pytest.raises(InfeedError, match=r"defines no function 'triples'(.|\n)*failing, pairs, pids"):
        from_process(f"{file}:triples", SIGNATURE)


def test_another_process_gives_the_same_batches(file):
    dataset = from_process(f"{file}:pairs", SIGNATURE, arguments={"count": 5})
    assert firsts(dataset) == [0, 1, 2, 3, 4]


def test_the_process_is_another_one_and_ends_with_the_iterator(file):
    items = items_of(f"{file}:pids", {})
    pid = next(items)
    assert pid != os.getpid()
    items.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_generator_that_fails_or_is_killed_stops_the_training_with_the_reason(file):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"process exited with code 1(.|\n)*generators.py:failing"):
        firsts(from_process(f"{file}:failing", SIGNATURE))
    items = items_of(f"{file}:pids", {})
    os.kill(next(items), signal.SIGKILL)
    with pytest.raises(InfeedError, match="exited with code -9"):
        list(items)
