"""Plan from a split to batches: `plan` decides, and `InputPlan` holds the decisions and their reasons.

`InputPlan.stages` lists every stage that reads, decodes, shuffles, caches, augments, batches or prefetches, in order.
`build` applies exactly these stages. The end of this file lists the stages of each way to read. Planning needs no
TensorFlow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.input_profile import PlanSummary, StepSummary
from infeed.components.feed.capacity import Capacity, Machine, RecordSizes, Tier, accelerators
from infeed.components.feed.options import FeedOptions, GlobalBatch
from infeed.components.feed.sampling import SamplingWeights, sampling_weights
from infeed.components.feed.shards import ShardFile, uneven
from infeed.components.feed.stages.base import Made, Stage
from infeed.components.feed.stages.batches import (
    AugmentImages,
    BatchRecords,
    NormaliseImages,
    PadBatches,
    ParseExamples,
    Prefetch,
    SplitBatches,
    TransformFeatures,
    map_stages,
)
from infeed.components.feed.stages.columns import (
    CacheColumns,
    CacheRecords,
    GatherInOrder,
    GatherInStep,
    GatherShuffled,
    LoadColumns,
    PlaceColumns,
)
from infeed.components.feed.stages.reading import (
    InterleaveShards,
    ListShards,
    PermuteShards,
    ReadAhead,
    ReadShards,
    Repeat,
    SampleSplits,
    ShuffleWindows,
    VerifyFiles,
)

Stages: TypeAlias = tuple[Stage[Any, Made], ...]  # each stage takes the output of the previous stage

_PADDED = "a feature is padded to the longest row of each batch, so batches are decoded one by one"


@dataclass(frozen=True)
class FeedSpec:
    """Data to feed: training data (endless, shuffled, augmented) or evaluation data (complete, in order, once)."""

    training: bool
    sizes: RecordSizes
    augmentation: str = ""
    normalization: str = ""
    left_out: tuple[str, ...] = ()  # descriptions of the corrupt records that were removed from the shards
    class_names: tuple[str, ...] = ()  # names of the label's classes, by index
    epochs: int | None = None  # how often training reads the split, if known
    static_shapes: bool = False  # whether all batches must have the same shape
    # Devices of this process whose steps take row numbers; empty if the training loop takes only batches.
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class InputPlan:
    """Decisions of a plan. In training, `steps_per_epoch` counts only full batches."""

    tier: Tier | Literal["input_fn"]  # "input_fn" for batches from a user's function
    reason: str
    shards: tuple[ShardFile, ...]
    records: int
    batch: GlobalBatch
    steps_per_epoch: int
    training: bool
    stages: Stages
    left_out: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Size of the split on disk, in bytes."""
        return sum(shard.bytes for shard in self.shards)

    @property
    def holds_rows(self) -> bool:
        """Whether every worker holds all rows and gathers batches by row number."""
        return any(isinstance(stage, GatherShuffled | GatherInStep | GatherInOrder) for stage in self.stages)

    def describe(self) -> str:
        """Return the plan as text, with one line per stage."""
        lines, width = [f"{self.tier}: {self.reason}"], max(9, *(len(one.name) for one in self.stages))
        lines += [f"{i:2}. {one.name:<{width}} {one.does}: {one.reason}" for i, one in enumerate(self.stages, 1)]
        lines += [f"advice: {self.advice}"] if self.advice else []
        lines += [f"left out: {one}" for one in self.left_out]
        return "\n".join(lines)

    def summary(self) -> PlanSummary:
        """Return the plan as `input_profile.json` records it."""
        steps = tuple(StepSummary(one.name, one.does, one.reason) for one in self.stages)
        return PlanSummary(self.tier, self.reason, steps, self.left_out, self.advice)

    @property
    def advice(self) -> str:
        """Recommended change of the files. Empty for none."""
        reading = (one for one in self.stages if isinstance(one, InterleaveShards | ReadShards))
        return next((one.advice for one in reading), "")


