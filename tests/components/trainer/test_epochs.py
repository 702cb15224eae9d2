"""Where the time of an epoch goes; `test_loop` and `test_checkpoint` see it in a training."""

from typing import Any

import keras
import pytest

from infeed.components.trainer.epochs import RecordEpochs
from infeed.components.trainer.steps import Progress

pytestmark = pytest.mark.slow  # Keras takes seconds to load


def test_an_epoch_lasts_from_its_first_step_to_its_last(clock, meter):
    progress = Progress(per_epoch=2, per_call=1)
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


def test_waiting_is_no_longer_than_the_epoch(clock, meter):
    record = RecordEpochs(meter, Progress(per_epoch=1, per_call=1, done=1), batch_size=8)
    record.on_epoch_begin(0)
    clock[0] += 2.0
    record.on_train_batch_end(0)
    meter.seconds = [2.001]  # by another clock
    record.on_epoch_end(0)
    assert record.epochs[0].wait_seconds == 2.0


class Slow(keras.callbacks.Callback):
    """Takes its time at the beginning and the end of a batch."""

    def __init__(self, clock, seconds):
        super().__init__()
        self._clock, self._seconds = clock, seconds

    def on_train_batch_begin(self, batch, logs=None):
        self._clock[0] += self._seconds / 4

    def on_train_batch_end(self, batch, logs=None):
        self._clock[0] += self._seconds


def test_time_between_calls_is_taken_apart_by_callback_that_of_the_last_call_too(clock, meter):
    progress = Progress(per_epoch=2, per_call=1)
    record = RecordEpochs(meter, progress, batch_size=8)
    callbacks = record.among([Slow(clock, 0.4), keras.callbacks.EarlyStopping(), Slow(clock, 0.8)])
    record.on_epoch_begin(0)
    for _ in range(2):
        progress.take()
        clock[0] += 0.1  # Keras itself
        for callback in callbacks:
            callback.on_train_batch_begin(0)
        clock[0] += 0.2
        record.starts_call()
        clock[0] += 1.0  # the steps
        for callback in callbacks:
            callback.on_train_batch_end(0)
    record.on_epoch_end(0)
    (epoch,) = record.epochs
    of_both = 2 * (0.4 + 0.8) * 1.25
    assert epoch.callback_seconds == {"Slow": pytest.approx(of_both), "EarlyStopping": 0.0}
    assert epoch.outside_seconds == pytest.approx(of_both + 2 * 0.3)
    assert epoch.seconds == pytest.approx(epoch.outside_seconds + 2 * 1.0)


@pytest.mark.parametrize("epochs_of_ten", [3, 100])
def test_the_timeline_has_all_steps_in_a_bounded_number_of_parts_of_like_length(clock, meter, epochs_of_ten):
    progress = Progress(per_epoch=10, per_call=1)
    record = RecordEpochs(meter, progress, batch_size=8)
    assert record.timeline is None
    for epoch in range(epochs_of_ten):
        meter.reset()
        record.on_epoch_begin(epoch)
        for _ in range(10):
            progress.take()
            clock[0] += 1.0
            meter.seconds = [meter.seconds[0] + 0.25]
            record.on_train_batch_end(0)
        record.on_epoch_end(epoch)
    timeline = record.timeline
    assert sum(timeline.steps) == 10 * epochs_of_ten
    assert timeline.seconds == pytest.approx(timeline.steps)
    assert timeline.wait_seconds == pytest.approx([one / 4 for one in timeline.steps])
    assert len(timeline.steps) <= 201
    assert max(timeline.steps) <= 3 * min(timeline.steps[:-1])


def told(*, pause: float, heard: bool = True, **given: Any) -> list[str]:
    """Return the words of two epochs of two calls of 16 of 40 steps of 8 examples. Half of the time is waiting."""
    from infeed.components.base import progress
    from infeed.components.trainer import epochs

    words: list[str] = []
    clock = [0]

    def now() -> float:
        return 1 + pause * clock[0]

    with pytest.MonkeyPatch.context() as patch, progress.listening(lambda said, _: words.append(said)):
        patch.setattr(epochs.time, "monotonic", now)
        patch.setattr(progress, "is_heard", lambda: heard)
        callback = epochs.ReportPace(8, waited=lambda: [0.0, pause * clock[0] / 2], **given)
        callback.set_params({"epochs": 2, "steps": 40})
        for epoch in range(2):
            callback.on_epoch_begin(epoch)
            for batch in (15, 31):
                clock[0] += 1
                callback.on_train_batch_end(batch, {"loss": 0.5 - epoch / 10, "accuracy": 0.75, "auc": 0.9})
            clock[0] += 1
            callback.on_epoch_end(epoch, {"loss": 0.25, "accuracy": 0.75, "val_loss": 0.75})
        callback.on_train_end()
    return words


def test_the_pace_has_step_loss_main_metric_rate_wait_and_time_left() -> None:
    assert told(pause=1) == [
        "epoch 1/2, step 16/40, loss 0.5, accuracy 0.75",
        "epoch 1/2, step 32/40, loss 0.5, accuracy 0.75, 128 examples/s, waited 50 %, 3 s left",
        "epoch 1/2, loss 0.25, accuracy 0.75, val_loss 0.75, 128 examples/s, waited 50 %, 4 s left",
        "epoch 2/2, step 16/40, loss 0.4, accuracy 0.75, 128 examples/s, waited 50 %, 2 s left",
        "epoch 2/2, step 32/40, loss 0.4, accuracy 0.75, 128 examples/s, waited 50 %, 1 s left",
        "epoch 2/2, loss 0.25, accuracy 0.75, val_loss 0.75, 128 examples/s, waited 50 %",
        "epoch 2/2, loss 0.25, accuracy 0.75, val_loss 0.75, 128 examples/s",
    ]


def test_calls_that_follow_quickly_are_not_reported_one_by_one() -> None:
    assert [words.split(", loss")[0] for words in told(pause=0.01)] == [
        "epoch 1/2, step 16/40",
        *["epoch 1/2"],
        *["epoch 2/2"] * 2,
    ]


def test_a_resumed_training_says_from_where_and_is_not_measured_while_keras_repeats_calls() -> None:
    words = told(pause=1, start_step=32)
    assert words[0] == "resumed at step 32, epoch 1/2, loss 0.25, accuracy 0.75, val_loss 0.75"


def test_time_is_left_until_the_last_step_only() -> None:
    assert told(pause=1, max_steps=48)[1].endswith("1 s left")


def test_nothing_is_read_without_listeners() -> None:
    def waited() -> list[float]:
        raise AssertionError("read")

    from infeed.components.trainer import epochs

    callback = epochs.ReportPace(8, waited=waited)
    callback.set_params({"epochs": 1, "steps": 40})
    callback.on_epoch_begin(0)
    callback.on_train_batch_end(15, {"loss": object()})
    callback.on_epoch_end(0, {"loss": object()})
