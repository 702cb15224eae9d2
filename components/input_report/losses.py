"""Shares of the training time: waiting for input, steps, and overhead, with their uncertainty."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass

from infeed.components.dataset.input_profile import EpochProfile, InputProfile

# Consecutive trainings of one feed differed by up to three points.
_BETWEEN_RUNS = 0.03
_Z = 1.96  # 97.5 % quantile of the normal distribution
_NAMED_FROM = 0.5  # the report names a callback that takes more than this share of the time between calls


@dataclass(frozen=True)
class TimeShares:
    """Shares of the time of the steady epochs, 0 to 1.

    Attributes:
      waited: time waiting for input, above the floor.
      uncertainty: half the width of the 95 % range of `waited`.
      counted: time waiting for input as measured, including the floor.
      handing_over: the floor, which may exceed `counted` if it was measured on a busy machine.
      outside: time between calls of the training function: callbacks and Keras.
      slowed: extra time of steps compared with one constant batch; 0 without a ceiling.
      seconds: duration of these epochs.
      callback: class name and share of the callback that takes most of `outside`; None if no callback stands out.
    """

    waited: float
    uncertainty: float
    counted: float
    handing_over: float
    outside: float
    slowed: float
    seconds: float
    callback: tuple[str, float] | None

    @classmethod
    def of(cls, profile: InputProfile) -> TimeShares:
        """Return the shares of a training."""
        epochs = profile.steady_epochs
        seconds, steps = sum(epoch.seconds for epoch in epochs), sum(epoch.steps for epoch in epochs)
        waited = profile.wait_fraction(epochs)
        outside = min(1.0, sum(epoch.outside_seconds for epoch in epochs) / seconds)
        alone = profile.batch_size / profile.ceiling.examples_per_second if profile.ceiling else math.inf
        counted = min(1.0, sum(epoch.wait_seconds for epoch in epochs) / seconds)
        # Both the time alone and the remaining time in training include the floor.
        slowed = max(0.0, 1 - waited - outside - alone * steps / seconds)
        return cls(
            waited=waited,
            uncertainty=_uncertainty(profile, steps / seconds),
            counted=counted,
            handing_over=profile.floor_seconds * steps / seconds,
            outside=outside,
            slowed=slowed,
            seconds=seconds,
            callback=_callback(epochs, seconds),
        )

    @property
    def other(self) -> float:
        """Share of the time outside waiting and steps."""
        return self.outside + self.slowed


def _uncertainty(profile: InputProfile, steps_per_second: float) -> float:
    """Return half of a 95 % range, with epochs and floor measurements as repeats, and the variation between runs."""
    shares = [profile.waited(epoch) / epoch.seconds for epoch in profile.steady_epochs]
    between = _Z * statistics.stdev(shares) / math.sqrt(len(shares)) if len(shares) > 1 else 0.0
    floor = profile.ceiling.floor_spread_seconds * steps_per_second if profile.ceiling else 0.0
    return min(1.0, max(_BETWEEN_RUNS, math.hypot(between, floor)))


def _callback(epochs: tuple[EpochProfile, ...], seconds: float) -> tuple[str, float] | None:
    found = Counter[str]()
    for epoch in epochs:
        found.update(epoch.callback_seconds)
    outside = sum(epoch.outside_seconds for epoch in epochs)
    name, took = max(found.items(), key=lambda item: item[1], default=("", 0.0))
    return (name, took / seconds) if took > _NAMED_FROM * outside > 0 else None
