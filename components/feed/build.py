"""Turns an `InputPlan` into a `tf.data.Dataset`: one small function a step, applied in the plan's order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from infeed.components.feed.columns import Columns, evaluation_rows, training_rows
from infeed.components.feed.plan import InputPlan, Step

Batch = Any  # a dict of tensors, or (features, label) of them: [batch, ...] each


@dataclass(frozen=True)
class Stages:
    """The functions on whole batches that a plan's steps call.

    Attributes:
      parse: serialized records, string [batch] -> dict of raw features.
      transform: raw features -> (features, label).
      augment: (features, label), step number int64 [] -> (features, label), at random and normalised.
      normalise: (features, label) -> (features, label), the part of `augment` that is not random.
    """

    parse: Callable[[tf.Tensor], Batch]
    transform: Callable[[Batch], Batch]
    augment: Callable[[Batch, tf.Tensor], Batch] | None = None
    normalise: Callable[[Batch], Batch] | None = None


def build(plan: InputPlan, stages: Stages) -> tf.data.Dataset:
    """Builds the dataset. Training plans give endless full batches, evaluation plans every record once, in order.

    A plan of the tier `columns` reads and decodes the whole split here, before this returns.
    """
    made: Any = None  # a Dataset, or Columns between the steps `columns` and `gather`
    for step in plan.steps:
        made = _BUILDERS[step.name](made, step, plan, stages)
    return made.with_options(_options())


def _options() -> tf.data.Options:
    options = tf.data.Options()
    options.deterministic = True
    # Records are dealt out by us; a second sharding by TensorFlow would drop some of them.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return options


def _shards(_: None, step: Step, plan: InputPlan, __: Stages) -> tf.data.Dataset:
    dataset = tf.data.Dataset.from_tensor_slices([shard.path for shard in plan.shards])
    if step.settings.get("permute"):
        dataset = dataset.shuffle(len(plan.shards), seed=plan.seed, reshuffle_each_iteration=True)
    return dataset  # string []


def _read(dataset: tf.data.Dataset, step: Step, plan: InputPlan, _: Stages) -> tf.data.Dataset:
    compression = "GZIP" if plan.shards[0].path.endswith(".gz") else ""

    def records_of(path: tf.Tensor) -> tf.data.Dataset:
        return tf.data.TFRecordDataset(path, compression_type=compression, buffer_size=8 << 20)

    readers, block = step.settings["readers"], step.settings["block"]
    dataset = dataset.interleave(records_of, cycle_length=readers, block_length=block, num_parallel_calls=readers)
    # The count is known from the manifest; saying it lets Keras and Dataset.cardinality know it too.
    return dataset.apply(tf.data.experimental.assert_cardinality(plan.records))  # string []


def _cache(dataset: tf.data.Dataset, *_: Any) -> tf.data.Dataset:
    return dataset.cache()


def _columns(dataset: tf.data.Dataset, *_: Any) -> Columns:
    return Columns(dataset)


def _gather(columns: Columns, step: Step, plan: InputPlan, _: Stages) -> tf.data.Dataset:
    size = step.settings["size"]
    if step.settings["permute"]:
        rows = training_rows(columns.rows, size, plan.seed)
    else:
        rows = evaluation_rows(columns.rows, size)
    return rows.map(columns.take, num_parallel_calls=tf.data.AUTOTUNE)


def _shuffle(dataset: tf.data.Dataset, step: Step, plan: InputPlan, _: Stages) -> tf.data.Dataset:
    return dataset.shuffle(step.settings["buffer"], seed=plan.seed, reshuffle_each_iteration=True)


def _repeat(dataset: tf.data.Dataset, *_: Any) -> tf.data.Dataset:
    return dataset.repeat()


def _batch(dataset: tf.data.Dataset, step: Step, *_: Any) -> tf.data.Dataset:
    return dataset.batch(  # adds the batch dimension to whatever came in
        step.settings["size"], drop_remainder=step.settings["drop_remainder"], num_parallel_calls=tf.data.AUTOTUNE
    )


def _parse(dataset: tf.data.Dataset, _: Step, __: InputPlan, stages: Stages) -> tf.data.Dataset:
    return dataset.map(stages.parse, num_parallel_calls=tf.data.AUTOTUNE)


def _transform(dataset: tf.data.Dataset, _: Step, __: InputPlan, stages: Stages) -> tf.data.Dataset:
    return dataset.map(stages.transform, num_parallel_calls=tf.data.AUTOTUNE)  # (dict of [batch, ...], [batch])


def _augment(dataset: tf.data.Dataset, _: Step, __: InputPlan, stages: Stages) -> tf.data.Dataset:
    augment = stages.augment
    assert augment is not None, "the plan augments, so the stages must say how"
    return dataset.enumerate().map(lambda number, batch: augment(batch, number), num_parallel_calls=tf.data.AUTOTUNE)


def _normalise(dataset: tf.data.Dataset, _: Step, __: InputPlan, stages: Stages) -> tf.data.Dataset:
    normalise = stages.normalise
    assert normalise is not None, "the plan normalises, so the stages must say how"
    return dataset.map(lambda *batch: normalise(batch), num_parallel_calls=tf.data.AUTOTUNE)


def _prefetch(dataset: tf.data.Dataset, *_: Any) -> tf.data.Dataset:
    return dataset.prefetch(tf.data.AUTOTUNE)


_BUILDERS: Mapping[str, Callable[..., Any]] = {
    "shards": _shards,
    "read": _read,
    "cache": _cache,
    "columns": _columns,
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
