"""Turns an `InputPlan` into a `tf.data.Dataset`: one small function a step, applied in the plan's order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.components.errors import InfeedError
from infeed.components.feed import disk
from infeed.components.feed.columns import Columns, cut, hold, is_static, mapped
from infeed.components.feed.mix import Group, counts, groups_of
from infeed.components.feed.options import ALONE, Workers
from infeed.components.feed.order import evaluation_rows, training_rows
from infeed.components.feed.plan import InputPlan
from infeed.components.feed.shards import Part, parts_of
from infeed.components.feed.shares import Shares
from infeed.components.feed.steps import Step

# Labels looked at in one call.
_LABELS = 1 << 16

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
        return ALONE if self.plan.holds_rows else self.workers

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """What of the files this worker reads."""
        return parts_of(self.plan.shards, self.readers, evenly=not self.plan.training)

    def parts_of_splits(self, shares: Shares) -> list[tuple[Part, ...]]:
        """The same, of each split by itself."""
        splits = [[shard for shard in self.plan.shards if shard.split == name] for name in shares.names]
        return [parts_of(shards, self.readers) for shards in splits]

    @property
    def records(self) -> int:
        """Records that this worker reads in an epoch."""
        return sum(part.records for part in self.parts)

    def seed(self, epoch: tf.Tensor, use: tf.Tensor | int) -> tf.Tensor:
        """A seed, int64 [2], for one use of an epoch; sums of seed and epoch would repeat each other."""
        both = tf.stack([tf.cast(self.plan.seed, tf.int64), epoch])
        return tf.random.experimental.stateless_fold_in(both, use)


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
    options.experimental_optimization.apply_default_optimizations = not plan.holds_rows
    options.deterministic = True
    # Records are dealt out by us; a second sharding by TensorFlow would drop some of them.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return options


def _shards(_: None, step: Step, run: _Run) -> tf.data.Dataset | PerEpoch | list[PerEpoch]:
    if not step.settings["permute"]:
        return _list(run.parts)
    if step.settings["shares"]:
        return [_permuted(parts, run) for parts in run.parts_of_splits(step.settings["shares"])]
    return _permuted(run.parts, run)


def _list(parts: Sequence[Part]) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(_fields(parts))


def _fields(parts: Sequence[Part]) -> tuple[tf.Tensor, ...]:
    """What `_read` is told, [parts] each."""
    kinds = {"path": tf.string, "skip": tf.int64, "records": tf.int64, "to_end": tf.bool}
    return tuple(tf.constant([getattr(part, name) for part in parts], kind) for name, kind in kinds.items())


def _permuted(parts: Sequence[Part], run: _Run) -> PerEpoch:
    def permuted(epoch: tf.Tensor) -> tf.data.Dataset:
        # Not Dataset.shuffle, which adds TensorFlow's global seed, or fails in a function where that is 0.
        order = tf.random.experimental.stateless_shuffle(tf.range(len(parts)), run.seed(epoch, 0))
        return tf.data.Dataset.from_tensor_slices(tuple(tf.gather(field, order) for field in _fields(parts)))

    return permuted


def _read(files: Any, step: Step, run: _Run) -> tf.data.Dataset | PerEpoch | list[PerEpoch]:
    if isinstance(files, list):
        return [_read(one, step, run) for one in files]
    if not isinstance(files, tf.data.Dataset):
        return lambda epoch: _read(files(epoch), step, run)
    compression, settings = "GZIP" if run.plan.shards[0].path.endswith(".gz") else "", step.settings

    def blocks_of(path: tf.Tensor, skip: tf.Tensor, records: tf.Tensor, to_end: tf.Tensor) -> tf.data.Dataset:
        read = tf.data.TFRecordDataset(path, compression_type=compression, buffer_size=8 << 20)
        # Read to a file's end where that is meant, so that a record more than the manifest tells is noticed.
        read = read.skip(skip).take(tf.where(to_end, tf.constant(-1, tf.int64), records))
        return read.apply(tf.data.experimental.assert_cardinality(records)).batch(settings["block"])

    return files.interleave(  # string [block], or fewer
        blocks_of,
        cycle_length=settings["readers"],
        block_length=settings["in_a_row"],
        num_parallel_calls=settings["readers"],
    )


def _columns(dataset: tf.data.Dataset, *_: Any) -> Columns:
    return hold(dataset)


def _disk(dataset: tf.data.Dataset, step: Step, run: _Run) -> Columns:
    assert run.stages.key, "the plan keeps columns on disk, so the stages must have a key"
    shards = [shard.identity for shard in run.plan.shards]
    named = json.dumps([disk.FORMAT, shards, run.stages.key, str(dataset.element_spec)])
    key = hashlib.sha256(named.encode()).hexdigest()[:32]
    return disk.keep(dataset, step.settings["folder"], key, step.settings["bytes"])


def _gather(columns: Columns, step: Step, run: _Run) -> tf.data.Dataset:
    batch_size, settings = run.plan.batch_size, step.settings
    if settings["shuffle"]:
        groups = _groups(columns, settings["shares"], run) if settings["shares"] else ()
        order = {"workers": run.workers, "start_step": run.start_step, "window": settings["window"], "groups": groups}
        rows = training_rows(columns.rows, batch_size, run.plan.seed, **order)  # int64 [batch]
        if settings["batches"] > 1:
            several = rows.batch(settings["batches"], drop_remainder=True)
            rows = several.map(lambda some: tf.reshape(some, [-1]))  # int64 [batches * batch]
    else:
        rows = evaluation_rows(columns.rows, batch_size, run.workers)
    return mapped(rows, columns.take)


def _groups(columns: Columns, shares: Shares, run: _Run) -> list[Group]:
    if shares.by == "split":
        places = [shares.names.index(shard.split) for shard in run.plan.shards]
        keys = np.repeat(places, [shard.records for shard in run.plan.shards])
    else:
        rows = evaluation_rows(columns.rows, _LABELS)
        keys = np.concatenate(list(rows.map(lambda some: columns.take(some)[1]).as_numpy_iterator()))
    return groups_of(keys, shares)


def _shuffle(blocks: PerEpoch, step: Step, run: _Run) -> PerEpoch:
    windows = -(-run.records // step.settings["window"])
    rows = -(-run.records // windows)  # all about as long, for in a very short one little is shuffled

    def shuffled(epoch: tf.Tensor) -> tf.data.Dataset:
        windows = blocks(epoch).rebatch(rows).enumerate()  # string [rows], or fewer
        return windows.map(lambda number, records: _shuffled(records, run.seed(epoch, 1 + number)))

    return shuffled


def _shuffled(records: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    return tf.gather(records, tf.random.experimental.stateless_shuffle(tf.range(tf.size(records)), seed))


def _mix(splits: Sequence[PerEpoch], step: Step, run: _Run) -> tf.data.Dataset:
    window, shares = step.settings["window"], step.settings["shares"]
    number, done = divmod(run.start_step * run.workers.part_of(run.plan.batch_size), window)
    taken = []
    wanted = zip(shares.names, shares.shares, counts(shares.shares, window), strict=True)
    for (name, share, count), blocks, parts in zip(wanted, splits, run.parts_of_splits(shares), strict=True):
        if not share:
            continue
        if not count:
            raise InfeedError(
                f"windows of {window:,} records hold none of the split {name!r}",
                where=shares.option,
                do="Give it a larger share, or raise FeedOptions.shuffle_records.",
            )
        epoch, skip = divmod(number * count, sum(part.records for part in parts))
        endless = _without_first(tf.data.Dataset.counter(epoch).flat_map(blocks), skip)
        taken.append(endless.rebatch(count, drop_remainder=True))
    windows = tf.data.Dataset.zip(tuple(taken)).map(lambda *some: tf.concat(some, axis=0)).enumerate(number)
    # Minus one is no epoch, so no seed is used twice.
    shuffled = windows.map(lambda place, records: _shuffled(records, run.seed(tf.constant(-1, tf.int64), place)))
    return _without_first(shuffled, done)  # string [window]


def _repeat(windows: PerEpoch, _: Step, run: _Run) -> tf.data.Dataset:
    epoch, done = divmod(run.start_step * run.workers.part_of(run.plan.batch_size), run.records)
    return _without_first(tf.data.Dataset.counter(epoch).flat_map(windows), done)


def _without_first(blocks: tf.data.Dataset, records: int) -> tf.data.Dataset:
    """Leaves out so many records, counted through the blocks: string [any] each."""

    def rest(left: tf.Tensor, block: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        here = tf.minimum(left, tf.size(block, tf.int64))
        return left - here, block[here:]

    return blocks.scan(tf.constant(records, tf.int64), rest) if records else blocks


def _batch(dataset: tf.data.Dataset, step: Step, run: _Run) -> tf.data.Dataset:
    part, drop = run.readers.part_of(run.plan.batch_size), step.settings["drop_remainder"]
    size = step.settings["size"] * part // run.plan.batch_size
    dataset = dataset.rebatch(size, drop_remainder=drop)  # string [batch]
    if drop:
        return dataset.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(-(-run.records // size)))
    most = -(-run.plan.records // run.readers.count)  # that any worker reads of evaluation data
    if -(-run.records // size) == -(-most // size):
        return dataset
    return dataset.concatenate(tf.data.Dataset.from_tensors(tf.zeros([0], tf.string)))  # as many as the others have


def _parse(dataset: tf.data.Dataset, _: Step, run: _Run) -> tf.data.Dataset:
    return mapped(dataset, run.stages.parse)


def _transform(dataset: tf.data.Dataset, _: Step, run: _Run) -> tf.data.Dataset:
    return mapped(dataset, run.stages.transform)  # (dict of [batch, ...], [batch])


def _cut(dataset: tf.data.Dataset, step: Step, run: _Run) -> tf.data.Dataset:
    several = partial(cut, batches=step.settings["batches"], size=run.workers.part_of(run.plan.batch_size))
    return mapped(dataset, lambda *batch: several(batch)).unbatch()


def _augment(dataset: tf.data.Dataset, _: Step, run: _Run) -> tf.data.Dataset:
    augment = run.stages.augment
    assert augment is not None, "the plan augments, so the stages must say how"
    numbered = dataset.enumerate(run.start_step)
    return mapped(numbered, lambda number, batch: augment(batch, number, run.workers))


def _normalise(dataset: tf.data.Dataset, _: Step, run: _Run) -> tf.data.Dataset:
    normalise = run.stages.normalise
    assert normalise is not None, "the plan normalises, so the stages must say how"
    return mapped(dataset, lambda *batch: normalise(batch))


def _fill(dataset: tf.data.Dataset, step: Step, run: _Run) -> tf.data.Dataset:
    size = run.workers.part_of(step.settings["size"])
    for name, spec in dataset.element_spec[0].items():
        if not is_static(spec) or spec.dtype == tf.string:
            raise InfeedError(
                f"the feature {name!r} is no dense number of a fixed shape: {spec}",
                where="static shapes",
                do="Let Transform make one of it: look words up in a vocabulary, pad lists.",
            )

    def fill(features: Any, label: tf.Tensor, *weight: tf.Tensor) -> Batch:
        def filled(tensor: tf.Tensor) -> tf.Tensor:
            missing = size - tf.shape(tensor)[0]
            padded = tf.pad(tensor, [[0, missing], *([0, 0] for _ in tensor.shape[1:])])
            return tf.ensure_shape(padded, [size, *tensor.shape[1:]])

        given = weight[0] if weight else tf.ones(tf.shape(label)[:1])
        return tf.nest.map_structure(filled, (features, label, given))

    return mapped(dataset, fill)


def _prefetch(dataset: tf.data.Dataset, step: Step, _: _Run) -> tf.data.Dataset:
    return dataset.prefetch(step.settings["elements"] or tf.data.AUTOTUNE)


_BUILDERS: Mapping[str, Callable[..., Any]] = {
    "shards": _shards,
    "read": _read,
    "cache": _columns,
    "columns": _columns,
    "disk": _disk,
    "fill": _fill,
    "gather": _gather,
    "shuffle": _shuffle,
    "repeat": _repeat,
    "batch": _batch,
    "cut": _cut,
    "mix": _mix,
    "parse": _parse,
    "transform": _transform,
    "augment": _augment,
    "normalise": _normalise,
    "prefetch": _prefetch,
}
