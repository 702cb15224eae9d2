"""Keras' own `fit` on one device, for a Keras whose private names are not as we know them.

The batches, their order, and the resulting weights are those of `loop.fit`. Checkpoints and several devices need names
that Keras has not promised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from infeed.components.dataset.input_profile import EpochProfile
from infeed.components.errors import InfeedError
from infeed.components.feed.meter import Tap
from infeed.components.seams import keras as keras_seam
from infeed.components.trainer.distribution import strategy_name
from infeed.components.trainer.epochs import tapped_epochs


def check(strategy: tf.distribute.Strategy, start_step: int) -> None:
    """Raise InfeedError if this training needs more than Keras' own `fit`."""
    reason, do = keras_seam.STEPS.available(), f"install keras {' or '.join(keras_seam.STEPS.versions)}"
    if (name := strategy_name(strategy)) != "one_device":
        raise InfeedError(
            f"{reason}, so it cannot train under {name}", where="option strategy", do=f"{do}, or use one_device"
        )
    if start_step:
        raise InfeedError(
            f"{reason}, so it cannot resume a training at step {start_step:,}",
            where="option checkpoint_seconds",
            do=f"{do}, or remove the checkpoints",
        )


def fit(
    model: keras.Model,
    train: tf.data.Dataset,
    evaluation: tf.data.Dataset,
    *,
    batch_size: int,
    steps_per_epoch: int,
    steps_per_call: int,
    epochs: int,
    max_steps: int | None,
    callbacks: Sequence[keras.callbacks.Callback],
) -> tuple[Any, tuple[EpochProfile, ...]]:
    """Train the model. The arguments are those of `loop.fit`; `train` is endless.

    Returns:
      Keras' History, and the epochs as the dataset has measured them.
    """
    tap = Tap(steps_per_epoch)
    # Keras makes whole calls only: more steps than an epoch has, unless the calls divide it.
    model.steps_per_execution = next(
        size
        for size in range(min(steps_per_call, steps_per_epoch), 0, -1)
        if not steps_per_epoch % size and not (max_steps or 0) % size
    )
    history = model.fit(
        tap.measured(train),
        epochs=epochs,
        steps_per_epoch=steps_per_epoch,
        validation_data=evaluation,
        callbacks=[*callbacks, *([_StopAfter(max_steps)] if max_steps else [])],
        verbose=2,
    )
    return history, tapped_epochs(tap, batch_size)


class _StopAfter(keras.callbacks.Callback):
    """Ends training after a number of steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._steps = steps

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if int(self.model.optimizer.iterations) >= self._steps:
            self.model.stop_training = True
