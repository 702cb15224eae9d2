"""The datasets of one training: the feed engine, given the transform graph's functions."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
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
from infeed.components.trainer.graph import TransformGraph
from infeed.components.trainer.options import TrainOptions

Labelled = tuple[dict[str, Any], Any]  # ({name: [batch, ...]}, label [batch])


@dataclass(frozen=True)
class Feed:
    """A plan and the functions that carry it out."""

    plan: InputPlan
    stages: Stages

    def dataset(self, *, workers: Workers = ALONE, start_step: int = 0) -> tf.data.Dataset:
        """({feature: [batch, ...]}, label [batch]), endless in training, once through in evaluation.

        Args:
          workers: which worker this is; it makes its part of every global batch.
          start_step: number of the first batch, counted from the beginning of training.
        """
        with naming_corrupt_records(self.plan.shards):
            return build(self.plan, self.stages, workers=workers, start_step=start_step)


def make_feed(patterns: Sequence[str], graph: TransformGraph, options: TrainOptions, *, training: bool) -> Feed:
    """Plans the reading of TFX's file patterns.

    Raises:
      InfeedError: there is no record to read, or too many are corrupt.
    """
    shards, corrupt = shard_files(patterns), tuple[Corrupt, ...]()
    if options.feed.skip_corrupt:
        shards, corrupt = without_corrupt(shards, options.feed.skip_corrupt)
    stages = _stages(graph, options, training=training)
    with naming_corrupt_records(shards):
        sample = measure(shards, stages)
    images = image_names(graph.transformed_spec, options)
    normalisation = options.normalise.describe() if images and options.normalise else ""
    changes = options.augment.describe() if images and training and options.augment else ""
    augmentation = f"{changes}, {normalisation}" if changes else ""
    spec = FeedSpec(training, sample, augmentation, normalisation, tuple(map(str, corrupt)))
    return Feed(plan(shards, spec, options.feed, Machine.here(cache_dir=options.feed.cache_dir)), stages)


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
        for name in image_names(features, options):
            features[name] = tf.cast(features[name], tf.uint8)
        return _checked(features, label, graph.label) if training else _usable_rows(features, label)

    def augment_batch(batch: Labelled, number: tf.Tensor, workers: Workers) -> Labelled:
        return _augment(batch, number, workers, options), batch[1]

    def normalise_batch(batch: Labelled) -> Labelled:
        return normalise_images(batch[0], options), batch[1]

    return Stages(parse, transform, augment_batch, normalise_batch, _key(graph, options, training))


def _key(graph: TransformGraph, options: TrainOptions, training: bool) -> str:
    """Names what `parse` and `transform` do: the graph's own files, and the options that they look at."""
    digest = hashlib.sha256(repr((graph.label, list(options.images), options.examples_are, training)).encode())
    folder = graph.output.transform_savedmodel_dir
    for file in files.list_files(folder, depth=2):
        digest.update(files.relative(file.path, folder).encode() + files.read_bytes(file.path))
    return digest.hexdigest()


def _checked(features: dict[str, Any], label: tf.Tensor, name: str) -> Labelled:
    """Stops training on a record without a label: neither -1 nor NaN may reach a loss."""
    complaint = f"a training record has no {name!r}, or a class that Transform did not see; take such records out"
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(_is_usable(label)), [complaint])]):
        return features, tf.identity(label)


def _usable_rows(features: dict[str, Any], label: tf.Tensor) -> Labelled:
    """Leaves out evaluation records whose class no training record has: the loss knows no such class.

    Evaluator counts them, as wrong.
    """
    rows = tf.where(_is_usable(label))[:, 0]
    return {name: _gather(value, rows) for name, value in features.items()}, tf.gather(label, rows)


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
    features, images = batch[0], image_names(batch[0], options)
    return features | {name: augment.augment(features[name], change, scale, seed, workers) for name in images}
