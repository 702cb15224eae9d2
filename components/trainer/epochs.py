"""Time of an epoch: waiting for batches, calls of the training function, and the time between calls."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import keras
import tensorflow as tf

from infeed.components import schema
from infeed.components.dataset.input_profile import EpochProfile
from infeed.components.feed.meter import Meter, Tap
from infeed.components.trainer.distribution import gather_seconds
from infeed.components.trainer.steps import Progress


def tapped_epochs(tap: Tap, batch_size: int) -> tuple[EpochProfile, ...]:
    """Return the epochs that a dataset has measured of itself."""
    return tuple(
        EpochProfile.measured(epoch, steps, seconds, [waited], batch_size)
        for epoch, (steps, seconds, waited) in enumerate(tap.epochs)
        if seconds > 0
    )


class RecordEpochs(keras.callbacks.Callback):
    """Callback that keeps an `EpochProfile` for each epoch, from its first step to its last callback, no validation.

    Every worker needs this callback, because the workers exchange their waits at the end of each epoch. The time
    between calls of the training function passes in callbacks and in Keras; `among` measures each callback.
    """

    def __init__(
        self, meter: Meter, progress: Progress, batch_size: int, strategy: tf.distribute.Strategy | None = None
    ) -> None:
        super().__init__()
        self._strategy = strategy or tf.distribute.get_strategy()
        # Plain values: they are part of a checkpoint.
        self.records: list[dict[str, Any]] = []
        self.seconds = self.outside = 0.0
        self.of_callbacks: dict[str, float] = {}
        self._meter, self._progress, self._batch_size = meter, progress, batch_size
        self._last = 0.0

    @property
    def epochs(self) -> tuple[EpochProfile, ...]:
        """All epochs so far."""
        return tuple(schema.read(EpochProfile, record) for record in self.records)

    def among(self, callbacks: Sequence[keras.callbacks.Callback]) -> list[keras.callbacks.Callback]:
        """Return this callback and the others in their order, each followed by a mark that takes its time."""
        marked = [one for callback in callbacks for one in (callback, _Mark(self, type(callback).__name__))]
        return [self, *marked]

    def starts_call(self) -> None:
        """Note that the training function is called: what passed since the last callback was no training."""
        self.outside += self._lap()

    def ends_callback(self, name: str) -> None:
        """Note that the batch hook of a callback has ended."""
        took = self._lap()
        self.outside += took
        self.of_callbacks[name] = self.of_callbacks.get(name, 0.0) + took

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._meter.reset()
        self.seconds = self.outside = 0.0
        self.of_callbacks = {}
        self._last = time.perf_counter()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.outside += self._lap()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._lap()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        steps = self._progress.done - epoch * self._progress.per_epoch
        waited = gather_seconds(self._meter.seconds, self._strategy)
        record = EpochProfile.measured(
            epoch, steps, self.seconds, waited, self._batch_size, self.outside, self.of_callbacks
        )
        self.records.append(asdict(record))

    def _lap(self) -> float:
        """Return the seconds since the last call, which are part of the epoch's."""
        now = time.perf_counter()
        took, self._last = now - self._last, now
        self.seconds += took
        return took


class _Mark(keras.callbacks.Callback):
    """Callback that follows another one, and notes the end of its batch hooks."""

    def __init__(self, record: RecordEpochs, name: str) -> None:
        super().__init__()
        self._record, self._name = record, name

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._record.ends_callback(self._name)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._record.ends_callback(self._name)
