"""How a split is turned into batches, and why: `plan` is pure and decides, `InputPlan` says it in words and numbers.

Every step that reads, decodes, shuffles, caches, augments, batches or prefetches stands in `InputPlan.steps`, in order;
`build` does what the list says and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from infeed.components.errors import InfeedError
from infeed.components.feed.machine import Machine
from infeed.components.feed.options import FeedOptions
from infeed.components.feed.shards import ShardFile

Tier = Literal["columns", "stream"]

# Records decoded at a time where the batches of training come later; larger ones gained nothing.
_DECODE_BATCH = 1024
# Records read in a row from one shard before turning to the next: the order is mixed, the read is still sequential.
_BLOCK_LENGTH = 16
# A shuffle buffer is filled before the first batch leaves it; a larger one makes the first step wait for seconds.
_MAX_UNCACHED_SHUFFLE = 100_000


@dataclass(frozen=True)
class Sample:
    """Sizes measured on the first records of a split, in bytes a record (see `sample.measure`)."""

    record_bytes: float
    feature_bytes: float


@dataclass(frozen=True)
class FeedSpec:
    """What is fed: training data (endless, shuffled, augmented) or evaluation data (complete, in order, once)."""

    training: bool
    sample: Sample
    augmentation: str = ""
    normalisation: str = ""


@dataclass(frozen=True)
class Step:
    """One step of the pipeline. `name` is what `build` looks up, `settings` what it is called with."""

    name: str
    does: str
    reason: str
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class InputPlan:
    """The decisions. `steps_per_epoch` counts batches; in training the batches that an epoch's records fill."""

    tier: Tier
    reason: str
    shards: tuple[ShardFile, ...]
    records: int
    batch_size: int
    steps_per_epoch: int
    seed: int
    steps: tuple[Step, ...]

    @property
    def bytes(self) -> int:
        """Bytes of the split on disk."""
        return sum(shard.bytes for shard in self.shards)

    def describe(self) -> str:
        """The plan as text, one line a step."""
        lines = [f"{self.tier}: {self.reason}"]
        lines += [f"{i:2}. {step.name:<9} {step.does}: {step.reason}" for i, step in enumerate(self.steps, 1)]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The plan as it stands in `input_profile.json`."""
        words = [{"name": step.name, "does": step.does, "reason": step.reason} for step in self.steps]
        return {"tier": self.tier, "reason": self.reason, "steps": words}


def plan(shards: Sequence[ShardFile], spec: FeedSpec, options: FeedOptions, machine: Machine) -> InputPlan:
    """Plans the reading of one split.

    Raises:
      InfeedError: there is no record to read.
    """
    records = sum(shard.records for shard in shards)
    if not records:
        raise InfeedError("there is no record to read", do="Check that the split is not empty.")
    need = _Need(records, spec.sample, options, machine)
    tier, reason = need.tier()
    steps = _columns_steps if tier == "columns" else _stream_steps
    batches = records // options.batch_size if spec.training else -(-records // options.batch_size)
    return InputPlan(
        tier=tier,
        reason=reason,
        shards=tuple(shards),
        records=records,
        batch_size=options.batch_size,
        steps_per_epoch=max(1, batches),
        seed=options.seed,
        steps=tuple(steps(shards, spec, options, need)),
    )


@dataclass(frozen=True)
class _Need:
    """What the split takes in memory, beside what may be taken."""

    records: int
    sample: Sample
    options: FeedOptions
    machine: Machine

    @property
    def allowed(self) -> float:
        return self.machine.memory_bytes * self.options.memory_fraction

    def tier(self) -> tuple[Tier, str]:
        """Which tier, and why."""
        decoded = self.records * self.sample.feature_bytes
        sizes = f"{self.records:,} records take {_size(decoded)} decoded, and {_size(self.allowed)} may be used"
        if self.options.tier != "auto":
            return self.options.tier, f"asked for in FeedOptions.tier; {sizes}"
        return ("columns" if decoded <= self.allowed else "stream"), sizes

    def cache(self) -> tuple[bool, str]:
        """Whether `stream` keeps the serialized records, and why."""
        serialized = self.records * self.sample.record_bytes
        if self.options.cache_records is not None:
            return self.options.cache_records, "asked for in FeedOptions.cache_records"
        fits = serialized <= self.allowed
        return fits, f"serialized they take {_size(serialized)} of the {_size(self.allowed)} that may be used"

    def shuffle(self, cached: bool) -> tuple[int, str]:
        """Records in the shuffle buffer of `stream`, and why."""
        if self.options.shuffle_records is not None:
            return min(self.options.shuffle_records, self.records), "asked for in FeedOptions.shuffle_records"
        if cached:
            return self.records, "the buffer points at what is cached, so a full shuffle takes no more memory"
        fits = max(1, int(self.allowed / self.sample.record_bytes))
        if self.records <= min(fits, _MAX_UNCACHED_SHUFFLE):
            return self.records, "the whole split fits, so the shuffle is a full one"
        buffer = min(fits, _MAX_UNCACHED_SHUFFLE)
        return buffer, f"{self.records:,} records would not fit or take too long to fill; shards are permuted as well"


def _columns_steps(shards: Sequence[ShardFile], spec: FeedSpec, options: FeedOptions, need: _Need) -> list[Step]:
    decode = [
        Step("shards", f"lists {_shards(len(shards))} in order", "the order is made from row numbers, below"),
        _read(shards, options, need.machine, in_order=True),
        _batch(_DECODE_BATCH, "parsing and decoding are vectorised, so they want large batches", drop=False),
        _parse(),
        _transform(),
        Step("columns", "holds every feature as one column in memory", "nothing is read, parsed or decoded twice"),
    ]
    size = {"size": options.batch_size, "permute": spec.training}
    if spec.training:
        does = f"gathers {options.batch_size:,} rows at a time, in an order of all rows made from seed and epoch"
        gather = Step("gather", does, "an exact shuffle for a few bytes a row, and static shapes", size)
    else:
        does = f"gathers {options.batch_size:,} rows at a time, in order"
        gather = Step("gather", does, "evaluation data is complete: the last short batch is kept", size)
    return [*decode, gather, *_augment(spec), _prefetch()]


def _stream_steps(shards: Sequence[ShardFile], spec: FeedSpec, options: FeedOptions, need: _Need) -> list[Step]:
    if not spec.training:
        return _stream_evaluation_steps(shards, spec, options, need)
    cached, cache_reason = need.cache()
    size, shuffle_reason = need.shuffle(cached)
    keep = Step("cache", "keeps the serialized records in memory after the first epoch", cache_reason)
    return [
        _permute(shards),
        _read(shards, options, need.machine),
        *([keep] if cached else []),
        Step(
            "shuffle",
            f"draws from a buffer of {size:,} records, anew each epoch",
            f"{shuffle_reason}; before batching, so that batches differ between epochs",
            {"buffer": size},
        ),
        Step("repeat", "goes round without end", "no batch is cut short and no step waits at the end of an epoch"),
        _batch(options.batch_size, "static shapes, and the vectorised steps below run once a batch", drop=True),
        _parse(),
        _transform(),
        *_augment(spec),
        _prefetch(),
    ]


def _stream_evaluation_steps(
    shards: Sequence[ShardFile], spec: FeedSpec, options: FeedOptions, need: _Need
) -> list[Step]:
    in_order = Step(
        "shards", f"lists {_shards(len(shards))} in order", "evaluation data is complete and never shuffled"
    )
    read = _read(shards, options, need.machine, in_order=True)
    batch = _batch(options.batch_size, "the last short batch is kept: every record counts once", drop=False)
    return [in_order, read, batch, _parse(), _transform(), *_augment(spec), _prefetch()]


def _permute(shards: Sequence[ShardFile]) -> Step:
    return Step(
        "shards",
        f"permutes {_shards(len(shards))} by the seed",
        "neighbours on disk do not stay neighbours in training",
        {"permute": True},
    )


def _read(shards: Sequence[ShardFile], options: FeedOptions, machine: Machine, *, in_order: bool = False) -> Step:
    readers = min(len(shards), options.readers or machine.cpus)
    why = "asked for in FeedOptions.readers" if options.readers else "one reader a core"
    if readers == len(shards):
        why = "as many as there are shards"
    does = f"{'reads' if in_order else 'interleaves'} {_shards(readers)} at a time"
    if in_order:
        does += ", records in the order of the files"
    # A block as long as the longest shard makes readers work ahead without mixing what they read.
    block = max(shard.records for shard in shards) if in_order else _BLOCK_LENGTH
    return Step("read", does, why, {"readers": readers, "block": block})


def _batch(size: int, reason: str, *, drop: bool) -> Step:
    return Step("batch", f"gathers {size:,} records", reason, {"size": size, "drop_remainder": drop})


def _parse() -> Step:
    return Step("parse", "parses whole batches in parallel", "one vectorised call instead of one a record")


def _transform() -> Step:
    return Step("transform", "applies the transform graph to whole batches in parallel", "the same graph as in serving")


def _augment(spec: FeedSpec) -> list[Step]:
    if not spec.augmentation:
        return _normalise(spec)
    reason = "random work comes after the cache, seeded by the step, so a run can be repeated exactly"
    return [Step("augment", spec.augmentation, reason)]


def _normalise(spec: FeedSpec) -> list[Step]:
    if not spec.normalisation:
        return []
    return [Step("normalise", spec.normalisation, "the same numbers in training, evaluation and serving")]


def _prefetch() -> Step:
    return Step(
        "prefetch", "prepares the next batches while the step runs", "last, so that every step above overlaps it"
    )


def _shards(count: int) -> str:
    return "1 shard" if count == 1 else f"{count:,} shards"


def _size(count: float) -> str:
    for unit in ("bytes", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
