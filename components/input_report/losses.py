"""Where the time of training went: waiting for input, the step, and what is neither; and how far each can be told."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass

from infeed.components.dataset.input_profile import EpochProfile, InputProfile

# Trainings of one feed, one after the other, were judged up to three points apart.
_BETWEEN_RUNS = 0.03
_Z = 1.96  # 97.5 % quantile of the normal distribution
_NAMED_FROM = 0.5  # a callback that takes this part of the time between calls is named


@dataclass(frozen=True)
class TimeShares:
    """Shares of the time of the steady epochs, 0 to 1.

    Attributes:
      waited: waiting for input, above the floor.
      uncertainty: half the width of the range that `waited` is known to.
      counted: waiting as the clock counted it, the floor included.
      handing_over: the floor; it may be above `counted`, if it was measured on a machine that was busy.
      outside: between calls of the training function: callbacks, and Keras' own Python.
      slowed: steps that ran slower than alone, on one constant batch; 0 without a ceiling.
      seconds: of these epochs.
      callback: the callback that takes most of `outside`, by its class, and its share; None if none stands out.
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
        waited = sum(map(profile.waited, epochs)) / seconds
        outside = min(1.0, sum(epoch.outside_seconds for epoch in epochs) / seconds)
        alone = profile.batch_size / profile.ceiling.examples_per_second if profile.ceiling else math.inf
        counted = min(1.0, sum(epoch.wait_seconds for epoch in epochs) / seconds)
        # The time alone includes the floor, and so does what is left of the time in training.
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
        """Time that is neither waiting nor the step."""
        return self.outside + self.slowed


def _uncertainty(profile: InputProfile, steps_per_second: float) -> float:
    """Half of a 95 % range, from the epochs and the turns of the floor as repeats; other runs differ by more."""
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