def plan(shards: Sequence[ShardFile], spec: FeedSpec, options: FeedOptions, machine: Machine) -> InputPlan:
    """Plan how to read one split.

    Raises InfeedError if the split is empty, the tier does not support sampling by share, or the columns of the tier
    `device` do not fit on the devices.
    """
    records = sum(shard.records for shard in shards)
    if not records:
        raise InfeedError("there are no records to read", do="check that the split is not empty")
    if not spec.training and options.tier == "device":  # evaluation gathers its rows in order, on the host
        options = replace(options, tier="columns")
    capacity = Capacity(records, spec.sizes, options, machine, spec.epochs, spec.devices, _why_host_only(spec, options))
    tier, reason = capacity.tier()
    batch = options.batch()
    return InputPlan(
        tier=tier,
        reason=reason,
        shards=tuple(shards),
        records=records,
        batch=batch,
        steps_per_epoch=batch.steps(records) if spec.training else -(-records // batch.size),
        training=spec.training,
        stages=(*_source(tier, shards, spec, capacity), *_finish(tier, spec, capacity)),
        left_out=spec.left_out,
    )


def _why_host_only(spec: FeedSpec, options: FeedOptions) -> str:
    """Return why steps cannot gather the rows of this split. Empty if they can."""
    if not spec.devices:
        return "the training loop takes batches, not row numbers"
    if not spec.sizes.is_numeric:
        return "a feature is text, ragged or sparse"
    if spec.augmentation or spec.normalization:
        return "the host augments and normalizes the images"
    if options.bucket_by:
        return "the host groups rows by the length of a feature"
    if any(one.kind == "numpy" for one in options.maps.values()):
        return "the host calls a NumPy function"
    if options.maps and len(spec.devices) > 1:
        return "the host calls a user's function, which takes whole batches"
    return ""


def _source(tier: Tier, shards: Sequence[ShardFile], spec: FeedSpec, capacity: Capacity) -> Stages:
    """Return the stages from files to batches of transformed features."""
    weights = sampling_weights(shards, spec.class_names, capacity.options) if spec.training else None
    if tier != "stream":
        return _kept(tier, shards, spec, capacity, weights)
    if not spec.training:
        return (
            VerifyFiles(capacity.options.cache_dir),
            ListShards(len(shards), "evaluation data is complete and never shuffled"),
            _read_in_order(shards, capacity),
            BatchRecords(capacity.options.batch_size, "the last, short batch is kept: every record counts once"),
            ParseExamples(),
            TransformFeatures(),
        )
    if weights and weights.by == "class":
        what = "the tier stream cannot sample by class, because the class of a record is known only after decoding"
        do = "use the tier columns or disk, or weight classes with class_weight"
        raise InfeedError(what, where=weights.option, do=do)
    # Serialized records in memory can be gathered by number like columns; only decoding repeats.
    cached, reason = capacity.cache()
    if capacity.options.bucket_by and not cached:
        what = "the tier stream cannot group by length, because the length of a row is known only after decoding"
        do = "use the tier columns or disk, or cache_records if the records fit in memory"
        raise InfeedError(what, where="FeedOptions.bucket_by", do=do)
    if not cached:
        return _streamed(shards, capacity, weights)
    return _kept(tier, shards, spec, capacity, weights, reason)


def _kept(
    tier: Tier,
    shards: Sequence[ShardFile],
    spec: FeedSpec,
    capacity: Capacity,
    weights: SamplingWeights | None,
    why_serialized: str = _PADDED,
) -> Stages:
    options, decoded = capacity.options, capacity.sizes.can_keep and tier != "stream"
    vectorized = "parsing and decoding are vectorized, so large batches are faster"
    decode = (ParseExamples(), TransformFeatures())
    in_memory = LoadColumns() if decoded else CacheRecords(why_serialized)
    gather: GatherShuffled | GatherInStep | GatherInOrder
    if not spec.training:
        gather = GatherInOrder(options.batch_size)
    elif _in_step(tier, spec, capacity):
        gather = GatherInStep(options.batch_size, weights)
    else:
        window = capacity.window() if tier == "disk" and not weights else None
        gather = GatherShuffled(options.batch_size, capacity.batches_a_call(), window, weights, options.bucket_by)
    return (
        VerifyFiles(options.cache_dir),
        ListShards(len(shards), "stages below compute the order from row numbers"),
        _read_in_order(shards, capacity),
        *((BatchRecords(capacity.rows_a_call(), vectorized), *decode) if decoded else ()),
        CacheColumns(options.cache_dir, capacity.kept, decoded) if tier == "disk" else in_memory,
        gather,  # after the kept columns, so that each epoch has its own order
        *(() if decoded else decode),
    )


def _in_step(tier: Tier, spec: FeedSpec, capacity: Capacity) -> bool:
    """Return whether each step gathers its own rows.

    They do on devices that hold the columns. On CPUs, they do for small batches without slow processing.
    """
    if tier == "device":
        return True
    beside = bool(spec.devices) and not accelerators(spec.devices)
    small = spec.sizes.is_dense and capacity.batches_a_call() > 1
    options = capacity.options
    as_kept = not (spec.augmentation or spec.normalization or options.maps or options.bucket_by)
    return beside and spec.training and tier == "columns" and small and as_kept


def _streamed(shards: Sequence[ShardFile], capacity: Capacity, weights: SamplingWeights | None) -> Stages:
    readers, why = capacity.readers(len(shards))
    window, reason = capacity.shuffle()
    batches = capacity.batches_a_call()
    static = "static shapes, and the vectorized steps below run once for all of them"
    return (
        VerifyFiles(capacity.options.cache_dir, weights),
        PermuteShards(len(shards), weights),
        InterleaveShards(readers, why, advice=uneven(shards, readers)),
        *((SampleSplits(window, weights),) if weights else (ShuffleWindows(window, reason), Repeat())),
        ReadAhead(),
        # The shuffle moves single records, but parsing is fastest on many.
        BatchRecords(capacity.options.batch_size * batches, static, drop_remainder=True, batches=batches),
        ParseExamples(),
        TransformFeatures(),
    )


def _read_in_order(shards: Sequence[ShardFile], capacity: Capacity) -> ReadShards:
    readers, reason = capacity.readers(len(shards))
    longest = max(shard.records for shard in shards)
    return ReadShards(readers, capacity.rows_a_call(), longest, reason, uneven(shards, readers))


def _finish(tier: Tier, spec: FeedSpec, capacity: Capacity) -> Stages:
    """Return the last stages. They process every batch again, so they come after the kept data."""
    maps = map_stages(capacity.options, training=spec.training)
    if _in_step(tier, spec, capacity):
        return (PlaceColumns(spec.devices), *maps) if tier == "device" else ()
    size, batches = capacity.options.batch_size, capacity.batches_a_call()
    split = (SplitBatches(batches, size),) if spec.training and batches > 1 else ()
    augment = (AugmentImages(spec.augmentation),) if spec.augmentation else ()
    normalise = (NormaliseImages(spec.normalization),) if spec.normalization and not augment else ()
    pad = (PadBatches(size),) if spec.static_shapes and not spec.training else ()
    return (*split, *maps, *augment, *normalise, *pad, Prefetch())
