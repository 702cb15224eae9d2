"""Time of an epoch: waiting for batches, calls of the training function, and the time between calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import keras

from infeed.components.base import schema
from infeed.components.dataset.input_profile import EpochProfile, Timeline
from infeed.components.feed.meter import Meter, Tap
from infeed.components.trainer.steps import Progress

_MOST_PARTS = 200  # maximum parts of the timeline
_LEAST_PART_SECONDS = 0.02


def tapped_epochs(tap: Tap, batch_size: int) -> tuple[EpochProfile, ...]:
    """Return the epochs that the `Tap` of a dataset has measured."""
    return tuple(
        EpochProfile.measured(epoch, steps, seconds, [waited], batch_size)
        for epoch, (steps, seconds, waited) in enumerate(tap.epochs)
        if seconds > 0
    )


class RecordEpochs(keras.callbacks.Callback):
    """Callback that records an `EpochProfile` for each epoch, from first step to last callback, without validation.

    Every worker needs this callback, because `gather` exchanges their waits at the end of each epoch. Callbacks and
    Keras take the time between calls of the training function. `among` measures each callback.
    """

    def __init__(
        self,
        meter: Meter,
        progress: Progress,
        batch_size: int,
        gather: Callable[[Sequence[float]], Sequence[float]] = list,
    ) -> None:
        super().__init__()
        self._gather = gather
        # Plain values, because they are part of a checkpoint.
        self.records: list[dict[str, Any]] = []
        self.seconds = self.outside = 0.0
        self.of_callbacks: dict[str, float] = {}
        self.parts: list[list[float]] = []  # parts of the timeline: steps, seconds, seconds waited
        self.open_part = [0.0, 0.0, 0.0]  # part that still grows
        self.noted = [0.0, 0.0, 0.0]  # numbers of this epoch that are already in the timeline
        self._meter, self._progress, self._batch_size = meter, progress, batch_size
        self._last = 0.0

    @property
    def epochs(self) -> tuple[EpochProfile, ...]:
        return tuple(schema.read(EpochProfile, record) for record in self.records)

    @property
    def timeline(self) -> Timeline | None:
        """Steps of all epochs. None without a step."""
        parts = [one for one in (*self.parts, self.open_part) if one[0]]
        steps, seconds, waits = zip(*parts, strict=True) if parts else ((), (), ())
        return Timeline(tuple(map(int, steps)), tuple(seconds), tuple(waits)) if parts else None

    def among(self, callbacks: Sequence[keras.callbacks.Callback]) -> list[keras.callbacks.Callback]:
        """Return this callback and the others in their order, each followed by a callback that records its time."""
        marked: list[keras.callbacks.Callback] = [self]
        for callback in callbacks:
            ended = partial(self._ends_callback, type(callback).__name__)
            marked += [callback, keras.callbacks.LambdaCallback(on_train_batch_begin=ended, on_train_batch_end=ended)]
        return marked

    def starts_call(self) -> None:
        """Record that a call of the training function begins. The time since the last callback is not training."""
        self.outside += self._lap()

    def _ends_callback(self, name: str, batch: int, logs: Any = None) -> None:
        took = self._lap()
        self.outside += took
        self.of_callbacks[name] = self.of_callbacks.get(name, 0.0) + took

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._meter.reset()
        self.seconds = self.outside = 0.0
        self.of_callbacks = {}
        self.noted = [0.0, 0.0, 0.0]
        self._last = time.perf_counter()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.outside += self._lap()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._lap()
        # Reading the meter takes about 50 microseconds, which is too much after every short call.
        if self.seconds - self.noted[1] >= _LEAST_PART_SECONDS:
            self._note(self._progress.done % self._progress.per_epoch or self._progress.per_epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        steps = self._progress.done - epoch * self._progress.per_epoch
        self._note(steps)
        waited = self._gather(self._meter.seconds)
        record = EpochProfile.measured(
            epoch, steps, self.seconds, waited, self._batch_size, self.outside, self.of_callbacks
        )
        self.records.append(asdict(record))

    def _note(self, steps: int) -> None:
        """Add the time up to a step of this epoch to the timeline.

        If the timeline gets long, merge its parts in pairs.
        """
        now = [float(steps), self.seconds, max(self._meter.seconds)]
        self.open_part = [part + new - old for part, new, old in zip(self.open_part, now, self.noted, strict=True)]
        self.noted = now
        if self.open_part[0] < max(1.0, sum(one[0] for one in self.parts) / max(1, len(self.parts))):
            return  # after a merge, new parts grow to the length of merged ones
        self.parts.append(self.open_part)
        self.open_part = [0.0, 0.0, 0.0]
        if len(self.parts) > _MOST_PARTS:
            pairs = zip(self.parts[::2], [*self.parts[1::2], [0.0, 0.0, 0.0]], strict=False)
            self.parts = [[a + b for a, b in zip(one, other, strict=True)] for one, other in pairs]

    def _lap(self) -> float:
        """Return the seconds since the last call, and add them to the epoch."""
        now = time.perf_counter()
        took, self._last = now - self._last, now
        self.seconds += took
        return took
