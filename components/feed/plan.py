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

Cached = Literal["features", "records", "none"]

# Records in a batch that is decoded before the shuffle; large enough to spread the cost of a vectorised call.
_DECODE_BATCH = 256
# Records read in a row from one shard before turning to the next: the order is mixed, the read is still sequential.
_BLOCK_LENGTH = 16
# A shuffle buffer is filled before the first batch leaves it; a larger one makes the first step wait for seconds.
_MAX_UNCACHED_SHUFFLE = 100_000


@dataclass(frozen=True)
class Sample:
    """Sizes measured on the first records of a split, in bytes a record (see `sample.measure`)."""

    record_bytes: float
    feature_bytes: float
    decodes_images: bool


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

    tier: Literal["stream"]
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
    budget = _Budget(records, spec.sample, options, machine)
    steps = (
        _training_steps(shards, spec, options, budget) if spec.training else _evaluation_steps(shards, spec, options)
    )
    batches = records // options.batch_size if spec.training else -(-records // options.batch_size)
    return InputPlan(
        tier="stream",
        reason=f"{records:,} records in {_shards(len(shards))} are read as a stream of TFRecords",
        shards=tuple(shards),
        records=records,
        batch_size=options.batch_size,
        steps_per_epoch=max(1, batches),
        seed=options.seed,
        steps=tuple(steps),
    )


@dataclass(frozen=True)
class _Budget:
    """What fits in memory."""

    records: int
    sample: Sample
    options: FeedOptions
    machine: Machine

    @property
    def bytes(self) -> float:
        return self.machine.memory_bytes * self.options.memory_fraction

    @property
    def feature_bytes(self) -> float:
        return self.records * self.sample.feature_bytes

    @property
    def record_bytes(self) -> float:
        return self.records * self.sample.record_bytes

    def cached(self) -> tuple[Cached, str]:
        """What to cache, and why."""
        if self.options.cache != "auto":
            return self.options.cache, "asked for in FeedOptions.cache"
        allowed = f"of the {_size(self.bytes)} that may be used"
        if self.sample.decodes_images and self.feature_bytes <= self.bytes:
            return "features", f"decoding pictures is dear, and decoded they take {_size(self.feature_bytes)} {allowed}"
        if self.record_bytes <= self.bytes:
            cheap = "" if self.sample.decodes_images else "parsing a batch costs less than handling decoded rows, and "
            return "records", f"{cheap}they take {_size(self.record_bytes)} {allowed}"
        return "none", f"the records would take {_size(self.record_bytes)} {allowed}"

    def shuffle(self, cached: Cached) -> tuple[int, str]:
        """Records in the shuffle buffer, and why."""
        if self.options.shuffle_records is not None:
            return min(self.options.shuffle_records, self.records), "asked for in FeedOptions.shuffle_records"
        if cached != "none":
            return self.records, "the buffer points at what is cached, so a full shuffle takes no more memory"
        fits = max(1, int(self.bytes / self.sample.record_bytes))
        if self.records <= min(fits, _MAX_UNCACHED_SHUFFLE):
            return self.records, "the whole split fits, so the shuffle is a full one"
        buffer = min(fits, _MAX_UNCACHED_SHUFFLE)
        return buffer, f"{self.records:,} records would not fit or take too long to fill; shards are permuted as well"


def _training_steps(shards: Sequence[ShardFile], spec: FeedSpec, options: FeedOptions, budget: _Budget) -> list[Step]:
    cached, cache_reason = budget.cached()
    size, shuffle_reason = budget.shuffle(cached)
    keep = Step("cache", f"keeps the {cached} in memory after the first epoch", cache_reason)
    shuffle = Step(
        "shuffle",
        f"draws from a buffer of {size:,} records, anew each epoch",
        f"{shuffle_reason}; before batching, so that batches differ between epochs",
        {"buffer": size},
    )
    repeat = Step("repeat", "goes round without end", "no batch is cut short and no step waits at the end of an epoch")
    batch = _batch(options.batch_size, "static shapes, and the vectorised steps below run once a batch", drop=True)
    decode = [_parse(), _transform()]
    if cached == "features":
        chunks = _batch(_DECODE_BATCH, "parsing and decoding are vectorised, so they want a batch", drop=False)
        middle = [chunks, *decode, _unbatch(), keep, shuffle, repeat, batch]
    else:
        middle = [*([keep] if cached == "records" else []), shuffle, repeat, batch, *decode]
    return [_permute(shards), _read(shards, options, budget.machine), *middle, *_augment(spec), _prefetch()]


def _evaluation_steps(shards: Sequence[ShardFile], spec: FeedSpec, options: FeedOptions) -> list[Step]:
    in_order = Step(
        "shards", f"lists {_shards(len(shards))} in order", "evaluation data is complete and never shuffled"
    )
    one_by_one = Step(
        "read", "reads one shard after another", "the order of records stays that of the files", {"readers": 1}
    )
    batch = _batch(options.batch_size, "the last short batch is kept: every record counts once", drop=False)
    return [in_order, one_by_one, batch, _parse(), _transform(), *_normalise(spec), _prefetch()]


def _permute(shards: Sequence[ShardFile]) -> Step:
    return Step(
        "shards",
        f"permutes {_shards(len(shards))} by the seed",
        "neighbours on disk do not stay neighbours in training",
        {"permute": True},
    )


def _read(shards: Sequence[ShardFile], options: FeedOptions, machine: Machine) -> Step:
    readers = min(len(shards), options.readers or machine.cpus)
    why = "asked for in FeedOptions.readers" if options.readers else "one reader a core"
    if readers == len(shards):
        why = "as many as there are shards"
    return Step(
        "read",
        f"interleaves {_shards(readers)} at a time" if readers > 1 else "reads one shard after another",
        why,
        {"readers": readers, "block": _BLOCK_LENGTH},
    )


def _batch(size: int, reason: str, *, drop: bool) -> Step:
    return Step("batch", f"gathers {size:,} records", reason, {"size": size, "drop_remainder": drop})


def _unbatch() -> Step:
    return Step("unbatch", "takes the decoded batch apart again", "records, not batches, are shuffled")


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
