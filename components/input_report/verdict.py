"""The judgement: did training wait for its input, and what would it gain if it did not?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from infeed.components.dataset.manifest import Split
from infeed.components.input_report.advice import Situation, advise, working_steps
from infeed.components.input_report.profile import Epoch, InputProfile
from infeed.components.input_report.words import percent, seconds, times

Kind = Literal["input-bound", "compute-bound", "balanced"]

# Waiting for a fifth of the time costs a fifth of the accelerators: from here on input is the first thing to work on.
INPUT_BOUND_FROM = 0.20
# Under a twentieth, even perfect input could win no more than two runs of the same training differ by.
COMPUTE_BOUND_BELOW = 0.05
# Hardly any waiting, yet so far below the rate on constant data: input slows the step itself down, by sharing its CPU.
SHARED_FROM = 1.25
# Waited for less than this in all, and what is measured is the start and the end of epochs: nothing to judge by.
NEGLIGIBLE_SECONDS = 1.0
# The two clocks agree to about a thousandth, so no gain beyond a thousand can be told.
LEAST_COMPUTING_FRACTION = 0.001


@dataclass(frozen=True)
class Verdict:
    """Whether input held training up.

    Attributes:
      kind: "input-bound", "compute-bound", or "balanced" in between.
      wait_fraction: share of the time of all epochs, 0 to 1, that training waited for input.
      wait_fraction_after_first: the same without the first epoch, which fills caches and traces graphs; None where
        there is only one epoch.
      gain: times that training would be faster with input for free: the rate on constant data over the rate reached,
        or what the waiting alone tells where that was not measured. At least 1.
      bottleneck: the stage that sets the pace; None where the numbers do not single one out.
      headline: the judgement as one sentence.
      advice: what to change, each with its gain; empty where nothing is worth changing.
      blessed: whether the waiting stayed within the limit; None where no limit was set.
    """

    kind: Kind
    wait_fraction: float
    wait_fraction_after_first: float | None
    gain: float
    bottleneck: str | None
    headline: str
    advice: tuple[str, ...]
    blessed: bool | None

    @property
    def judged_wait_fraction(self) -> float:
        """The share that the verdict and the blessing go by: after the first epoch where there are more."""
        after_first = self.wait_fraction_after_first
        return self.wait_fraction if after_first is None else after_first


def judge(profile: InputProfile, *, max_wait_fraction: float | None, split: Split | None = None) -> Verdict:
    """Judges one training.

    Args:
      profile: what the Trainer measured.
      max_wait_fraction: largest share of waiting, 0 to 1, that is blessed; None leaves the blessing out.
      split: the training split from its manifest, where there is one: with it the number of shards is judged too.
    """
    judged = wait_fraction(profile.steady_epochs)
    rate = throughput(profile.steady_epochs)
    gain = _gain(profile, judged, rate)
    waited = sum(epoch.wait_seconds for epoch in profile.steady_epochs)
    negligible = waited < NEGLIGIBLE_SECONDS and judged >= COMPUTE_BOUND_BELOW
    kind: Kind = "balanced" if negligible else _kind(judged, gain)
    return Verdict(
        kind=kind,
        wait_fraction=wait_fraction(profile.epochs),
        wait_fraction_after_first=judged if len(profile.epochs) > 1 else None,
        gain=gain,
        bottleneck=_bottleneck(kind, profile),
        headline=_too_short(waited) if negligible else _headline(kind, judged, gain),
        advice=() if negligible else advise(Situation(profile, rate, gain, split)),
        blessed=None if max_wait_fraction is None else judged <= max_wait_fraction,
    )


def wait_fraction(epochs: Sequence[Epoch]) -> float:
    """Share of the epochs' time, 0 to 1, in which training waited for input."""
    return min(1.0, sum(epoch.wait_seconds for epoch in epochs) / sum(epoch.seconds for epoch in epochs))


def throughput(epochs: Sequence[Epoch]) -> float:
    """Examples a second over all these epochs."""
    return sum(epoch.examples for epoch in epochs) / sum(epoch.seconds for epoch in epochs)


def _gain(profile: InputProfile, judged: float, rate: float) -> float:
    if profile.ceiling is None or rate == 0:
        return 1 / max(1 - judged, LEAST_COMPUTING_FRACTION)
    return max(1.0, profile.ceiling.examples_per_second / rate)


def _kind(judged: float, gain: float) -> Kind:
    if judged >= INPUT_BOUND_FROM:
        return "input-bound"
    return "compute-bound" if judged < COMPUTE_BOUND_BELOW and gain < SHARED_FROM else "balanced"


def _bottleneck(kind: Kind, profile: InputProfile) -> str | None:
    if kind == "compute-bound":
        return "training step"
    working = working_steps(profile)
    return working[0] if kind == "input-bound" and len(working) == 1 else None


def _too_short(waited: float) -> str:
    return f"Training waited {seconds(waited)} in all: too little to judge by, and nothing to gain from changing it."


def _headline(kind: Kind, judged: float, gain: float) -> str:
    faster = f"{times(gain)} as fast"
    if kind == "input-bound":
        return f"Training waits for its input. With input for free it would be up to {faster}."
    if kind == "compute-bound":
        best = "Free input would gain nothing." if gain < 1.005 else f"Free input would make it at most {faster}."
        return f"Training does not wait for its input: the training step sets the pace. {best}"
    if judged < COMPUTE_BOUND_BELOW:
        return (
            f"Training hardly waits, yet on constant data it is {faster}: preparing input and the training step "
            "share the same CPU, or moving batches to the device takes its time."
        )
    return f"Input nearly keeps up: training waits {percent(judged)} of its time. Free input would make it {faster}."
