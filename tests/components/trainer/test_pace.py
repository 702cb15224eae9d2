from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.slow  # Keras takes seconds to load


def told(*, pause: float, heard: bool = True, **given: Any) -> list[str]:
    """Return the words of two epochs of two calls of 16 of 40 steps of 8 examples. Half of the time is waiting."""
    from infeed.components.base import progress
    from infeed.components.trainer import pace

    words: list[str] = []
    clock = [0]

    def now() -> float:
        return 1 + pause * clock[0]

    with pytest.MonkeyPatch.context() as patch, progress.listening(lambda said, _: words.append(said)):
        patch.setattr(pace.time, "monotonic", now)
        patch.setattr(progress, "is_heard", lambda: heard)
        callback = pace.ReportPace(8, waited=lambda: [0.0, pause * clock[0] / 2], **given)
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

    from infeed.components.trainer import pace

    callback = pace.ReportPace(8, waited=waited)
    callback.set_params({"epochs": 1, "steps": 40})
    callback.on_epoch_begin(0)
    callback.on_train_batch_end(15, {"loss": object()})
    callback.on_epoch_end(0, {"loss": object()})
