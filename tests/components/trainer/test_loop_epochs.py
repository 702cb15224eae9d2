"""Counting steps, and timing them; `test_loop` and `test_checkpoint` see both in a training."""

import pytest
import tensorflow as tf

from infeed.components.dataset.input_profile import Ceiling, EpochProfile
from infeed.components.trainer import loop
from infeed.components.trainer.steps import Progress

pytestmark = pytest.mark.slow  # Keras takes seconds to load


def calls(progress, count):
    return [progress.take() for _ in range(count)]


def test_the_last_call_of_an_epoch_is_shorter_where_the_numbers_do_not_divide():
    progress = Progress(per_epoch=10, per_call=4)
    assert calls(progress, 6) == [4, 4, 2, 4, 4, 2]


def test_no_step_is_made_after_the_last():
    progress = Progress(per_epoch=10, per_call=4, total=13)
    assert calls(progress, 5) == [4, 4, 2, 3, 0]


def test_a_resumed_epoch_is_begun_again_without_its_steps():
    progress = Progress.resumed(done=14, per_epoch=10, per_call=4, total=20)
    assert (progress.done, progress.to_skip) == (10, 4)  # Keras starts the second epoch anew
    assert calls(progress, 3) == [0, 4, 2]


def test_what_is_counted_while_a_batch_is_there_is_the_floor(clock, meter):
    counts = []

    def train_steps(iterator, count):
        counts.append(int(count))
        clock[0] += 0.01 * int(count)
        meter.seconds[0] += 0.003 * int(count)

    batch = {"x": tf.zeros([4, 1])}, tf.zeros([4])
    ceiling = loop.measure_ceiling(train_steps, meter, tf.distribute.get_strategy(), batch, 4, seconds=1.0)
    assert counts[:2] == [8, 8]
    assert counts[2:] == [20] * 5
    assert ceiling.examples_per_second == pytest.approx(400)
    assert ceiling.floor_seconds == pytest.approx(0.003)  # of the last calls alone: the first may trace


@pytest.mark.parametrize(
    ("floors", "kept", "turns"), [([0.003], 0.003, 1), ([0.009, 0.004], 0.004, 2), ([0.009, 0.008, 0.01], 0.008, 3)]
)
def test_a_floor_above_what_training_waited_is_measured_again(monkeypatch, floors, kept, turns):
    found = iter(floors)
    measured = []
    monkeypatch.setattr(loop, "measure_ceiling", lambda *_: measured.append(1) or Ceiling(9, 1.0, 9.0, next(found)))
    epochs = [EpochProfile(number, 100, 1.0, waited, 1, 1.0) for number, waited in enumerate([0.9, 0.5])]
    strategy = tf.distribute.get_strategy()
    fitted = loop.Fitted(None, [None], {}, epochs, None, None)  # 5 ms a step, after the first
    ceiling = loop.measure_believable_ceiling(fitted, strategy, 4)
    assert (ceiling.floor_seconds, len(measured)) == (kept, turns)
