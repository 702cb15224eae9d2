"""Datasets of one training: the feed with the functions of the transform graph."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import tensorflow as tf

from infeed.components.base import units
from infeed.components.base.errors import InfeedError
from infeed.components.feed import augment
from infeed.components.feed.augment_batch import augment_batch, check_roles
from infeed.components.feed.build import Feed, plan_feed
from infeed.components.feed.capacity import RecordSizes
from infeed.components.feed.options import Augment, WorkerContext
from infeed.components.feed.plan import FeedSpec
from infeed.components.feed.stages.base import BatchFunctions
from infeed.components.trainer.graph import Graph
from infeed.components.trainer.options import Task, TrainOptions
from infeed.components.trainer.packing import Packing

_SHOWN = 8  # maximum number of feature names in a message
# ({name: [batch, ...]}, label [batch, ...]), and optionally weight float32 [batch]. With several outputs, the label is
# {output: [batch, ...]}.
Labeled = tuple[Any, ...]


def make_feed(
    patterns: Sequence[str],
    graph: Graph,
    options: TrainOptions,
    *,
    training: bool,
    num_steps: int | None = None,
    runs: int = 1,
    devices: tuple[str, ...] = (),
    packed: bool = False,
) -> Feed:
    """Plan the feed of the files that match TFX's patterns.

    Args:
      num_steps: number of training steps. None if training is a number of epochs.
      runs: number of trainings on the same data. All trials of a search share the decoded data.
      devices: names of the devices whose steps take row numbers. Empty if the loop takes only batches.
      packed: whether batches hold packed features; see `packing_of`. A user's function may then return only serving
          features.

    Raises:
      InfeedError: there are no records, or too many are corrupt.
    """
    _check_roles(graph, options)
    images = image_names(graph.transformed_spec, options)
    normalization = options.normalise.describe() if images and options.normalise else ""
    changes = options.augment.describe() if images and training and options.augment else ""
    if changes and (options.masks or options.boxes):
        changes += f", moves {units.listed([*options.masks, *options.boxes])} with them"
    shapes = [graph.transformed_spec[name].shape for name in images]
    static_shapes = options.feed.static_shapes

    def spec(records: int, sample: RecordSizes, left_out: tuple[str, ...]) -> FeedSpec:
        # The choice of a tier weighs decoding once against decoding in every epoch.
        epochs = -(-num_steps * options.feed.batch_size // records) if num_steps else options.epochs
        return FeedSpec(
            training,
            sample,
            augmentation=f"{changes}, {normalization}, {augment.how(shapes)}" if changes else "",
            normalization=normalization,
            left_out=left_out,
            class_names=graph.classes,
            epochs=runs * epochs,
            static_shapes=options.strategy == "tpu" if static_shapes is None else static_shapes,
            devices=devices,
        )

    packing = packing_of(graph, options) if packed else Packing()
    functions = _stages(graph, options, packing, training=training, served=packed)
    return plan_feed(patterns, functions, options.feed, spec)


def normalise_images(features: dict[str, Any], options: TrainOptions) -> dict[str, Any]:
    """Normalize images deterministically, the same in training, evaluation and serving."""
    if options.normalise is None:
        return features
    images = image_names(features, options)
    return features | {name: augment.normalise(features[name], options.normalise) for name in images}


def image_names(features: Collection[str], options: TrainOptions) -> list[str]:
    """Return the names of the features that hold pixels."""
    return [name for name in options.images if name in features]


def packing_of(graph: Graph, options: TrainOptions) -> Packing:
    """Return the features that the batches of `make_feed` hold packed.

    None for a user's function, which needs names.
    """
    if options.feed.maps:
        return Packing()
    images = image_names(graph.transformed_spec, options)
    return Packing.of(graph.transformed_spec, apart=(*graph.not_inputs, *images, *options.masks, *options.boxes))


def labels_of(features: Mapping[str, Any], options: TrainOptions) -> dict[str, tf.Tensor]:
    """Return the label of each output, [batch, ...]. The only output has the name ""."""
    return {
        name: features[one.feature] if one.feature in options.masks else label_of(features[one.feature], one.task)
        for name, one in options.outputs.items()
    }


def label_of(feature: Any, task: Task) -> tf.Tensor:
    """Return the label as [batch], given [batch] or [batch, 1].

    A missing label of a raw example is marked as in Transform.
    A label of several numbers per row keeps its shape, [batch, ...].
    """
    if task != "classification":
        feature = tf.cast(feature, tf.float32)
    if isinstance(feature, tf.SparseTensor):
        missing = tf.constant(math.nan if feature.dtype.is_floating else -1, feature.dtype)
        feature = tf.sparse.to_dense(tf.sparse.reset_shape(feature, [feature.dense_shape[0], 1]), missing)
    is_one = task != "multilabel" and feature.shape[1:].num_elements() in (None, 1)
    return tf.reshape(feature, [-1]) if is_one else feature


def mask_type(dtype: tf.DType) -> tf.DType:
    """Return the type of a mask in batches. A transform graph returns the classes of pixels as float32."""
    return tf.uint8 if dtype.is_floating else dtype


def _asserted(value: tf.Tensor, holds: tf.Tensor, *complaint: Any) -> tf.Tensor:
    """Return the value. Its computation fails with the message `complaint` unless `holds`."""
    with tf.control_dependencies([tf.debugging.Assert(holds, list(complaint))]):
        return tf.identity(value)


def _stages(graph: Graph, options: TrainOptions, packing: Packing, *, training: bool, served: bool) -> BatchFunctions:
    transformed = options.examples_are == "transformed"
    parsing_spec = graph.transformed_spec if transformed else graph.raw_spec

    def parse(records: tf.Tensor) -> dict[str, Any]:
        return tf.io.parse_example(records, parsing_spec)  # type: ignore[no-any-return]

    def transform(raw: dict[str, Any]) -> Labeled:
        features = dict(raw) if transformed else graph.transform(raw)
        for name in set(options.masks) & set(features):
            mask = features[name]
            if mask.dtype.is_floating:
                fits = tf.reduce_all((mask >= 0) & (mask <= tf.uint8.max))
                sound = _asserted(mask, fits, "masks must hold classes from 0 to 255, but one contains:", mask)
                features[name] = tf.cast(sound, mask_type(mask.dtype))
        labels = labels_of(features, options)
        for name in graph.labels:
            del features[name]
        weight = []
        if options.feed.weight:
            given = tf.cast(tf.reshape(features.pop(options.feed.weight), [-1]), tf.float32)
            is_sound = tf.reduce_all(tf.math.is_finite(given) & (given >= 0))
            wrong = "an example's weight is negative or not a number; FeedOptions.weight names the feature"
            weight = [_asserted(given, is_sound, wrong)]
        for name in image_names(features, options):
            features[name] = tf.cast(features[name], tf.uint8)
        packed = packing.pack(features)
        if not training:
            return _usable_rows(packed, labels.get("", labels), *weight)
        # Neither -1 nor NaN may reach the loss.
        for name, label in labels.items():
            named = options.outputs[name].feature
            wrong = f"a training record has no label {named}, or a class that Transform has not seen: remove it"
            labels[name] = _asserted(label, tf.reduce_all(_is_usable(label)), wrong)
        return packed, labels.get("", labels), *weight

    def normalise_batch(batch: Labeled) -> Labeled:
        return normalise_images(batch[0], options), *batch[1:]

    # The key identifies the work of `parse` and `transform`: the graph, and the options that they use.
    pixels = [*options.images, *(("mask", name) for name in options.masks)]
    tasks = [(name, one.feature, one.task) for name, one in options.outputs.items()]
    looked_at = graph.not_inputs, pixels, options.examples_are, tasks, sorted(parsing_spec.items())
    named = *looked_at, training, graph.fingerprint, sorted(packing.packs)
    key = hashlib.sha256(repr(named).encode()).hexdigest()
    functions = BatchFunctions(parse, transform, partial(_augment, options=options), normalise_batch, key)
    return replace(functions, check_map=check_servable) if served else functions


def check_served(names: Collection[str], served: Collection[str], where: str) -> None:
    """Raise InfeedError if batches contain a feature that serving does not compute."""
    if unknown := sorted(set(names) - set(served)):
        shown = ", ".join(sorted(served)[:_SHOWN]) + (", ..." if len(served) > _SHOWN else "")
        what = f"batches contain feature {unknown[0]!r}, which the serving signature cannot compute"
        raise InfeedError(what, where=where, do=f"use features of the transform graph: {shown}")


def check_servable(before: Mapping[str, Any], after: Mapping[str, Any], where: str) -> None:
    """Raise InfeedError unless the serving signature computes each feature with the same type and shape."""
    check_served(after, before, where)
    for name, value in after.items():
        was, now = (tf.type_spec_from_value(one) for one in (before[name], value))
        if was.dtype != now.dtype or not was.shape.is_compatible_with(now.shape):
            what = f"feature {name!r} is {now.dtype.name} {now.shape}, but {was.dtype.name} {was.shape} in serving"
            raise InfeedError(what, where=where, do="return the type and shape that Transform returns")


def _usable_rows(features: dict[str, Any], label: Any, *weight: tf.Tensor) -> Labeled:
    """Drop evaluation records with a label that is unknown to its loss. Evaluator counts them as wrong."""
    usable = [_is_usable(one) for one in tf.nest.flatten(label)]
    rows = tf.where(functools.reduce(tf.logical_and, usable))[:, 0]
    for name, value in features.items():
        if isinstance(value, tf.SparseTensor):
            features[name] = tf.gather(tf.RaggedTensor.from_sparse(value), rows).to_sparse()
        else:
            features[name] = tf.gather(value, rows)
    return features, *tf.nest.map_structure(lambda one: tf.gather(one, rows), (label, *weight))


def _is_usable(label: tf.Tensor) -> tf.Tensor:
    """Return whether each label is usable, bool [batch].

    Transform marks missing labels and unknown classes with NaN or -1.
    In a label of several integers, such as a mask, -1 may be a class that the loss ignores.
    """
    if label.shape.rank == 1:
        return tf.math.is_finite(label) if label.dtype.is_floating else label >= 0
    numbers = tf.reshape(label, [tf.shape(label)[0], math.prod(label.shape[1:])])
    return tf.reduce_all(tf.math.is_finite(tf.cast(numbers, tf.float32)), axis=1)


def _augment(batch: Labeled, number: tf.Tensor, workers: WorkerContext, options: TrainOptions) -> Labeled:
    change, scale = options.augment, options.normalise
    assert change is not None, "the plan augments only if the options define it"
    assert scale is not None, "TrainOptions requires normalise with augment"
    seed = tf.stack([tf.constant(options.feed.seed, tf.int64), number])
    features, label, *weight = batch
    mask = options.labels[0]  # the only label may be a mask, which moves with the images
    alone = not isinstance(label, dict)
    changed = augment_batch(
        {**features, mask: label} if alone else features,
        change,
        seed,
        images=image_names(features, options),
        masks=options.masks,
        boxes=options.boxes,
        normalise=scale,
        workers=workers,
    )
    return changed, changed.pop(mask) if alone else label, *weight


def _check_roles(graph: Graph, options: TrainOptions) -> None:
    """Raise InfeedError if a label of several classes is not one number per class, or objects cannot follow images."""
    for one in options.outputs.values():
        spec = graph.transformed_spec[one.feature]
        if one.task == "multilabel" and not (isinstance(spec, tf.io.FixedLenFeature) and len(spec.shape) == 1):
            do = f"declare it in Transform: Label({one.feature!r}, task='multilabel')"
            raise InfeedError(f"the label {one.feature!r} is not [classes]", where="task multilabel", do=do)
    specs = {
        name: tf.TensorSpec([None, *spec.shape], spec.dtype) if isinstance(spec, tf.io.FixedLenFeature) else None
        for name, spec in graph.transformed_spec.items()
    }
    is_theirs = bool(options.feed.maps)  # a user's function may return features with other names
    masks, boxes = ([name for name in of if name in specs or not is_theirs] for of in (options.masks, options.boxes))
    check_roles(specs, options.augment or Augment(), image_names(specs, options), masks, boxes)
