"""Input of a training from the user's `input_fn` instead of the Examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError
from infeed.components.feed.build import Feed
from infeed.components.feed.inputs import Input, InputSpec
from infeed.components.feed.options import SINGLE_WORKER, WorkerContext
from infeed.components.feed.plan import InputPlan
from infeed.components.feed.stages.batches import CallInputFunction, Prefetch
from infeed.components.trainer.data import check_served, image_names, make_feed, mask_type, normalise_images
from infeed.components.trainer.graph import Graph
from infeed.components.trainer.options import TrainOptions

_SHOWN = 8  # maximum number of workers in a message


def make_input(
    patterns: Sequence[str],
    graph: Graph,
    options: TrainOptions,
    *,
    training: bool,
    workers: WorkerContext = SINGLE_WORKER,
    num_steps: int | None = None,
    runs: int = 1,
    devices: tuple[str, ...] = (),
) -> Feed:
    """Return the feed of the user's input function, or of the file patterns if no function is set.

    The arguments and errors are those of `make_feed`. `num_steps` is the length of an epoch if neither the function nor
    its dataset defines one. Raise InfeedError if the function returns unusable data.
    """

    function, batch = options.input_fn, options.feed.batch(workers)
    if function:
        part, signature = batch.part, _signature(graph, options, batch.part if training else None)
        spec = InputSpec(tuple(patterns), graph.path, training, part, workers, batch.seed, options.hparams, signature)
        if given := call_input_fn(function, spec):
            # The files that the function reads are unknown. The options contain its code and name.
            return _feed_of(given, function, spec, options, num_steps)
    return make_feed(
        patterns, graph, options, training=training, num_steps=num_steps, runs=runs, devices=devices, packed=True
    )


def _signature(graph: Graph, options: TrainOptions, batch: int | None) -> tuple[dict[str, Any], Any]:
    """Return the TypeSpecs of the feed's batches before it normalizes images."""
    given = graph.transformed_spec
    specs = {name: _type_spec(spec, batch) for name, spec in given.items() if name not in graph.not_inputs}
    masks = {
        name: tf.TensorSpec([batch, *given[name].shape], mask_type(given[name].dtype))
        for name in options.masks
        if name in given
    }
    labels = {}
    for name, one in options.outputs.items():
        label = given[one.feature]
        shape = label.shape if one.task == "multilabel" else ()
        labels[name] = masks.get(one.feature, tf.TensorSpec([batch, *shape], label.dtype))
    images = {name: tf.TensorSpec(specs[name].shape, tf.uint8) for name in image_names(specs, options)}
    inputs = specs | {name: spec for name, spec in masks.items() if name not in graph.labels} | images
    return inputs, labels.get("", labels)


def _type_spec(spec: Any, batch: int | None) -> tf.TypeSpec:
    if isinstance(spec, tf.io.FixedLenFeature):
        return tf.TensorSpec([batch, *spec.shape], spec.dtype)
    if isinstance(spec, tf.io.RaggedFeature):
        return tf.RaggedTensorSpec([batch, None], spec.dtype, row_splits_dtype=spec.row_splits_dtype)
    size = tf.TensorShape(spec.size) if isinstance(spec, tf.io.SparseFeature) else [None]
    return tf.SparseTensorSpec([batch, *size], spec.dtype)


def check_same_length(batches: Sequence[int], kind: str, function: str) -> None:
    """Raise InfeedError if workers have different numbers of batches, because some would wait forever."""
    if len(set(batches)) > 1:
        shown = ", ".join(map(str, batches[:_SHOWN])) + (", ..." if len(batches) > _SHOWN else "")
        do = "drop or pad batches so that the numbers agree, or return Input(batches, steps_per_epoch=...)"
        raise InfeedError(f"the workers have different numbers of {kind} batches: {shown}", where=function, do=do)


