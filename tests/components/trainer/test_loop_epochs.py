"""Counting steps, and timing them; `test_loop` and `test_checkpoint` see both in a training."""

import keras
import pytest
import tensorflow as tf

from infeed.components.trainer import loop
from infeed.components.trainer.loop import RecordEpochs
from infeed.components.trainer.steps import Progress

pytestmark = pytest.mark.slow  # Keras takes seconds to load


def calls(progress, count):
    return [progress.take() for _ in range(count)]


def test_the_last_call_of_an_epoch_is_shorter_where_the_numbers_do_not_divide():
    progress = Progress(per_epoch=10, per_call=4)
    assert calls(progress, 6) == [4, 4, 2, 4, 4, 2]
    assert progress.ends_epoch


def test_no_step_is_made_after_the_last():
    progress = Progress(per_epoch=10, per_call=4, total=13)
    assert calls(progress, 5) == [4, 4, 2, 3, 0]
    assert progress.ends_epoch


def test_a_resumed_epoch_is_begun_again_without_its_steps():
    progress = Progress.resumed(done=14, per_epoch=10, per_call=4, total=20)
    assert (progress.done, progress.to_skip) == (10, 4)  # Keras starts the second epoch anew
    assert calls(progress, 3) == [0, 4, 2]


class Waited:
    """A meter that says what it is told to."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.seconds = [0.0]


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when a test says so."""
    now = [100.0]
    monkeypatch.setattr(loop.time, "perf_counter", lambda: now[0])
    return now


def test_an_epoch_lasts_from_its_first_step_to_its_last(clock):
    meter, progress = Waited(), Progress(per_epoch=2, per_call=1)
    record = RecordEpochs(meter, progress, batch_size=8)
    record.on_epoch_begin(0)
    for _ in range(2):
        progress.take()
        clock[0] += 1.5
        record.on_train_batch_end(0)
    clock[0] += 60.0  # of validation
    meter.seconds = [0.5]
    record.on_epoch_end(0)
    (epoch,) = record.epochs
    assert (epoch.steps, epoch.examples, epoch.seconds, epoch.wait_seconds) == (2, 16, 3.0, 0.5)
    assert epoch.examples_per_second == pytest.approx(16 / 3)


def test_waiting_is_no_longer_than_the_epoch(clock):
    meter = Waited()
    record = RecordEpochs(meter, Progress(per_epoch=1, per_call=1, done=1), batch_size=8)
    record.on_epoch_begin(0)
    clock[0] += 2.0
    record.on_train_batch_end(0)
    meter.seconds = [2.001]  # by another clock
    record.on_epoch_end(0)
    assert record.epochs[0].wait_seconds == 2.0


def test_what_is_counted_while_a_batch_is_there_is_the_floor(clock):
    meter, counts = Waited(), []

    def train_steps(iterator, count):
        counts.append(int(count))
        clock[0] += 0.01 * int(count)
        meter.seconds[0] += 0.003 * int(count)

    batch = {"x": tf.zeros([4, 1])}, tf.zeros([4])
    ceiling = loop.measure_ceiling(train_steps, meter, tf.distribute.get_strategy(), batch, 4, seconds=1.0)
    assert counts[:2] == [8, 8]
    assert counts[2] in (99, 100, 101)
    assert ceiling.examples_per_second == pytest.approx(400)
    assert ceiling.floor_seconds == pytest.approx(0.003)  # of the last call alone: the first may trace


def test_it_is_a_callback_of_keras():
    assert issubclass(RecordEpochs, keras.callbacks.Callback)
