"""Pace of a running training: step, metrics, examples a second, share of waiting for data, and time left."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras

from infeed.components.base import progress
from infeed.components.base.units import number, percent, seconds_left
from infeed.components.dataset.input_profile import EpochProfile

_SECONDS = 0.5  # minimum time between two reports: reading a metric waits for the device
_WINDOW = 20  # observations that a rate is measured over


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
            progress.report(str(dataclasses.replace(self._pace, waited=None, seconds_left=None)), is_result=True)

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
