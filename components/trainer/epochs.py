"""Callbacks that time a training.

`RecordEpochs` records the time of each epoch: waiting for batches, calls of the training function, and the time between
calls. `ReportPace` reports the pace while training runs.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import keras

from infeed.components.base import progress, schema
from infeed.components.base.units import number, percent, seconds_left
from infeed.components.dataset.input_profile import EpochProfile, Timeline
from infeed.components.feed.meter import Meter, Tap
from infeed.components.trainer.steps import Progress

_MOST_PARTS = 200  # maximum parts of the timeline
_LEAST_PART_SECONDS = 0.02
_SECONDS = 0.5  # minimum time between two reports: reading a metric waits for the device
_WINDOW = 20  # observations that a rate is measured over


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

        def ends(name: str, batch: int, logs: Any = None) -> None:
            took = self._lap()
            self.outside += took
            self.of_callbacks[name] = self.of_callbacks.get(name, 0.0) + took

        marked: list[keras.callbacks.Callback] = [self]
        for callback in callbacks:
            ended = partial(ends, type(callback).__name__)
            marked += [callback, keras.callbacks.LambdaCallback(on_train_batch_begin=ended, on_train_batch_end=ended)]
        return marked

    def starts_call(self) -> None:
        """Record that a call of the training function begins. The time since the last callback is not training."""
        self.outside += self._lap()

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


@dataclass(frozen=True)
class Pace:
    """State of a training. Numbers are None if they are unknown."""

    epoch: int  # counted from 1
    epochs: int  # at most
    step: int  # steps of this epoch that are done
    steps: int  # all steps of this epoch
    metrics: Mapping[str, float] = field(default_factory=dict)  # the latest, those of validation at the end of an epoch
    examples_per_second: float | None = None
    waited: float | None = None  # share of the time that training waited for data
    seconds_left: float | None = None  # until the last epoch ends, without early stopping

    def __str__(self) -> str:
        words = [f"epoch {self.epoch:,}/{self.epochs:,}"]
        words += [f"step {self.step:,}/{self.steps:,}"] if self.step < self.steps else []
        first = next((name for name in self.metrics if name != "loss" and not name.startswith("val_")), "")
        names = ("loss", first, "val_loss", f"val_{first}")
        words += [f"{name} {self.metrics[name]:.4g}" for name in names if name in self.metrics]
        if self.examples_per_second is not None:
            words.append(f"{number(self.examples_per_second)} examples/s")
        if self.waited is not None:
            words.append(f"waited {percent(self.waited)}")
        if self.seconds_left:
            words.append(seconds_left(self.seconds_left))
        return ", ".join(words)


class ReportPace(keras.callbacks.Callback):
    """Callback that reports the pace to `progress` at most twice a second, and after each epoch.

    If nothing listens to `progress`, the callback reads nothing.

    Args:
      max_steps: steps after which training ends. None for all epochs.
      start_step: step at which an earlier training ended. 0 for a new training.
      waited, epochs: return the seconds that each worker has waited in this epoch, and the finished epochs.
    """

    def __init__(
        self,
        batch_size: int,
        max_steps: int | None = None,
        start_step: int = 0,
        waited: Callable[[], Sequence[float]] | None = None,
        epochs: Callable[[], Sequence[EpochProfile]] = tuple,
    ) -> None:
        super().__init__()
        self._batch_size, self._max_steps, self._start_step = batch_size, max_steps or float("inf"), start_step
        self._waited, self._profiles = waited, epochs
        self._since = f"resumed at step {start_step:,}, " if start_step else ""
        self._epoch, self._observed, self._words = 0, 0.0, "epoch 1"
        self._pace: Pace | None = None
        self._started: tuple[float, int] | None = None  # time and step of the first observation
        self._window: deque[tuple[float, int, float]] = deque(maxlen=_WINDOW)  # time, step and seconds waited
        self._rate: tuple[float | None, float | None] = None, None  # examples a second, share of waiting

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch
        self._window.clear()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if time.monotonic() - self._observed < _SECONDS or not progress.is_heard():
            return
        step = min(batch + 1, self.params["steps"])
        done = self._steps_before + step
        if done <= self._start_step:  # for a resumed epoch, Keras repeats calls without steps
            return
        self._window.append((time.monotonic(), done, max(self._waited()) if self._waited else 0.0))
        # The first call of an epoch may trace, so the window begins after it.
        (began, first, before), (ended, last, after) = self._window[0], self._window[-1]
        if ended > began:
            share = min(1.0, (after - before) / (ended - began)) if self._waited else None
            self._rate = (last - first) * self._batch_size / (ended - began), share
        self._observe(step, logs)

    def on_test_begin(self, logs: Any = None) -> None:
        progress.report(f"{self._words}, validating")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if not progress.is_heard():
            return
        if profiles := self._profiles():
            last = profiles[-1]
            self._rate = last.examples_per_second, last.wait_seconds / last.seconds if last.seconds else None
        self._observe(self.params["steps"], logs)

    def on_train_end(self, logs: Any = None) -> None:
        """Report the result without the wait, because only InputReport subtracts the floor."""
        if self._pace:
            progress.report(str(replace(self._pace, waited=None, seconds_left=None)), is_result=True)

    @property
    def _steps_before(self) -> int:
        return self._epoch * int(self.params["steps"])

    def _observe(self, step: int, logs: Mapping[str, Any] | None) -> None:
        now, done = time.monotonic(), int(min(self._steps_before + step, self._max_steps))
        self._observed = now
        self._started = self._started or (now, done)
        passed, made = now - self._started[0], done - self._started[1]
        left = min(self.params["epochs"] * self.params["steps"], self._max_steps) - done
        self._pace = Pace(
            epoch=self._epoch + 1,
            epochs=self.params["epochs"],
            step=step,
            steps=self.params["steps"],
            metrics={name: float(value) for name, value in (logs or {}).items()},
            examples_per_second=self._rate[0],
            waited=self._rate[1],
            seconds_left=passed / made * left if made else None,
        )
        self._words = f"{self._since}{self._pace}"
        progress.report(self._words, is_result=True)
