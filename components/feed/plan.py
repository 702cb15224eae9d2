"""How a split is turned into batches, and why: `plan` is pure and decides, `InputPlan` says it in words and numbers.

Every step that reads, decodes, shuffles, caches, augments, batches or prefetches stands in `InputPlan.steps`, in order;
`build` does what the list says and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from infeed.components.errors import InfeedError
from infeed.components.feed import steps
from infeed.components.feed.capacity import Capacity, Sample, Tier
from infeed.components.feed.machine import Machine
from infeed.components.feed.options import FeedOptions
from infeed.components.feed.shards import ShardFile
from infeed.components.feed.shares import Shares, shares_of
from infeed.components.feed.steps import Step


@dataclass(frozen=True)
class FeedSpec:
    """What is fed: training data (endless, shuffled, augmented) or evaluation data (complete, in order, once).

    `left_out` says in words which corrupt records the shards no longer hold; `class_names` are those of the labels, by
    index; `epochs` says how often the split will be read, where that is known; `static_shapes` whether every batch has
    to be of the same shape; `elsewhere` whether other processes than this one make the batches.
    """

    training: bool
    sample: Sample
    augmentation: str = ""
    normalisation: str = ""
    left_out: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    epochs: int | None = None
    static_shapes: bool = False
    elsewhere: bool = False


@dataclass(frozen=True)
class InputPlan:
    """The decisions. `steps_per_epoch` counts batches; in training the batches that an epoch's records fill."""

    tier: Tier | Literal["input_fn"]  # the latter for batches of a user's own function
    reason: str
    shards: tuple[ShardFile, ...]
    records: int
    batch_size: int
    steps_per_epoch: int
    seed: int
    training: bool
    steps: tuple[Step, ...]
    left_out: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes of the split on disk."""
        return sum(shard.bytes for shard in self.shards)

    @property
    def holds_rows(self) -> bool:
        """Whether every worker holds all rows and takes batches by their numbers."""
        return any(step.name == "gather" for step in self.steps)

    def describe(self) -> str:
        """The plan as text, one line a step."""
        lines = [f"{self.tier}: {self.reason}"]
        lines += [f"{i:2}. {step.name:<9} {step.does}: {step.reason}" for i, step in enumerate(self.steps, 1)]
        lines += [f"left out: {one}" for one in self.left_out]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The plan as it stands in `input_profile.json`."""
        words = [{"name": step.name, "does": step.does, "reason": step.reason} for step in self.steps]
        plan: dict[str, Any] = {"tier": self.tier, "reason": self.reason, "steps": words}
        return {**plan, "left_out": list(self.left_out)} if self.left_out else plan


def plan(shards: Sequence[ShardFile], spec: FeedSpec, options: FeedOptions, machine: Machine) -> InputPlan:
    """Plans the reading of one split.

    Raises:
      InfeedError: there is no record to read, or rows are to be drawn by share where that cannot be done.
    """
    records = sum(shard.records for shard in shards)
    if not records:
        raise InfeedError("there is no record to read", do="Check that the split is not empty.")
    capacity = Capacity(records, spec.sample, options, machine, spec.epochs, spec.elsewhere)
    tier, reason = capacity.tier()
    batches = records // options.batch_size if spec.training else -(-records // options.batch_size)
    return InputPlan(
        tier=tier,
        reason=reason,
        shards=tuple(shards),
        records=records,
        batch_size=options.batch_size,
        steps_per_epoch=max(1, batches),
        seed=options.seed,
        training=spec.training,
        steps=tuple(_steps(tier, shards, spec, capacity)),
        left_out=spec.left_out,
    )


def _steps(tier: Tier, shards: Sequence[ShardFile], spec: FeedSpec, capacity: Capacity) -> list[Step]:
    cached, cache_reason = capacity.cache()
    shares = shares_of(shards, spec.class_names, capacity.options) if spec.training else None
    if tier != "stream":
        made = _kept(tier, shards, spec, capacity, shares)
    elif not spec.training:
        made = _streamed_in_order(shards, capacity)
    elif shares and shares.by == "class":
        raise InfeedError(
            "a stream knows the class of a record too late to draw by it",
            where=shares.option,
            do="Use the tier columns or disk, or weigh with class_weight.",
        )
    elif cached:
        made = _cached(shards, capacity, cache_reason, shares)
    else:
        made = _streamed(shards, capacity, shares)
    return [*made, *_finish(spec, capacity)]


def _kept(
    tier: Tier, shards: Sequence[ShardFile], spec: FeedSpec, capacity: Capacity, shares: Shares | None
) -> list[Step]:
    window = capacity.window() if tier == "disk" and not shares else None
    return [
        steps.shards_in_order(shards, "the order is made from row numbers, below"),
        steps.read(shards, capacity, in_order=True),
        steps.decode_batch(capacity),
        steps.parse(),
        steps.transform(),
        steps.on_disk(capacity) if tier == "disk" else steps.in_memory(),
        steps.gather_shuffled(capacity, window, shares) if spec.training else steps.gather_in_order(capacity.options),
    ]


def _cached(shards: Sequence[ShardFile], capacity: Capacity, reason: str, shares: Shares | None) -> list[Step]:
    return [
        steps.shards_in_order(shards, "the order is made from row numbers, below"),
        steps.read(shards, capacity, in_order=True),
        steps.cache(reason),
        steps.gather_shuffled(capacity, None, shares),
        steps.parse(),
        steps.transform(),
    ]


def _streamed(shards: Sequence[ShardFile], capacity: Capacity, shares: Shares | None) -> list[Step]:
    window, reason = capacity.shuffle()
    return [
        steps.shards_permuted(shards, shares),
        steps.read(shards, capacity, in_order=False),
        *([steps.mix(window, shares)] if shares else [steps.shuffle(window, reason), steps.repeat()]),
        steps.read_ahead(),
        steps.training_batch(capacity),
        steps.parse(),
        steps.transform(),
    ]


def _streamed_in_order(shards: Sequence[ShardFile], capacity: Capacity) -> list[Step]:
    why = "the last short batch is kept: every record counts once"
    return [
        steps.shards_in_order(shards, "evaluation data is complete and never shuffled"),
        steps.read(shards, capacity, in_order=True),
        steps.batch(capacity.options.batch_size, why, drop=False),
        steps.parse(),
        steps.transform(),
    ]


def _finish(spec: FeedSpec, capacity: Capacity) -> list[Step]:
    made = [steps.cut(capacity)] if spec.training and capacity.batches_a_call() > 1 else []
    if spec.augmentation:
        made.append(steps.augment(spec.augmentation))
    elif spec.normalisation:
        made.append(steps.normalise(spec.normalisation))
    if spec.static_shapes and not spec.training:
        made.append(steps.fill(capacity.options.batch_size))
    return [*made, steps.prefetch()]