def _feed_of(given: Input, function: str, spec: InputSpec, options: TrainOptions, num_steps: int | None) -> Feed:
    """Return the feed of an input: endless batches of checked size in training, one pass in evaluation.

    Raise InfeedError if the number of batches per epoch is unknown.
    """
    known = int(given.batches.cardinality()) if isinstance(given.batches, tf.data.Dataset) else 0
    steps = given.steps_per_epoch or (known if known > 0 else num_steps)
    if spec.training and not steps:
        do = "return Input(batches, steps_per_epoch=...), or set TrainArgs.num_steps"
        raise InfeedError("the number of batches per epoch is unknown", where=function, do=do)
    taken, batch = CallInputFunction(function), options.feed.batch()
    plan = InputPlan(
        tier="input_fn",
        reason=taken.does,
        shards=(),
        records=(steps or 0) * batch.size,
        batch=batch,
        steps_per_epoch=steps or 1,
        training=spec.training,
        stages=(taken, Prefetch("last, so that earlier stages overlap with training")),
    )
    complaint = f"the input function must return batches of {spec.batch_size} examples; drop or pad shorter batches"

    def checked(features: Any, label: Any, *weight: tf.Tensor) -> Any:
        sizes = [tf.shape(one)[0] for one in tf.nest.flatten(label)]
        with tf.control_dependencies([tf.debugging.assert_equal(sizes, spec.batch_size, complaint)]):
            return (features, tf.nest.map_structure(tf.identity, label), *weight)

    def make(_: WorkerContext, start_step: int) -> tf.data.Dataset:
        batches: Any = given.batches
        if spec.training:
            batches = given.dataset(start_step).map(checked, num_parallel_calls=tf.data.AUTOTUNE)
        finished = batches.map(lambda features, *rest: (normalise_images(features, options), *rest))
        return finished.prefetch(tf.data.AUTOTUNE)

    return Feed(plan, make, list(spec.files), given.close)


def call_input_fn(function: str, spec: InputSpec) -> Input | None:
    """Call the user's function. If it returns None for evaluation, the feed reads the Examples.

    Raise InfeedError if the function does not exist, or returns unusable data.
    """
    given = user_code.load(function, "input_fn")(spec)
    if given is None and not spec.training:
        return None
    given = Input(given) if isinstance(given, tf.data.Dataset) else given
    if not isinstance(given, Input):
        do = "return a tf.data.Dataset of batches, or infeed.components.Input(...)"
        raise InfeedError(f"the function returned a {type(given).__name__}", where=function, do=do)
    _check_batches(given.dataset().element_spec, spec, function)
    if spec.training:
        return given
    batches = given.batches
    if not isinstance(batches, tf.data.Dataset) or batches.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise InfeedError("the evaluation dataset is endless", where=function, do="return a finite tf.data.Dataset")
    # Workers with different numbers of batches would wait for each other forever.
    if spec.workers.count > 1 and batches.cardinality() == tf.data.UNKNOWN_CARDINALITY:
        what = f"the number of evaluation batches is unknown, but {spec.workers.count} workers need equal numbers"
        do = "apply tf.data.experimental.assert_cardinality, or return None to evaluate on the Examples"
        raise InfeedError(what, where=function, do=do)
    return given


def _check_batches(element: Any, spec: InputSpec, function: str) -> None:
    """Raise InfeedError unless batches have the form, the names and the types that training takes."""
    features, labels = spec.signature
    if not (isinstance(element, tuple) and len(element) in (2, 3) and isinstance(element[0], dict)):
        do = "return (features, label) or (features, label, weight), with features as a dict by name"
        raise InfeedError(f"the dataset contains {element}", where=function, do=do)
    given, label = element[:2]
    check_served(given, features, function)
    pairs = [(name, one, features[name]) for name, one in given.items()]
    if not isinstance(labels, dict):
        pairs.append(("label", label, labels))
    elif isinstance(label, dict) and label.keys() == labels.keys():
        pairs += [(name, label[name], one) for name, one in labels.items()]
    else:
        what = f"the label is {sorted(label) if isinstance(label, dict) else label}"
        raise InfeedError(what, where=function, do=f"return a dict with the labels {', '.join(sorted(labels))}")
    for name, one, wanted in pairs:
        if one.dtype != wanted.dtype:
            do = f"convert it to {wanted.dtype.name}, the type that Transform returns"
            raise InfeedError(f"{name!r} is {one.dtype.name}", where=function, do=do)
