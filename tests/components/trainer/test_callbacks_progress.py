from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow  # Keras takes seconds to load


def told(start_step: int = 0, *, pause: float) -> list[str]:
    """Two epochs of two calls of 16 of 40 steps, as Keras tells callbacks of them."""
    from infeed.components import progress
    from infeed.components.trainer import callbacks

    words: list[str] = []
    clock = iter(range(1_000))
    with pytest.MonkeyPatch.context() as patch, progress.listening(lambda said, _: words.append(said)):
        patch.setattr(callbacks.time, "monotonic", lambda: pause * next(clock) + 1)
        callback = callbacks.ReportProgress(start_step)
        callback.set_params({"epochs": 2, "steps": 40})
        for epoch in range(2):
            callback.on_epoch_begin(epoch)
            for batch in (15, 31):
                callback.on_train_batch_end(batch, {"loss": 0.5 - epoch / 10})
            callback.on_epoch_end(epoch, {"loss": 0.25, "val_loss": 0.75})
    callback.on_epoch_end(1, {"loss": 0.0})
    return words


def test_epoch_step_and_metrics_are_told_while_somebody_listens() -> None:
    assert told(pause=1) == [
        "epoch 1/2, step 16/40, loss 0.5",
        "epoch 1/2, step 32/40, loss 0.5",
        "epoch 1/2, loss 0.25, val_loss 0.75",
        "epoch 2/2, step 16/40, loss 0.4",
        "epoch 2/2, step 32/40, loss 0.4",
        "epoch 2/2, loss 0.25, val_loss 0.75",
    ]


def test_calls_that_follow_quickly_are_not_told_one_by_one() -> None:
    assert told(pause=0.01) == [
        "epoch 1/2, step 16/40, loss 0.5",
        "epoch 1/2, loss 0.25, val_loss 0.75",
        "epoch 2/2, loss 0.25, val_loss 0.75",
    ]


def test_a_resumed_training_says_from_where() -> None:
    assert told(1_200, pause=1)[0] == "resumed at step 1,200, epoch 1/2, step 16/40, loss 0.5"
