"""The datasets of one training: the feed engine, given the transform graph's functions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tensorflow as tf

from infeed.components.dataset import files
from infeed.components.feed import augment
from infeed.components.feed.build import Stages, build
from infeed.components.feed.corrupt import Corrupt, naming_corrupt_records, without_corrupt
from infeed.components.feed.machine import Machine
from infeed.components.feed.options import ALONE, Workers
from infeed.components.feed.plan import FeedSpec, InputPlan, plan
from infeed.components.feed.sample import measure
from infeed.components.feed.shards import shard_files
from infeed.components.feed.steps import Step
from infeed.components.trainer.graph import TransformGraph
from infeed.components.trainer.options import TrainOptions

Labelled = tuple[Any, ...]  # ({name: [batch, ...]}, label [batch]), and weight float32 [batch] where there is one


@dataclass(frozen=True)
class Feed:
    """A plan and what carries it out.

    Attributes:
      plan: how batches are made.
      make: which worker this is, and the number of the first step -> batches.
      identity: what is fed, in plain values: a training goes on after a break only where it is the same.
      close: ends what the batches come from.
    """

    plan: InputPlan
    make: Callable[[Workers, int], tf.data.Dataset]
    identity: Any
    close: Callable[[], None] = lambda: None

    def then(self, *steps: Step) -> Feed:
        """The same feed, where the plan tells as well what is done with its batches elsewhere."""
        return replace(self, plan=replace(self.plan, steps=(*self.plan.steps, *steps)))

    def dataset(self, *, workers: Workers = ALONE, start_step: int = 0) -> tf.data.Dataset:
        """({feature: [batch, ...]}, label [batch]) or, of weighted examples, ({...}, label, weight float32 [batch]).

        Endless in training, once through in evaluation.

        Args:
          workers: which worker this is; it makes its part of every global batch.
          start_step: number of the first batch, counted from the beginning of training.
        """
        with naming_corrupt_records(self.plan.shards):
            return self.make(workers, start_step)


def make_feed(
    patterns: Sequence[str],
    graph: TransformGraph,
    options: TrainOptions,
    *,
    training: bool,
    num_steps: int | None = None,
    runs: int = 1,
) -> Feed:
    """Plans the reading of TFX's file patterns.

    Args:
      num_steps: of the training, where that is not a number of epochs.
      runs: how often the whole training is gone through: what a search decodes once serves all of its trials.

    Raises:
      InfeedError: there is no record to read, or too many are corrupt.
    """
    cache_dir = str(Path(options.feed.cache_dir).expanduser())
    shards, corrupt = shard_files(patterns, cache_dir), tuple[Corrupt, ...]()
    if options.feed.skip_corrupt:
        shards, corrupt = without_corrupt(shards, options.feed.skip_corrupt)
    stages = _stages(graph, options, training=training)
    with naming_corrupt_records(shards):
        sample = measure(shards, stages)
    images = image_names(graph.transformed_spec, options)
    normalisation = options.normalise.describe() if images and options.normalise else ""
    changes = options.augment.describe() if images and training and options.augment else ""
    shapes = [graph.transformed_spec[name].shape for name in images]
    augmentation = f"{changes}, {normalisation}, {augment.how(shapes)}" if changes else ""
    records = sum(shard.records for shard in shards)
    epochs = -(-num_steps * options.feed.batch_size // records) if num_steps else options.epochs
    spec = FeedSpec(
        training,
        sample,
        augmentation,
        normalisation,
        left_out=tuple(map(str, corrupt)),
        class_names=graph.classes,
        epochs=runs * epochs,
        static_shapes=options.strategy == "tpu" if options.feed.static_shapes is None else options.feed.static_shapes,
        elsewhere=options.strategy == "parameter_server",
    )
    made = plan(shards, spec, options.feed, Machine.here(cache_dir=options.feed.cache_dir))

    def make(workers: Workers, start_step: int) -> tf.data.Dataset:
        return build(made, stages, workers=workers, start_step=start_step)

    return Feed(made, make, [[shard.identity for shard in shards], stages.key])


def normalise_images(features: dict[str, Any], options: TrainOptions) -> dict[str, Any]:
    """The deterministic end of the feed, the same in training, evaluation and serving."""
    if options.normalise is None:
        return features
    images = image_names(features, options)
    return features | {name: augment.normalise(features[name], options.normalise) for name in images}


def image_names(features: Collection[str], options: TrainOptions) -> list[str]:
    """Which of the features hold pixels."""
    return [name for name in options.images if name in features]


def _stages(graph: TransformGraph, options: TrainOptions, *, training: bool) -> Stages:
    transformed = options.examples_are == "transformed"
    parsing_spec = graph.transformed_spec if transformed else graph.raw_spec

    def parse(records: tf.Tensor) -> dict[str, Any]:
        return tf.io.parse_example(records, parsing_spec)  # type: ignore[no-any-return]

    def transform(raw: dict[str, Any]) -> Labelled:
        features = dict(raw) if transformed else graph.transform(raw)
        label = tf.reshape(features.pop(graph.label), [-1])  # a materialised label comes back as [batch, 1]
        weight = [_weight(features.pop(options.feed.weight))] if options.feed.weight else []
        for name in image_names(features, options):
            features[name] = tf.cast(features[name], tf.uint8)
        batch = (features, label, *weight)
        return _checked(batch, graph.label) if training else _usable_rows(batch)

    def augment_batch(batch: Labelled, number: tf.Tensor, workers: Workers) -> Labelled:
        return _augment(batch, number, workers, options), *batch[1:]

    def normalise_batch(batch: Labelled) -> Labelled:
        return normalise_images(batch[0], options), *batch[1:]

    return Stages(parse, transform, augment_batch, normalise_batch, _key(graph, options, training))


def _key(graph: TransformGraph, options: TrainOptions, training: bool) -> str:
    """Names what `parse` and `transform` do: the graph's own files, and the options that they look at."""
    digest = hashlib.sha256(repr((graph.not_inputs, list(options.images), options.examples_are, training)).encode())
    folder = graph.output.transform_savedmodel_dir
    for file in files.list_files(folder, depth=2):
        digest.update(files.relative(file.path, folder).encode() + files.read_bytes(file.path))
    return digest.hexdigest()


