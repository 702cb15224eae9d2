"""The judgement: did training wait for its input, what would it gain if it did not, and what to change.

Waiting is what lies above the floor: what the meter counts although a batch is there, see `Ceiling`. The verdict, the
gain, the advice and the blessing all go by that one share, so that none of them contradicts another. Advice is derived
from the plan and the numbers. Each rule is a function: it gives a sentence with its gain, or None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from infeed.components.checks import require
from infeed.components.dataset.input_profile import EpochProfile, InputProfile
from infeed.components.dataset.manifest import Split
from infeed.components.dataset.shards import MIN_BYTES, READERS_PER_HOST
from infeed.components.feed.stages import batches, columns, reading
from infeed.components.units import listed, number, percent, seconds, size, times

VerdictKind = Literal["input-bound", "compute-bound", "balanced"]

# Waiting for a fifth of the time costs a fifth of the accelerators: from here on input is the first thing to work on.
INPUT_BOUND_FROM = 0.20
# Under a twentieth, even perfect input could win no more than two runs of the same training differ by.
COMPUTE_BOUND_BELOW = 0.05
# Less than this is told as none.
TOLD_FROM = 0.005
# So far below the rate on constant data without waiting for it: the step itself is slower, for it shares its CPU.
SHARED_FROM = 1.25
# Waited for less than this in all, and what is measured is the start and the end of epochs: nothing to judge by.
NEGLIGIBLE_SECONDS = 1.0
# The two clocks agree to about a thousandth, so no gain beyond a thousand can be told.
LEAST_COMPUTING_FRACTION = 0.001

# A gain of less than five percent is within what two runs of the same training differ by.
WORTH_ACTING = 1.05
# JPEG pictures decode to about ten times their size, compressed numbers to three or four: ten is on the safe side.
DECODED_PER_BYTE_ON_DISK = 10
# The least that starting one step costs in Keras, many steps to a call and a tiny model; most paths cost more.
STEP_START_SECONDS = 0.0002
# As far as a batch is usually grown at once before the learning rate must be searched for again.
BATCH_GROWTH = 4
# A longer batch must leave this many steps in an epoch, or progress is measured too rarely to be of use.
FEWEST_STEPS_PER_EPOCH = 20
# Steps of the plan that keep, count or hand on records but do no work on each of them.
IDLE_STEPS = frozenset(
    stage.name
    for stage in (
        reading.VerifyFiles,
        reading.ListShards,
        reading.Repeat,
        columns.CacheRecords,
        columns.LoadColumns,
        columns.CacheColumns,
        batches.Prefetch,
        batches.PrefetchToDevice,
    )
)
# Steps that keep what comes before them: records as they are read, or features once decoded.
KEEPING_STEPS = tuple(stage.name for stage in (columns.CacheRecords, columns.LoadColumns, columns.CacheColumns))


@dataclass(frozen=True)
class ReportOptions:
    """How strict the report is.

    Attributes:
      max_wait_fraction: largest share of training time, 0 to 1, that training may wait for input and still be blessed;
        None leaves the blessing out.
    """

    max_wait_fraction: float | None = None

    def __post_init__(self) -> None:
        is_share = self.max_wait_fraction is None or 0 <= self.max_wait_fraction <= 1
        do = "give a share between 0 and 1, such as 0.1 for a tenth of the training time"
        require(is_share, self, "max_wait_fraction", do)


@dataclass(frozen=True)
class Verdict:
    """Whether input held training up.

    Attributes:
      kind: "input-bound", "compute-bound", or "balanced" in between.
      wait_fraction: share of the time of all epochs, 0 to 1, that training waited for input, above the floor.
      wait_fraction_after_first: the same without the first epoch, which fills caches and traces graphs; None where
        there is only one epoch.
      gain: times that training would be faster with input for free: the rate on constant data over the rate reached,
        or what the waiting alone tells where that was not measured. At least 1, and at most 1 / (1 - the share that
        was judged), for no more than the waiting can be saved; 1 where there is too little waiting to judge by.
      bottleneck: the stage that sets the pace; None where the numbers do not single one out.
      headline: the judgement as one sentence.
      advice: what to change, each with its gain; empty where nothing is worth changing.
      blessed: whether the waiting stayed within the limit; None where no limit was set.
    """

    kind: VerdictKind
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
    judged = wait_fraction(profile, profile.steady_epochs)
    waited = sum(map(profile.waited, profile.steady_epochs))
    negligible = waited < NEGLIGIBLE_SECONDS and judged >= COMPUTE_BOUND_BELOW
    kind: VerdictKind = "balanced" if negligible else _kind(judged)
    gain = 1.0 if negligible else _gain(profile, judged)
    return Verdict(
        kind=kind,
        wait_fraction=wait_fraction(profile, profile.epochs),
        wait_fraction_after_first=judged if len(profile.epochs) > 1 else None,
        gain=gain,
        bottleneck=_bottleneck(kind, profile),
        headline=_too_short(waited) if negligible else _headline(kind, judged, gain) + _shared(profile, gain),
        advice=() if negligible else advise(Situation(profile, kind, gain, split)),
        blessed=None if max_wait_fraction is None else judged <= max_wait_fraction,
    )


def wait_fraction(profile: InputProfile, epochs: Sequence[EpochProfile]) -> float:
    """Share of the time of these epochs of the profile, 0 to 1, in which training waited for input."""
    return sum(map(profile.waited, epochs)) / sum(epoch.seconds for epoch in epochs)


def throughput(epochs: Sequence[EpochProfile]) -> float:
    """Examples a second over all these epochs."""
    return sum(epoch.examples for epoch in epochs) / sum(epoch.seconds for epoch in epochs)


def _gain(profile: InputProfile, judged: float) -> float:
    most = 1 / max(1 - judged, LEAST_COMPUTING_FRACTION)
    return max(1.0, min(most, _ceiling_ratio(profile) or most))


def _ceiling_ratio(profile: InputProfile) -> float | None:
    """The rate on constant data over the rate reached; None where the one was not measured, or the other is 0."""
    rate = throughput(profile.steady_epochs)
    return profile.ceiling.examples_per_second / rate if profile.ceiling and rate else None


def _kind(judged: float) -> VerdictKind:
    if judged >= INPUT_BOUND_FROM:
        return "input-bound"
    return "compute-bound" if judged < COMPUTE_BOUND_BELOW else "balanced"


def _bottleneck(kind: VerdictKind, profile: InputProfile) -> str | None:
    if kind == "compute-bound":
        return "training step"
    working = working_steps(profile)
    return working[0] if kind == "input-bound" and len(working) == 1 else None


def _too_short(waited: float) -> str:
    return f"Training waited {seconds(waited)} in all: too little to judge by, and nothing to gain from changing it."


def _headline(kind: VerdictKind, judged: float, gain: float) -> str:
    faster = f"{times(gain)} as fast"
    if kind == "compute-bound":
        waits = "does not wait for its input"
        if judged >= TOLD_FROM:
            waits = f"hardly waits for its input, {percent(judged)} of its time"
        best = f"be at most {faster}" if gain >= 1.005 else "gain nothing"
        return f"Training {waits}: the training step sets the pace. With input for free it would {best}."
    if gain < (WORTH_ACTING if kind == "input-bound" else 1.005):
        return (
            f"Training waits {percent(judged)} of its time, and yet was no faster on one constant batch: what else the "
            "machine did held both up. Train again before you change anything."
        )
    if kind == "input-bound":
        return f"Training waits for its input. With input for free it would be up to {faster}."
    waits = f"training waits {percent(judged)} of its time"
    return f"Input nearly keeps up: {waits}. With input for free it would be {faster}."


def _shared(profile: InputProfile, gain: float) -> str:
    """Why the rate on constant data is far above what free input promises."""
    ratio = _ceiling_ratio(profile)
    if ratio is None or ratio < SHARED_FROM * gain:
        return ""
    return (
        " Alone, on one constant batch, the step was faster still: that is not waiting, but other work beside it on "
        "the same CPU, such as preparing input, callbacks and logs."
    )


@dataclass(frozen=True)
class Situation:
    """What the rules look at.

    Attributes:
      profile: what the Trainer measured.
      kind: the verdict; only a training that waits for its input is given advice on it.
      gain: times that training would be faster if input were free; every gain from better input stays under it.
      split: the training split as its manifest describes it; None where there is no manifest.
    """

    profile: InputProfile
    kind: VerdictKind
    gain: float
    split: Split | None


def advise(now: Situation) -> tuple[str, ...]:
    """All advice that applies, what is easiest to do first. Empty where nothing is worth changing."""
    # A user's own input function has neither tiers nor shards.
    of_the_feed = reading.ReadShards.name in now.profile.plan.step_names
    cached = _keep_in_memory(now) if of_the_feed else None
    shards = _write_more_shards(now) if of_the_feed else None
    input_rules = (cached, shards, None if cached else _speed_up_what_is_left(now))
    is_worth_it = now.kind != "compute-bound" and now.gain >= WORTH_ACTING
    rules = (*(input_rules if is_worth_it else ()), _grow_the_batch(now))
    return tuple(sentence for sentence in rules if sentence)


def working_steps(profile: InputProfile) -> tuple[str, ...]:
    """The steps that work on every record in every epoch: those after the cache, or all where there is no cache."""
    names = profile.plan.step_names
    start = max(names.index(step) for step in _kept(profile)) if _serves_from_cache(profile) else 0
    return tuple(name for name in names[start:] if name not in IDLE_STEPS)


def _serves_from_cache(profile: InputProfile) -> bool:
    """The first epoch fills the cache; only where more follow is anything taken from it."""
    return len(profile.epochs) > 1 and bool(_kept(profile))


def _kept(profile: InputProfile) -> list[str]:
    return [step for step in KEEPING_STEPS if step in profile.plan.step_names]


def _keep_in_memory(now: Situation) -> str | None:
    """A cache pays from the second epoch on, and is safe to advise where it is small beside what is held anyway."""
    profile, peak = now.profile, now.profile.peak_memory_bytes
    decoded = profile.bytes * DECODED_PER_BYTE_ON_DISK
    if _kept(profile) or len(profile.epochs) == 1 or peak is None or decoded > peak:
        return None
    return (
        f"Let the feed keep the records in memory (FeedOptions(tier='columns')): the training split is "
        f"{size(profile.bytes)} on disk, at most about {size(decoded)} decoded, and the process held {size(peak)} "
        "as it was. "
        f"From the second epoch on nothing is read again: up to {times(now.gain)} as fast."
    )


def _speed_up_what_is_left(now: Situation) -> str | None:
    names = working_steps(now.profile)
    if not names:
        return None
    after = "after the cache " if _serves_from_cache(now.profile) else ""
    always = " in every epoch" if len(now.profile.epochs) > 1 else ""
    rate = throughput(now.profile.steady_epochs)
    return (
        f"Give the host more CPU cores, or make the work {after}cheaper: {listed(names)} "
        f"{'runs' if len(names) == 1 else 'run'} on every record{always}. "
        f"At {number(rate * now.gain)} examples a second in place of {number(rate)}, "
        f"input would no longer hold training up: up to {times(now.gain)} as fast."
    )


def _write_more_shards(now: Situation) -> str | None:
    """One shard is read by one reader at a time; once the records are cached it no longer matters."""
    if now.split is None or _serves_from_cache(now.profile):
        return None
    have = len(now.split.shards)
    possible = min(READERS_PER_HOST * now.profile.hosts, now.split.bytes // MIN_BYTES)  # the shard rule
    if possible < 2 * have:
        return None
    return (
        f"Write the training split as {possible} shards in place of {have}: a shard is read by one reader at a time, "
        f"and {size(now.split.bytes)} leave {size(now.split.bytes // possible)} for each. Reading can be up to "
        f"{times(possible / have)} as fast, and training up to {times(min(now.gain, possible / have))}."
    )


def _grow_the_batch(now: Situation) -> str | None:
    """Where a step is so short that starting it takes a good part of its time."""
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
        f"Try batch_size={BATCH_GROWTH * profile.batch_size} in place of {profile.batch_size}: a step computes for "
        f"only {seconds(step_seconds)}, of which at least {seconds(STEP_START_SECONDS)} go into starting it. "
        f"Computing gets {times(gain)} as fast or better; check the learning rate afterwards."
    )
