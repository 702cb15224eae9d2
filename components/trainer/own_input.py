"""A training fed by the user's own input function instead of by the Examples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import tensorflow as tf

from infeed.components import user_code
from infeed.components.errors import InfeedError
from infeed.components.feed.build import Feed
from infeed.components.feed.inputs import Input, InputSpec
from infeed.components.feed.options import SINGLE_WORKER, WorkerContext
from infeed.components.feed.plan import InputPlan
from infeed.components.feed.stages.batches import CallInputFunction, Prefetch
from infeed.components.trainer.data import image_names, make_feed, normalise_images
from infeed.components.trainer.graph import Graph
from infeed.components.trainer.options import TrainOptions

_SHOWN = 8  # feature names in a message, at most


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
    """What the user's input function gives, where the options name one, else the feed of TFX's file patterns.

    Args:
      num_steps, runs, devices: as of `make_feed`; `num_steps` is an epoch where neither the function nor its dataset
        tells how long one is.

    Raises:
      InfeedError: as `make_feed`, or the function gives what cannot be trained or evaluated on.
    """
    of_examples = partial(
        make_feed,
        patterns,
        graph,
        options,
        training=training,
        num_steps=num_steps,
        runs=runs,
        devices=devices,
        packed=True,
    )
    function, batch_size = options.input_fn, options.feed.batch_size
    if not function:
        return of_examples()
    part = workers.per_worker_batch_size(batch_size)
    signature = _signature(graph, options, part if training else None)
    seed, hparams = options.feed.seed, options.hparams
    spec = InputSpec(tuple(patterns), graph.path, training, part, workers, seed, hparams, signature)
    given = call_input_fn(function, spec)
    if given is None:
        return of_examples()

    def make(_: WorkerContext, start_step: int) -> tf.data.Dataset:
        batches = dataset_of(given, spec, start_step)
        finished = batches.map(lambda features, *rest: (normalise_images(features, options), *rest))
        return finished.prefetch(tf.data.AUTOTUNE)

    # What the function reads only the user knows; its code and its name are among the options.
    return Feed(plan_of(given, function, spec, batch_size, num_steps), make, list(patterns), given.close)


def _signature(graph: Graph, options: TrainOptions, batch: int | None) -> tuple[dict[str, Any], Any]:
    """TypeSpecs of what the transform graph gives, as the feed gives it before it normalizes."""
    given = graph.transformed_spec
    specs = {name: _type_spec(spec, batch) for name, spec in given.items() if name not in graph.not_inputs}
    label = tf.TensorSpec([batch], given[graph.label].dtype)
    images = {name: tf.TensorSpec(specs[name].shape, tf.uint8) for name in image_names(specs, options)}
    return specs | images, label


def _type_spec(spec: Any, batch: int | None) -> tf.TypeSpec:
    if isinstance(spec, tf.io.FixedLenFeature):
        return tf.TensorSpec([batch, *spec.shape], spec.dtype)
    if isinstance(spec, tf.io.RaggedFeature):
        return tf.RaggedTensorSpec([batch, None], spec.dtype, row_splits_dtype=spec.row_splits_dtype)
    size = tf.TensorShape(spec.size) if isinstance(spec, tf.io.SparseFeature) else [None]
    return tf.SparseTensorSpec([batch, *size], spec.dtype)


def call_input_fn(function: str, spec: InputSpec) -> Input | None:
    """What the user's function returns for `spec`; None, for evaluation, leaves it to the feed.

    Raises:
      InfeedError: there is no such function, or it gives something that cannot be trained or evaluated on.
    """
    given = user_code.load(function, "input_fn")(spec)
    if given is None and not spec.training:
        return None
    given = Input(given) if isinstance(given, tf.data.Dataset) else given
    if not isinstance(given, Input):
        raise InfeedError(
            f"the function returned a {type(given).__name__}",
            where=function,
            do="return a tf.data.Dataset of batches, or infeed.components.Input(...)",
        )
    _check_batches(given.dataset().element_spec, spec, function)
    if not spec.training:
        _check_evaluation(given, spec, function)
    return given


def check_same_length(batches: Sequence[int], kind: str, function: str) -> None:
    """Raises InfeedError unless all workers have as many batches: else some would wait for ever for the others.

    Args:
      batches: of each worker.
      kind: what they are for.
    """
    if len(set(batches)) > 1:
        raise InfeedError(
            f"the workers have different numbers of {kind} batches: {_short([str(one) for one in batches])}",
            where=function,
            do="give each as many, by dropping or padding the rest, or say Input(batches, steps_per_epoch=...)",
        )


def plan_of(given: Input, function: str, spec: InputSpec, global_batch: int, num_steps: int | None) -> InputPlan:
    """The plan as it is logged and reported.

    Raises:
      InfeedError: nobody knows how long an epoch is.
    """
    known = int(given.batches.cardinality()) if isinstance(given.batches, tf.data.Dataset) else 0
    steps = given.steps_per_epoch or (known if known > 0 else num_steps)
    if spec.training and not steps:
        raise InfeedError(
            "nobody knows how many batches make an epoch",
            where=function,
            do="return Input(batches, steps_per_epoch=...), or set TrainArgs.num_steps",
        )
    taken = CallInputFunction(function)
    return InputPlan(
        tier="input_fn",
        reason=taken.does,
        shards=(),
        records=(steps or 0) * global_batch,
        batch_size=global_batch,
        steps_per_epoch=steps or 1,
        seed=spec.seed,
        training=spec.training,
        stages=(taken, Prefetch("last, so that it overlaps the above")),
    )


def dataset_of(given: Input, spec: InputSpec, start_step: int) -> tf.data.Dataset:
    """The batches: endless in training, and checked to be whole ones; once through in evaluation."""
    if not spec.training:
        assert isinstance(given.batches, tf.data.Dataset), "checked when the function was called"
        return given.batches
    complaint = f"a batch of the input function has other than {spec.batch_size} examples; drop or pad short ones"

    def checked(features: Any, label: tf.Tensor, *weight: tf.Tensor) -> Any:
        with tf.control_dependencies([tf.debugging.assert_equal(tf.shape(label)[0], spec.batch_size, complaint)]):
            return (features, tf.identity(label), *weight)

    return given.dataset(start_step).map(checked, num_parallel_calls=tf.data.AUTOTUNE)


def _check_batches(element: Any, spec: InputSpec, function: str) -> None:
    features, label = spec.signature
    if not (isinstance(element, tuple) and len(element) in (2, 3) and isinstance(element[0], dict)):
        raise InfeedError(
            f"a batch is {_short(element)}",
            where=function,
            do="give (features, label) or (features, label, weight), the features as a dict by name",
        )
    unknown = sorted(set(element[0]) - set(features))
    if unknown:
        raise InfeedError(
            f"a batch has the feature {unknown[0]!r}, which nobody makes when the model is served",
            where=function,
            do=f"give what the transform graph gives: {_short(sorted(features))}",
        )
    for name, given, wanted in [
        *((n, given, features[n]) for n, given in element[0].items()),
        ("label", element[1], label),
    ]:
        if given.dtype != wanted.dtype:
            raise InfeedError(
                f"{name!r} is {given.dtype.name}",
                where=function,
                do=f"give it as {wanted.dtype.name}, as Transform does",
            )


def _check_evaluation(given: Input, spec: InputSpec, function: str) -> None:
    """Raises InfeedError where evaluation would not end, or where workers may have more batches than others."""
    if not isinstance(given.batches, tf.data.Dataset) or given.batches.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise InfeedError("the evaluation data has no end", where=function, do="return a finite tf.data.Dataset")
    if spec.workers.count > 1 and given.batches.cardinality() == tf.data.UNKNOWN_CARDINALITY:
        raise InfeedError(
            f"nobody knows whether all {spec.workers.count} workers evaluate the same number of batches",
            where=function,
            do="apply tf.data.experimental.assert_cardinality, or return None to evaluate on the Examples",
        )


def _short(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value[:_SHOWN]) + (", ..." if len(value) > _SHOWN else "")
    return str(value)
