"""From files to a `tf.data.Dataset`: measure the records, plan, and build."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import tensorflow as tf

from infeed.components.dataset.records import read_records
from infeed.components.feed.capacity import Machine, RecordSizes
from infeed.components.feed.columns import (
    can_keep,
    can_split,
    is_static,
    is_static_number,
    mapped,
    reading_options,
    without_rewrites,
)
from infeed.components.feed.options import SINGLE_WORKER, FeedOptions, WorkerContext
from infeed.components.feed.plan import FeedSpec, InputPlan, plan
from infeed.components.feed.row_batches import RowBatches
from infeed.components.feed.shards import (
    Corrupt,
    ShardFile,
    check_files,
    corrupt_record_context,
    shard_files,
    without_corrupt,
)
from infeed.components.feed.stages.base import BatchFunctions, BuildContext, Made, Stage

Batches: TypeAlias = tf.data.Dataset | RowBatches

_MEASURED_RECORDS = 256


@dataclass(frozen=True)
class Feed:
    """A plan and the functions that execute it."""

    plan: InputPlan
    make: Callable[[WorkerContext, int], Batches]  # (worker, number of the first step) -> batches
    identity: Any  # plain values that identify the data. A training resumes only if they are equal.
    close: Callable[[], None] = lambda: None  # releases the source of the batches
    functions: BatchFunctions | None = None  # functions that the stages call; None for batches from a user's function
    # Other options -> the plan of the same data; None for batches from a user's function.
    replan: Callable[[FeedOptions], InputPlan] | None = None

    def with_stages(self, *stages: Stage[Any, Made]) -> Feed:
        """Return this feed with further stages in its plan. Other code applies them to the batches."""
        return replace(self, plan=replace(self.plan, stages=(*self.plan.stages, *stages)))

    def dataset(self, *, workers: WorkerContext = SINGLE_WORKER, start_step: int = 0) -> tf.data.Dataset:
        """Return the batches as a dataset: endless in training, one pass in evaluation.

        Batches are ({feature: [batch, ...]}, label [batch]). With example weights, weight float32 [batch] follows.
        `start_step` is the number of the first batch, counted from the beginning of training.
        """
        made = self.batches(workers=workers, start_step=start_step)
        return made.dataset() if isinstance(made, RowBatches) else made

    def batches(self, *, workers: WorkerContext = SINGLE_WORKER, start_step: int = 0) -> Batches:
        """Return the batches of the plan: `RowBatches` if steps gather their own rows, else a dataset."""
        with corrupt_record_context(self.plan.shards):
            return self.make(workers, start_step)


def plan_feed(
    patterns: Sequence[str],
    stages: BatchFunctions,
    options: FeedOptions,
    spec: Callable[[int, RecordSizes, tuple[str, ...]], FeedSpec],
) -> Feed:
    """Plan the feed of the files that match TFX's patterns.

    `spec` creates a FeedSpec from the number of records, measured sizes, and skipped corrupt records. Raises
    InfeedError if the files hold no records, or too many corrupt ones.
    """
    shards, corrupt = shard_files(patterns, options.cache_dir), tuple[Corrupt, ...]()
    if options.skip_corrupt:
        shards, corrupt = without_corrupt(shards, options.skip_corrupt)
    # The measurement reads the first file, and a wrong file should raise an error about the file, not its records.
    check_files(shards[:1], options.cache_dir)
    with corrupt_record_context(shards):
        sample = measure_records(shards, stages)
    fed = spec(sum(shard.records for shard in shards), sample, tuple(map(str, corrupt)))
    replan = partial(plan, shards, fed, machine=Machine.here(cache_dir=options.cache_dir, devices=fed.devices))
    made = replan(options)

    def make(workers: WorkerContext, start_step: int) -> Batches:
        return build(made, stages, workers=workers, start_step=start_step)

    return Feed(made, make, [[shard.identity for shard in shards], stages.key], functions=stages, replan=replan)


def measure_records(shards: Sequence[ShardFile], functions: BatchFunctions) -> RecordSizes:
    """Parse and transform up to 256 records to measure their sizes."""
    records = list(itertools.islice(read_records(shards[0].path), _MEASURED_RECORDS))
    made = mapped(
        tf.data.Dataset.from_tensor_slices(records).batch(_MEASURED_RECORDS),
        lambda some: (some, functions.transform(functions.parse(some))),
    )
    serialized, features = next(iter(without_rewrites(made)))
    count = int(serialized.shape[0])
    return RecordSizes(
        record_bytes=bytes_of(serialized) / count,
        feature_bytes=sum(map(bytes_of, tf.nest.flatten(features, expand_composites=True))) / count,
        can_split=can_split(made.element_spec[1]),
        can_keep=can_keep(made.element_spec[1]),
        is_dense=all(map(is_static, tf.nest.flatten(made.element_spec[1]))),
        is_numeric=all(map(is_static_number, tf.nest.flatten(made.element_spec[1]))),
    )


def build(
    plan: InputPlan, functions: BatchFunctions, *, workers: WorkerContext = SINGLE_WORKER, start_step: int = 0
) -> Batches:
    """Build the batches. Training has endless full batches. Evaluation has every record once, in order.

    The tiers `columns` and `disk` read and decode the whole split before this function returns. In training,
    `start_step` is the number of the first batch; the batches equal those of an uninterrupted training. Raises
    InfeedError if the workers cannot share a batch evenly, or a worker has no records.
    """
    context = context_of(plan, functions, workers, start_step)
    made: Made = None
    for stage in plan.stages:
        made = stage.apply(made, context)
    if isinstance(made, RowBatches):
        return made
    assert isinstance(made, tf.data.Dataset), "every list of stages in plan.py ends with a stage that returns batches"
    # A plan with rows in memory has no operations worth rewriting, and a rewrite would copy the columns.
    return made.with_options(reading_options(streams=not plan.holds_rows))


def context_of(
    plan: InputPlan, functions: BatchFunctions, workers: WorkerContext = SINGLE_WORKER, start_step: int = 0
) -> BuildContext:
    """Return the context in which the stages of a plan run."""
    return BuildContext(
        shards=plan.shards,
        batch=replace(plan.batch, workers=workers),
        training=plan.training,
        functions=functions,
        readers=SINGLE_WORKER if plan.holds_rows else workers,
        start_step=start_step,
    )


def bytes_of(tensor: tf.Tensor) -> float:
    """Return the bytes of the values of a tensor. For text, the lengths are counted."""
    if tensor.dtype == tf.string:
        return float(tf.reduce_sum(tf.strings.length(tensor)))
    return float(tf.size(tensor) * tensor.dtype.size)
