"""What to change, derived from the plan and the numbers. A rule is a function: a sentence with its gain, or None."""

from __future__ import annotations

from dataclasses import dataclass

from infeed.components.dataset.manifest import Split
from infeed.components.input_report.profile import InputProfile
from infeed.components.input_report.words import listed, number, seconds, size, times

# A gain of less than five percent is within what two runs of the same training differ by.
WORTH_ACTING = 1.05
# JPEG pictures decode to about ten times their size, compressed numbers to three or four: ten is on the safe side.
DECODED_PER_BYTE_ON_DISK = 10
# The design's shard rule: no shard under 10 MB, and ten to read side by side on each host.
SMALLEST_SHARD_BYTES = 10_000_000
SHARDS_PER_HOST = 10
# The least that starting one step costs in Keras, many steps to a call and a tiny model; most paths cost more.
STEP_START_SECONDS = 0.0002
# As far as a batch is usually grown at once before the learning rate must be searched for again.
BATCH_GROWTH = 4
# A longer batch must leave this many steps in an epoch, or progress is measured too rarely to be of use.
FEWEST_STEPS_PER_EPOCH = 20
# Steps of the plan that keep, count or hand on records but do no work on each of them.
IDLE_STEPS = frozenset({"shards", "cache", "columns", "disk", "repeat", "prefetch", "device"})
# Steps that keep what comes before them: records as they are read, or features once decoded.
KEEPING_STEPS = ("cache", "columns", "disk")


@dataclass(frozen=True)
class Situation:
    """What the rules look at.

    Attributes:
      profile: what the Trainer measured.
      rate: records trained on a second, in the epochs that are judged.
      gain: times that training would be faster if input were free; every gain from better input stays under it.
      split: the training split as its manifest describes it; None where there is no manifest.
    """

    profile: InputProfile
    rate: float
    gain: float
    split: Split | None


def advise(now: Situation) -> tuple[str, ...]:
    """All advice that applies, what is easiest to do first. Empty where nothing is worth changing."""
    of_the_feed = "read" in now.profile.plan.step_names  # a user's own input function has neither tiers nor shards
    cached = _keep_in_memory(now) if of_the_feed else None
    shards = _write_more_shards(now) if of_the_feed else None
    input_rules = (cached, shards, None if cached else _speed_up_what_is_left(now))
    rules = (*(input_rules if now.gain >= WORTH_ACTING else ()), _grow_the_batch(now))
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
    return (
        f"Give the host more CPU cores, or make the work {after}cheaper: {listed(names)} "
        f"{'runs' if len(names) == 1 else 'run'} on every record{always}. "
        f"At {number(now.rate * now.gain)} examples a second in place of {number(now.rate)}, "
        f"input would no longer hold training up: up to {times(now.gain)} as fast."
    )


def _write_more_shards(now: Situation) -> str | None:
    """One shard is read by one reader at a time; once the records are cached it no longer matters."""
    if now.split is None or _serves_from_cache(now.profile):
        return None
    have = len(now.split.shards)
    possible = min(SHARDS_PER_HOST * now.profile.hosts, now.split.bytes // SMALLEST_SHARD_BYTES)
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
    step_seconds = sum(epoch.computing_seconds for epoch in epochs) / max(1, sum(epoch.steps for epoch in epochs))
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