def _weight(feature: tf.Tensor) -> tf.Tensor:
    """float32 [batch]"""
    weight = tf.cast(tf.reshape(feature, [-1]), tf.float32)
    complaint = "an example's weight is below 0 or no number; FeedOptions.weight names the feature"
    is_sound = tf.reduce_all(tf.math.is_finite(weight) & (weight >= 0))
    with tf.control_dependencies([tf.debugging.Assert(is_sound, [complaint])]):
        return tf.identity(weight)


def _checked(batch: Labelled, name: str) -> Labelled:
    """Stops training on a record without a label: neither -1 nor NaN may reach a loss."""
    features, label, *weight = batch
    complaint = f"a training record has no label {name}, or a class that Transform did not see; take such records out"
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(_is_usable(label)), [complaint])]):
        return features, tf.identity(label), *weight


def _usable_rows(batch: Labelled) -> Labelled:
    """Leaves out evaluation records whose class no training record has: the loss knows no such class.

    Evaluator counts them, as wrong.
    """
    features, label, *weight = batch
    rows = tf.where(_is_usable(label))[:, 0]
    return {name: _gather(value, rows) for name, value in features.items()}, *(
        tf.gather(one, rows) for one in (label, *weight)
    )


def _is_usable(label: tf.Tensor) -> tf.Tensor:
    """bool [batch]; Transform marks a missing label, or an unknown class, with NaN or -1."""
    return tf.math.is_finite(label) if label.dtype.is_floating else label >= 0


def _gather(value: Any, rows: tf.Tensor) -> Any:
    if isinstance(value, tf.SparseTensor):
        return tf.gather(tf.RaggedTensor.from_sparse(value), rows).to_sparse()
    return tf.gather(value, rows)


def _augment(batch: Labelled, number: tf.Tensor, workers: Workers, options: TrainOptions) -> dict[str, Any]:
    change, scale = options.augment, options.normalise
    assert change is not None, "the plan augments only where the options say how"
    assert scale is not None, "TrainOptions takes no augment without normalise"
    seed = tf.stack([tf.constant(options.feed.seed, tf.int64), number])
    features: dict[str, Any] = batch[0]
    images = image_names(features, options)
    return features | {name: augment.augment(features[name], change, scale, seed, workers) for name in images}
