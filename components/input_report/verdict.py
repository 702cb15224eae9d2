"""The verdict on a training: whether it waited for input, the possible gain, and advice.

The floor is the measured time for a batch that is already ready (see `Ceiling`). Waiting is the time above the floor.
The verdict, the gain, the advice and the blessing use the same share, so they agree. Each advice is a sentence,
most with their gain.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from infeed.components.base.checks import require
from infeed.components.base.units import listed, number, percent, seconds, size, times
from infeed.components.dataset.input_profile import (
    BATCH_GROWTH,
    COLUMNS,
    FEWEST_STEPS_PER_EPOCH,
    WAITS_FROM,
    WORTH_ACTING,
    EpochProfile,
    InputProfile,
    StepSummary,
)
from infeed.components.dataset.manifest import Split
from infeed.components.dataset.options import MIN_BYTES, READERS_PER_HOST
from infeed.components.feed.stages import batches, columns, reading
from infeed.components.input_report.stages import told

VerdictKind = Literal["input-bound", "compute-bound", "balanced", "overhead-bound", "unclear"]

# Consecutive trainings of one feed differed by up to three points.
_BETWEEN_RUNS = 0.03
_Z = 1.96  # 97.5 % quantile of the normal distribution
_NAMED_FROM = 0.5  # the report names a callback that takes a larger share of the time between calls
# Waiting a fifth of the time wastes a fifth of the accelerators, so input is the first thing to improve.
INPUT_BOUND_FROM = 0.20
COMPUTE_BOUND_BELOW = WAITS_FROM
# Time between calls is measured like waiting. The slowdown of steps is an estimate from one second of measurement, so
# the sum of both must exceed the time of the step.
OUTSIDE_BOUND_FROM = 0.20
OTHER_BOUND_FROM = 0.50
# The report treats smaller shares as zero.
TOLD_FROM = 0.005
# If the rate on constant data exceeds the gain by this factor, the step competes for the CPU with other work.
SHARED_FROM = 1.25
# Below this total, most of the wait is the start and the end of epochs.
NEGLIGIBLE_SECONDS = 1.0
# The clocks agree to about 0.1 %, so speedups above 1,000 are not measurable.
LEAST_COMPUTING_FRACTION = 0.001

# JPEG images decode to about ten times their size, and compressed numbers to three or four times. Ten is a safe bound.
DECODED_PER_BYTE_ON_DISK = 10
# Least cost of starting a Keras step, measured with many steps per call and a tiny model.
STEP_START_SECONDS = 0.0002
_KEEPING = (columns.CacheRecords, columns.LoadColumns, columns.CacheColumns)  # serialized records or decoded features
KEEPING_STEPS = tuple(stage.name for stage in _KEEPING)
_IDLE = (reading.VerifyFiles, reading.ListShards, reading.Repeat, batches.Prefetch, batches.PrefetchToDevice)
IDLE_STEPS = {*KEEPING_STEPS, *(stage.name for stage in _IDLE)}  # steps of the plan that do no work per record


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


@dataclass(frozen=True)
class ReportOptions:
    """Options of the report.

    Attributes:
      max_wait_fraction: largest share of the training time, 0 to 1, that training may wait for input and still be
        blessed; None for no blessing.
    """

    max_wait_fraction: float | None = None

    def __post_init__(self) -> None:
        is_share = self.max_wait_fraction is None or 0 <= self.max_wait_fraction <= 1
        do = "use a share between 0 and 1, for example 0.1 for a tenth of the training time"
        require(is_share, self, "max_wait_fraction", do)


@dataclass(frozen=True)
class Verdict:
    """Verdict on the input of a training.

    Attributes:
      kind: "input-bound", "compute-bound", or "balanced" in between. "overhead-bound" if time outside waiting and steps
        sets the pace. "unclear" if the floor exceeds the counted wait, so that the wait is unknown.
      wait_fraction: share of the time of all epochs, 0 to 1, that training waited for input, above the floor.
      wait_fraction_after_first: the same share without the first epoch, which fills caches and traces graphs; None
        with a single epoch.
      wait_uncertainty: half the width of the 95 % range of the judged share, 0 to 1, with the epochs as repeats; at
        least the variation between runs.
      outside_fraction: share of the judged time between calls of the training function: callbacks and Keras.
      slowed_fraction: share of the judged time that steps took longer than alone on one constant batch.
      gain: possible speedup with free input: the rate on constant data divided by the rate of the training, or an
        estimate from the wait if that rate was not measured. At least 1, and at most 1 / (1 - judged share); 1 if
        training waited too little to judge.
      bottleneck: stage that sets the pace; None if the numbers do not identify one.
      headline: the verdict as one sentence.
      advice: recommended changes with their gains; empty if no change pays.
      blessed: whether the wait stayed within the limit; None without a limit.
    """

    kind: VerdictKind
    wait_fraction: float
    wait_fraction_after_first: float | None
    wait_uncertainty: float
    outside_fraction: float
    slowed_fraction: float
    gain: float
    bottleneck: str | None
    headline: str
    advice: tuple[str, ...]
    blessed: bool | None

    @property
    def judged_wait_fraction(self) -> float:
        """Share that decides the verdict and the blessing: without the first epoch if there are more."""
        after_first = self.wait_fraction_after_first
        return self.wait_fraction if after_first is None else after_first


def judge(profile: InputProfile, *, max_wait_fraction: float | None, split: Split | None = None) -> Verdict:
    """Judge one training. There is a blessing only with `max_wait_fraction`, from 0 to 1.

    `split` is the training split from its manifest, for advice on the number of shards.
    """
    shares = TimeShares.of(profile)
    judged, waited = shares.waited, shares.waited * shares.seconds
    kind = _kind(shares)
    negligible = waited < NEGLIGIBLE_SECONDS and judged >= COMPUTE_BOUND_BELOW and kind != "overhead-bound"
    kind = "balanced" if negligible else kind
    gain = 1.0
    if not negligible and kind != "unclear":
        # Faster input saves the waiting and no more, however fast the step is on constant data.
        most = 1 / max(1 - judged, LEAST_COMPUTING_FRACTION)
        gain = max(1.0, min(most, _ceiling_ratio(profile) or most))
    too_short = f"Training waited {seconds(waited)} in total, which is too little to improve."
    is_brief = kind == "overhead-bound" and shares.other * shares.seconds < NEGLIGIBLE_SECONDS
    most_waited = shares.counted if kind == "unclear" else judged  # the wait above the floor may be unknown
    return Verdict(
        kind=kind,
        wait_fraction=profile.wait_fraction(profile.epochs),
        wait_fraction_after_first=judged if len(profile.epochs) > 1 else None,
        wait_uncertainty=shares.counted if kind == "unclear" else shares.uncertainty,
        outside_fraction=shares.outside,
        slowed_fraction=shares.slowed,
        gain=gain,
        bottleneck=_bottleneck(kind, profile, shares),
        headline=too_short if negligible else _headline(profile, kind, shares, gain),
        advice=() if negligible or is_brief else advise(Situation(profile, kind, gain, split, shares)),
        blessed=None if max_wait_fraction is None else most_waited <= max_wait_fraction,
    )


def throughput(epochs: Sequence[EpochProfile]) -> float:
    return sum(epoch.examples for epoch in epochs) / sum(epoch.seconds for epoch in epochs)


def _ceiling_ratio(profile: InputProfile) -> float | None:
    """Return the rate on constant data divided by the rate of the training; None if unmeasured or 0."""
    rate = throughput(profile.steady_epochs)
    return profile.ceiling.examples_per_second / rate if profile.ceiling and rate else None


def _kind(shares: TimeShares) -> VerdictKind:
    if shares.outside >= max(OUTSIDE_BOUND_FROM, shares.waited):
        return "overhead-bound"
    if shares.waited >= INPUT_BOUND_FROM:
        return "input-bound"
    if shares.other >= OTHER_BOUND_FROM:
        return "overhead-bound"
    if shares.counted >= COMPUTE_BOUND_BELOW and shares.handing_over - shares.counted >= COMPUTE_BOUND_BELOW:
        return "unclear"
    return "compute-bound" if shares.waited < COMPUTE_BOUND_BELOW else "balanced"


def _bottleneck(kind: VerdictKind, profile: InputProfile, shares: TimeShares) -> str | None:
    if kind == "compute-bound":
        return "training step"
    if kind == "overhead-bound":
        if shares.outside < shares.slowed:
            return "other work on the same CPU"
        return f"callback {shares.callback[0]}" if shares.callback else "time between calls"
    working = working_steps(profile)
    return working[0] if kind == "input-bound" and len(working) == 1 else None


def _headline(profile: InputProfile, kind: VerdictKind, shares: TimeShares, gain: float) -> str:
    if kind == "overhead-bound":
        return _of_overhead(shares)
    if kind == "unclear":
        steps = sum(epoch.steps for epoch in profile.steady_epochs)
        counted = f"{1e6 * shares.counted * shares.seconds / steps:,.0f} µs a step"
        return (
            f"The wait for input is unknown, at most {percent(shares.counted)} of the time, because the machine was "
            f"busy: training waited {counted}, but {1e6 * profile.floor_seconds:,.0f} µs for a batch that was ready. "
            "Train again on a quiet machine."
        )
    said, ratio = _of_input(kind, shares.waited, gain), _ceiling_ratio(profile)
    if shares.other >= COMPUTE_BOUND_BELOW and ratio is not None and ratio >= SHARED_FROM * gain:
        said += (
            " On one constant batch, the step alone was faster still. The difference is not waiting: the step shares "
            "the CPU with other work, such as preparing input, callbacks, and logs."
        )
    return said


def _of_overhead(shares: TimeShares) -> str:
    parts = []
    if shares.outside >= COMPUTE_BOUND_BELOW:
        most = f" ({percent(shares.callback[1])} in the callback {shares.callback[0]})" if shares.callback else ""
        parts.append(f"{percent(shares.outside)} between calls of the training function{most}")
    if shares.slowed >= COMPUTE_BOUND_BELOW:
        parts.append(f"{percent(shares.slowed)} in steps that are slower than alone, because they share the CPU")
    lost = shares.other * shares.seconds
    little = f" That is {seconds(lost)} in total, which is too little to improve." if lost < NEGLIGIBLE_SECONDS else ""
    waits = f"it waits {percent(shares.waited)} of its time for input, but loses"
    return f"Neither input nor the training step limits training: {waits} {listed(parts)}.{little}"


def _of_input(kind: VerdictKind, judged: float, gain: float) -> str:
    faster = f"faster input would make training up to {times(gain)} as fast"
    waits = f"training waits {percent(judged)} of its time for input"
    if kind == "compute-bound":
        waits = waits if judged >= TOLD_FROM else "training does not wait for its input"
        faster = faster if gain >= 1.005 else "faster input would gain nothing"
        return f"The training step sets the pace: {waits}, and {faster}."
    if gain < (WORTH_ACTING if kind == "input-bound" else 1.005):
        return (
            f"{waits.capitalize()}, but was no faster on one constant batch, so other work slowed down both. "
            "Train again on a quiet machine before you change anything."
        )
    return (
        f"{waits.capitalize()}: {faster}."
        if kind == "input-bound"
        else f"Input nearly keeps up: {waits}, and {faster}."
    )


@dataclass(frozen=True)
class Situation:
    """Input of the advice rules."""

    profile: InputProfile
    kind: VerdictKind  # only an input-bound training gets advice on input
    gain: float  # possible speedup with free input: the upper bound of any gain from better input
    split: Split | None
    shares: TimeShares


def advise(now: Situation) -> tuple[str, ...]:
    """Return all advice that applies, easiest first. Empty if no change pays."""
    # A user's input function has neither tiers nor shards.
    of_the_feed = reading.ReadShards.name in now.profile.plan.step_names
    is_worth_it = now.kind in ("input-bound", "balanced") and now.gain >= WORTH_ACTING
    most = f"Training would be at most {times(now.gain)} as fast."
    tried = [f"{told(one)} {most}" for one in now.profile.trials if one.helps] if is_worth_it else []
    cached = _keep_in_memory(now) if of_the_feed else None
    shards = _write_more_shards(now) if of_the_feed else None
    # A generator runs in one Python thread and may only sleep, so more cores do not help it.
    in_parallel = (
        "Make batches in parallel; more CPU cores alone do not help. Run a Python generator in its own process "
        "(infeed.components.feed.inputs.from_process), map batches in parallel "
        "(dataset.map(..., num_parallel_calls=tf.data.AUTOTUNE)), read several sources at a time (Dataset.interleave), "
        f"or use a tf.data service on other hosts. Training would be up to {times(now.gain)} as fast."
    )
    cheaper = _speed_up_what_is_left(now) if of_the_feed else in_parallel
    input_rules = (cached, shards, None if cached or tried else cheaper) if is_worth_it else ()
    grown = None if now.kind in ("overhead-bound", "unclear") else _grow_the_batch(now)
    untried = [f"{sentence} This was not tried." for sentence in (*input_rules, grown) if sentence]
    return (*(_reduce_overhead(now.shares) if now.kind == "overhead-bound" else ()), *tried, *untried)


def working_steps(profile: InputProfile) -> tuple[str, ...]:
    """Return the steps that process every record in every epoch: those after the cache, or all if there is none."""
    names = profile.plan.step_names
    start = max(names.index(step) for step in _kept(profile)) if _serves_from_cache(profile) else 0
    return tuple(name for name in names[start:] if name not in IDLE_STEPS)


def bands(profile: InputProfile) -> list[tuple[str, tuple[StepSummary, ...]]]:
    """Return the steps of the plan in two groups: those that run once, and those that run in each epoch."""
    steps, names = profile.plan.steps, profile.plan.step_names
    first = max(
        (1 + names.index(one) for one in (*_kept(profile), reading.VerifyFiles.name) if one in names), default=0
    )
    parts = [("Once, before the first step", steps[:first]), ("In every epoch", steps[first:])]
    return [part for part in parts if part[1]]


def _serves_from_cache(profile: InputProfile) -> bool:
    """Return whether epochs after the first read from a cache."""
    return len(profile.epochs) > 1 and bool(_kept(profile))


def _kept(profile: InputProfile) -> list[str]:
    return [step for step in KEEPING_STEPS if step in profile.plan.step_names]


def _keep_in_memory(now: Situation) -> str | None:
    """Advise a cache if none was tried, training has several epochs, and the data is small compared to peak memory."""
    profile, peak = now.profile, now.profile.peak_memory_bytes
    decoded = profile.bytes * DECODED_PER_BYTE_ON_DISK
    tried = any(one.change == COLUMNS for one in profile.trials)
    if tried or _kept(profile) or len(profile.epochs) == 1 or peak is None or decoded > peak:
        return None
    return (
        f"Keep the decoded records in memory: FeedOptions(tier='columns'). The training split takes "
        f"{size(profile.bytes)} on disk and at most about {size(decoded)} decoded; the process used {size(peak)}. "
        f"Later epochs then read nothing, and training would be up to {times(now.gain)} as fast."
    )


def _speed_up_what_is_left(now: Situation) -> str | None:
    names = working_steps(now.profile)
    if not names:
        return None
    after = " after the cache" if _serves_from_cache(now.profile) else ""
    always = " in every epoch" if len(now.profile.epochs) > 1 else ""
    rate = throughput(now.profile.steady_epochs)
    return (
        f"Give the host more CPU cores, or make the stages{after} cheaper: {listed(names)} "
        f"{'processes' if len(names) == 1 else 'process'} every record{always}. "
        f"At {number(rate * now.gain)} examples a second instead of {number(rate)}, training would no longer wait: "
        f"it would be up to {times(now.gain)} as fast."
    )


def _reduce_overhead(shares: TimeShares) -> Iterator[str]:
    if shares.outside >= COMPUTE_BOUND_BELOW:
        gain = 1 / max(1 - shares.outside, LEAST_COMPUTING_FRACTION)
        change = "Run more steps in a call (steps_per_call), because callbacks run once a call."
        if shares.callback:
            name, share = shares.callback
            change = (
                f"Make the callback {name} cheaper: its batch hooks take {percent(share)} of the time. Move its work "
                "to on_epoch_end, or do it once in several batches."
            )
        yield f"{change} Without the time between calls, training would be up to {times(gain)} as fast."
    if shares.slowed >= COMPUTE_BOUND_BELOW:
        yield (
            "Train again on a quiet machine. If steps are still slower than alone, the input pipeline takes their CPU: "
            "give the host more cores, make the input cheaper, or run more steps in a call (steps_per_call)."
        )


def _write_more_shards(now: Situation) -> str | None:
    """Advise more shards unless the records are cached. A single reader reads each shard."""
    if now.split is None or _serves_from_cache(now.profile):
        return None
    have = len(now.split.shards)
    possible = min(READERS_PER_HOST * now.profile.hosts, now.split.bytes // MIN_BYTES)  # the shard rule
    if possible < 2 * have:
        return None
    return (
        f"Write the training split as {possible} shards instead of {have}, {size(now.split.bytes // possible)} "
        f"each: each shard has a single reader. Reading can be up to {times(possible / have)} as fast, and "
        f"training up to {times(min(now.gain, possible / have))}."
    )


def _grow_the_batch(now: Situation) -> str | None:
    """Advise a larger batch if starting a step takes much of its time."""
    profile, epochs = now.profile, now.profile.steady_epochs
    computing = sum(epoch.seconds - profile.waited(epoch) for epoch in epochs)
    step_seconds = computing / max(1, sum(epoch.steps for epoch in epochs))
    saved = STEP_START_SECONDS * (1 - 1 / BATCH_GROWTH)
    if profile.steps_per_epoch < FEWEST_STEPS_PER_EPOCH * BATCH_GROWTH or step_seconds <= saved:
        return None
    gain = step_seconds / (step_seconds - saved)
    if gain < WORTH_ACTING:
        return None
    return (
        f"Try batch_size={BATCH_GROWTH * profile.batch_size} instead of {profile.batch_size}: a step takes only "
        f"{seconds(step_seconds)}, and at least {seconds(STEP_START_SECONDS)} of them to start. Computing would be "
        f"{times(gain)} as fast or better. Check the learning rate afterwards."
    )
