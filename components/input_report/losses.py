"""Shares of the training time: waiting for input, steps, and overhead, with their uncertainty."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass

from infeed.components.dataset.input_profile import InputProfile

# Consecutive trainings of one feed differed by up to three points.
_BETWEEN_RUNS = 0.03
_Z = 1.96  # 97.5 % quantile of the normal distribution
_NAMED_FROM = 0.5  # the report names a callback that takes a larger share of the time between calls


@dataclass(frozen=True)
class TimeShares:
    """Shares of the time of the steady epochs, 0 to 1."""

    waited: float  # waiting for input, above the floor
    uncertainty: float  # half the width of the 95 % interval of `waited`
    counted: float  # measured wait for input, including the floor
    # The floor: time to hand over a ready batch. Exceeds `counted` if it was measured on a busy machine.
    handing_over: float
    outside: float  # time between calls of the training function: callbacks and Keras
    slowed: float  # extra time of steps compared with one constant batch; 0 without a ceiling
    seconds: float  # duration of these epochs
    callback: tuple[str, float] | None  # class name and share of the callback that takes most of `outside`

    @classmethod
    def of(cls, profile: InputProfile) -> TimeShares:
        epochs = profile.steady_epochs
        seconds, steps = sum(epoch.seconds for epoch in epochs), sum(epoch.steps for epoch in epochs)
        waited = profile.wait_fraction(epochs)
        between = sum(epoch.outside_seconds for epoch in epochs)
        outside = min(1.0, between / seconds)
        alone = profile.batch_size / profile.ceiling.examples_per_second if profile.ceiling else math.inf
        counted = min(1.0, sum(epoch.wait_seconds for epoch in epochs) / seconds)
        # Epochs repeat the measurement of the wait, and the floor has repeats too. Each gives half of a 95 % interval.
        repeats = [profile.waited(epoch) / epoch.seconds for epoch in epochs]
        of_epochs = _Z * statistics.stdev(repeats) / math.sqrt(len(repeats)) if len(repeats) > 1 else 0.0
        of_floor = profile.ceiling.floor_spread_seconds * steps / seconds if profile.ceiling else 0.0
        # Both the rate on constant data and the time of training include the floor.
        slowed = max(0.0, 1 - waited - outside - alone * steps / seconds)
        callbacks = Counter[str]()
        for epoch in epochs:
            callbacks.update(epoch.callback_seconds)
        name, took = max(callbacks.items(), key=lambda item: item[1], default=("", 0.0))
        return cls(
            waited=waited,
            uncertainty=min(1.0, max(_BETWEEN_RUNS, math.hypot(of_epochs, of_floor))),
            counted=counted,
            handing_over=profile.floor_seconds * steps / seconds,
            outside=outside,
            slowed=slowed,
            seconds=seconds,
            callback=(name, took / seconds) if took > _NAMED_FROM * between > 0 else None,
        )

    @property
    def other(self) -> float:
        """Share of the time that is neither waiting nor steps."""
        return self.outside + self.slowed
