"""Turns an `InputPlan` into a `tf.data.Dataset`: one small function a step, applied in the plan's order."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tensorflow as tf

from infeed.components.feed import disk
from infeed.components.feed.columns import Columns, hold
from infeed.components.feed.options import ALONE, Workers
from infeed.components.feed.order import evaluation_rows, training_rows
from infeed.components.feed.plan import InputPlan
from infeed.components.feed.shards import Part, parts_of
from infeed.components.feed.steps import Step

Batch = Any  # a dict of tensors, or (features, label) of them: [batch, ...] each
PerEpoch = Callable[[tf.Tensor], tf.data.Dataset]  # an epoch's number, int64 [] -> what is read in it


@dataclass(frozen=True)
class Stages:
    """The functions on whole batches that a plan's steps call.

    Attributes:
      parse: serialized records, string [batch] -> dict of raw features.
      transform: raw features -> (features, label).
      augment: (features, label), step number int64 [], workers -> (features, label), at random and normalised. A
        worker is given its part of the global batch of that step.
      normalise: (features, label) -> (features, label), the part of `augment` that is not random.
      key: names all that `parse` and `transform` do; what they made of a split is kept on disk under it.
    """

    parse: Callable[[tf.Tensor], Batch]
    transform: Callable[[Batch], Batch]
    augment: Callable[[Batch, tf.Tensor, Workers], Batch] | None = None
    normalise: Callable[[Batch], Batch] | None = None
    key: str = ""


@dataclass(frozen=True)
class _Run:
    """What every builder may ask for."""

    plan: InputPlan
    stages: Stages
    workers: Workers
    start_step: int

    @property
    def readers(self) -> Workers:
        """Who shares the reading: where rows are kept, each worker keeps all of them and shares out row numbers."""
        return self.workers if self.plan.tier == "stream" else ALONE

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """What of the files this worker reads."""
        return parts_of(self.plan.shards, self.readers, evenly=not self.plan.training)

    @property
    def records(self) -> int:
        """Records that this worker reads in an epoch."""
        return sum(part.records for part in self.parts)


def build(plan: InputPlan, stages: Stages, *, workers: Workers = ALONE, start_step: int = 0) -> tf.data.Dataset:
    """Builds the dataset. Training plans give endless full batches, evaluation plans every record once, in order.

    A plan of the tier `columns` or `disk` reads and decodes the whole split here, before this returns.

    Args:
      workers: which worker this is. It makes `plan.batch_size / workers.count` records of each global batch.
      start_step: in training, number of the first batch: the one an uninterrupted training is given at that step.

    Raises:
      InfeedError: the workers cannot share a batch evenly, or one would have nothing to read.
    """
    run = _Run(plan, stages, workers, start_step)
    made: Any = None  # a Dataset, or what a builder says it returns
    for step in plan.steps:
        made = _BUILDERS[step.name](made, step, run)
    return made.with_options(_options(plan))


def _options(plan: InputPlan) -> tf.data.Options:
    options = tf.data.Options()
    # Rewriting the graph copies every tensor in it, columns included; the plan leaves nothing to rewrite anyway.
    options.experimental_optimization.apply_default_optimizations = plan.tier == "stream"
    options.deterministic = True
    # Records are dealt out by us; a second sharding by TensorFlow would drop some of them.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return options


def _shards(_: None, step: Step, run: _Run) -> tf.data.Dataset | PerEpoch:
    paths, skips = [part.path for part in run.parts], [part.skip for part in run.parts]
    # Read to a file's end where that is meant, so that a record more than the manifest tells is noticed.
    takes = [-1 if part.to_end else part.records for part in run.parts]
    dataset = tf.data.Dataset.from_tensor_slices((paths, tf.constant(skips, tf.int64), tf.constant(takes, tf.int64)))
    if not step.settings["permute"]:
        return dataset
    return lambda epoch: dataset.shuffle(len(run.parts), _seed(run, epoch, stream=0))


def _read(files: tf.data.Dataset | PerEpoch, step: Step, run: _Run) -> tf.data.Dataset | PerEpoch:
    if not isinstance(files, tf.data.Dataset):
        return lambda epoch: _read(files(epoch), step, run)
    compression = "GZIP" if run.plan.shards[0].path.endswith(".gz") else ""

    def records_of(path: tf.Tensor, skip: tf.Tensor, take: tf.Tensor) -> tf.data.Dataset:
        records = tf.data.TFRecordDataset(path, compression_type=compression, buffer_size=8 << 20)
        return records.skip(skip).take(take)

    readers, block = step.settings["readers"], step.settings["block"]
    dataset = files.interleave(records_of, cycle_length=readers, block_length=block, num_parallel_calls=readers)
    # The count is known from the manifest; saying it lets Keras and Dataset.cardinality know it too.
    return dataset.apply(tf.data.experimental.assert_cardinality(run.records))  # string []


def _cache(records: PerEpoch, *_: Any) -> PerEpoch:
    first = records(tf.constant(0, tf.int64)).cache()
    return lambda _: first


def _columns(dataset: tf.data.Dataset, *_: Any) -> Columns:
    return hold(dataset)


def _disk(dataset: tf.data.Dataset, step: Step, run: _Run) -> Columns:
    assert run.stages.key, "the plan keeps columns on disk, so the stages must have a key"
    shards = [(os.path.basename(shard.path), shard.records, shard.bytes, shard.crc32c) for shard in run.plan.shards]
    named = json.dumps([disk.FORMAT, shards, run.stages.key, str(dataset.element_spec)])
    key = hashlib.sha256(named.encode()).hexdigest()[:32]
    return disk.keep(dataset, step.settings["folder"], key, step.settings["bytes"])


def _gather(columns: Columns, step: Step, run: _Run) -> tf.data.Dataset:
    batch_size, settings = run.plan.batch_size, step.settings
    if not settings["shuffle"]:
        rows = evaluation_rows(columns.rows, batch_size, run.workers)
        return rows.map(columns.take, num_parallel_calls=tf.data.AUTOTUNE)
    order = {"workers": run.workers, "start_step": run.start_step, "window": settings["window"]}
    rows = training_rows(columns.rows, batch_size, run.plan.seed, **order)  # int64 [batch]
    if settings["batches"] == 1 or not columns.can_be_cut:
        return rows.map(columns.take, num_parallel_calls=tf.data.AUTOTUNE)
    several = rows.batch(settings["batches"], drop_remainder=True)
    return several.map(columns.take_several, num_parallel_calls=tf.data.AUTOTUNE).unbatch()


def _shuffle(records: PerEpoch, step: Step, run: _Run) -> PerEpoch:
    return lambda epoch: records(epoch).shuffle(step.settings["buffer"], _seed(run, epoch, stream=1))


def _repeat(records: PerEpoch, _: Step, run: _Run) -> tf.data.Dataset:
    epoch, done = divmod(run.start_step * run.workers.part_of(run.plan.batch_size), run.records)
    return tf.data.Dataset.counter(epoch).flat_map(records).skip(done)  # string []


def _seed(run: _Run, epoch: tf.Tensor, *, stream: int) -> tf.Tensor:
    """One number for one use of an epoch; sums of seed and epoch would repeat each other."""
    seed = tf.random.experimental.stateless_fold_in(tf.stack([tf.cast(run.plan.seed, tf.int64), epoch]), stream)
    return tf.random.stateless_uniform([], seed, minval=None, maxval=None, dtype=tf.int64)


def _batch(dataset: tf.data.Dataset, step: Step, run: _Run) -> tf.data.Dataset:
    size, drop = run.readers.part_of(step.settings["size"]), step.settings["drop_remainder"]
    dataset = dataset.batch(size, drop_remainder=drop, num_parallel_calls=tf.data.AUTOTUNE)  # string [batch]
    most = -(-run.plan.records // run.readers.count)  # that any worker reads of evaluation data
    if drop:
        return dataset.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
    if -(-run.records // size) == -(-most // size):
        return dataset
    return dataset.concatenate(tf.data.Dataset.from_tensors(tf.zeros([0], tf.string)))  # as many as the others have


def _parse(dataset: tf.data.Dataset, _: Step, run: _Run) -> tf.data.Dataset:
    return dataset.map(run.stages.parse, num_parallel_calls=tf.data.AUTOTUNE)


def _transform(dataset: tf.data.Dataset, _: Step, run: _Run) -> tf.data.Dataset:
    return dataset.map(run.stages.transform, num_parallel_calls=tf.data.AUTOTUNE)  # (dict of [batch, ...], [batch])


def _augment(dataset: tf.data.Dataset, _: Step, run: _Run) -> tf.data.Dataset:
    augment = run.stages.augment
    assert augment is not None, "the plan augments, so the stages must say how"
    return dataset.enumerate(run.start_step).map(
        lambda number, batch: augment(batch, number, run.workers), num_parallel_calls=tf.data.AUTOTUNE
    )


def _normalise(dataset: tf.data.Dataset, _: Step, run: _Run) -> tf.data.Dataset:
    normalise = run.stages.normalise
    assert normalise is not None, "the plan normalises, so the stages must say how"
    return dataset.map(lambda *batch: normalise(batch), num_parallel_calls=tf.data.AUTOTUNE)


def _prefetch(dataset: tf.data.Dataset, *_: Any) -> tf.data.Dataset:
    return dataset.prefetch(tf.data.AUTOTUNE)


_BUILDERS: Mapping[str, Callable[..., Any]] = {
    "shards": _shards,
    "read": _read,
    "cache": _cache,
    "columns": _columns,
    "disk": _disk,
    "gather": _gather,
    "shuffle": _shuffle,
    "repeat": _repeat,
    "batch": _batch,
    "parse": _parse,
    "transform": _transform,
    "augment": _augment,
    "normalise": _normalise,
    "prefetch": _prefetch,
}
