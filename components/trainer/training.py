"""Around the loop: options, cluster, transform graph and feeds before the first step, and a check after the last one.

`run_fn` calls `prepare`, which returns a `Training`. `loop` trains its model, and `steps` has the graphs of the steps.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import keras
import tensorflow as tf

from infeed.components.base import schema, user_code
from infeed.components.base.errors import InfeedError
from infeed.components.feed.build import Batches, Feed
from infeed.components.feed.options import WorkerContext
from infeed.components.trainer import cluster, distribution
from infeed.components.trainer.checkpoint import CheckpointMirror, Checkpoints, checkpoint_folder
from infeed.components.trainer.class_weights import ClassWeights, class_weights
from infeed.components.trainer.cluster import OutputDirs
from infeed.components.trainer.data import packing_of
from infeed.components.trainer.graph import Graph, open_graph
from infeed.components.trainer.loop import Schedule
from infeed.components.trainer.model import ModelSpec, OutputSpec
from infeed.components.trainer.options import CUSTOM_CONFIG_KEY, Backend, TrainOptions
from infeed.components.trainer.own_input import check_same_length, make_input
from infeed.components.trainer.packing import Packing

C = TypeVar("C", bound=Checkpoints)
_BATCHES = 100  # maximum batches that are searched for non-finite values
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Training:
    """State of a training before its first step."""

    options: TrainOptions
    workers: WorkerContext
    strategy: tf.distribute.Strategy
    graph: Graph
    train: Feed
    evaluation: Feed
    max_steps: int | None
    eval_steps: int | None
    places: OutputDirs
    class_weights: ClassWeights = field(default_factory=dict)
    base_model: str | None = None
    mirror: CheckpointMirror | None = None

    @property
    def epochs(self) -> int:
        """Number of epochs. If TFX sets a number of steps, training ends at exactly that step."""
        return -(-self.max_steps // self.train.plan.steps_per_epoch) if self.max_steps else self.options.epochs

    @property
    def steps(self) -> int:
        """Planned steps. Early stopping may end training earlier."""
        return self.max_steps or self.options.epochs * self.train.plan.steps_per_epoch

    def schedule(self, steps_per_call: int) -> Schedule:
        plan = self.train.plan
        return Schedule(
            batch_size=plan.batch.size,
            steps_per_epoch=plan.steps_per_epoch,
            steps_per_call=steps_per_call,
            epochs=self.epochs,
            max_steps=self.max_steps,
        )

    def checkpoints(self, kind: type[C], places: OutputDirs) -> C | None:
        """Return the callback that writes checkpoints to `places`. None if the options disable them."""
        if (seconds := self.options.checkpoint_seconds) is None:
            return None
        # Only the chief uploads: what other workers write is temporary.
        upload = self.mirror.upload if self.mirror and self.workers.index == 0 else None
        return kind(self.places.checkpoints, places.checkpoints, seconds, self.strategy, upload)


def prepare(fn_args: Any, *, runs: int = 1, own_loop: bool = False, backend: Backend = "tensorflow") -> Training:
    """Read options, cluster and graph, and plan the feeds.

    A search trains `runs` times. With `own_loop`, training runs in `loop.fit`, which accepts row numbers in addition
    to batches. `backend` is the Keras backend that this process needs.
    """
    check_backend(backend)
    options = read_options(fn_args)
    cluster.adopt_cluster_spec()
    if options.backend == "jax":
        workers, strategy, own_loop = cluster.jax_workers(), distribution.without_accelerators(), False
    else:
        workers = cluster.worker_context()
        # Before any TensorFlow operation: afterwards, TensorFlow cannot set up communication between workers.
        strategy = distribution.make_strategy(options.strategy, workers)
    distribution.check_batch_size(options.feed.batch_size, strategy)
    distribution.check_xla(options.xla, strategy)
    graph = open_graph(fn_args.transform_graph_path, fn_args.schema_path, options.labels, options.feed.weight)
    max_steps = fn_args.train_steps
    devices = distribution.gathering_devices(strategy) if own_loop else ()
    make = partial(make_input, graph=graph, options=options, workers=workers, runs=runs)
    train = make(fn_args.train_files, training=True, num_steps=max_steps, devices=devices)
    evaluation = make(fn_args.eval_files, training=False)
    # Workers with fewer steps would leave the others waiting forever in an exchange of gradients.
    if options.input_fn and workers.count > 1 and options.backend == "tensorflow":
        for kind, feed in (("training", train), ("evaluation", evaluation)):
            check_same_length(distribution.all_gather(feed.plan.steps_per_epoch, strategy), kind, options.input_fn)
    # A change of data, options or code changes the training, so its checkpoints must not be resumed.
    code = [user_code.digest(function, name) for name, function in options.user_functions.items()]
    base = options.checkpoint_dir or os.path.join(fn_args.model_run_dir or "", "checkpoints")
    identities = train.identity, evaluation.identity
    args = max_steps, fn_args.eval_steps, fn_args.base_model
    checkpoints = checkpoint_folder(base, options.to_dict(), identities, *args, code)
    mirror = CheckpointMirror.of(checkpoints) if options.checkpoint_seconds is not None else None
    return Training(
        options=options,
        workers=workers,
        strategy=strategy,
        graph=graph,
        train=train if train.plan.tier == "device" else train.with_stages(*distribution.device_steps(strategy)),
        evaluation=evaluation,
        max_steps=max_steps,
        eval_steps=fn_args.eval_steps,
        places=OutputDirs(fn_args.serving_model_dir, fn_args.model_run_dir, mirror.local if mirror else checkpoints),
        class_weights=class_weights(options, graph, fn_args.train_files),
        base_model=fn_args.base_model,
        mirror=mirror,
    )


def check_backend(needed: Backend = "tensorflow") -> None:
    """Raise InfeedError unless Keras runs on this backend. TensorFlow also exports what JAX has trained."""
    if (backend := keras.backend.backend()) != needed:
        what = f"the Trainer does not support Keras with the backend {backend}"
        do = f"set KERAS_BACKEND={needed}; to train on JAX, set train: {{backend: jax}}"
        raise InfeedError(what, where="KERAS_BACKEND", do=do)


def read_options(fn_args: Any) -> TrainOptions:
    """Return the options from the component, with hyperparameters from a Tuner, if any."""
    given = (fn_args.custom_config or {}).get(CUSTOM_CONFIG_KEY)
    if given is None:
        do = "use infeed.components.trainer.Trainer, or pass TrainOptions(...).to_dict() there"
        raise InfeedError("the Trainer has no options", where=f"custom_config[{CUSTOM_CONFIG_KEY!r}]", do=do)
    options = schema.read(TrainOptions, given, "TrainOptions")
    tuned = (fn_args.hyperparameters or {}).get("values", {})
    return dataclasses.replace(options, hparams={**options.hparams, **tuned})


def model_spec(dataset: Batches, graph: Graph, options: TrainOptions, steps: int = 0) -> ModelSpec:
    """Return the argument of the model function."""
    features = packing_of(graph, options).unpack(dataset.element_spec[0])
    # Sorted, because the order in the graph varies, and a model that joins features must match its saved weights.
    inputs = {name: tf.TensorSpec(features[name].shape[1:], features[name].dtype, name) for name in sorted(features)}
    sizes = {name: size for name, size in graph.vocabulary_sizes.items() if name in inputs}
    outputs = {name: OutputSpec(one.task, graph.classes_of(one.feature)) for name, one in options.outputs.items()}
    return ModelSpec.of(inputs, outputs, sizes, options.hparams, steps)


def features_of(train: Batches, evaluation: tf.data.Dataset, packing: Packing) -> dict[str, tf.TypeSpec]:
    """Return the features that both specs of batches have, [batch, ...]. An input function may return only some."""
    specs, also = (packing.unpack(batches.element_spec[0]) for batches in (train, evaluation))
    return {name: spec for name, spec in specs.items() if name in also}


class NaNError(InfeedError):
    """Training ended with a NaN loss or NaN weights."""

    def __reduce__(self) -> tuple[object, ...]:
        return partial(NaNError, where=self.where, do=self.do), (self.what,)


def check_trained(training: Training, model: keras.Model, callbacks: Sequence[keras.callbacks.Callback]) -> None:
    """Raise NaNError if the weights are NaN, or the last loss is, unless a callback restored earlier weights."""
    losses = model.history.history.get("loss", [])
    first = next((number for number, loss in enumerate(losses, 1) if math.isnan(loss)), None)
    since = f"the loss is NaN from epoch {first} of {len(losses)} on" if first else ""
    wrong = []
    for weight in model.trainable_weights:
        value = tf.convert_to_tensor(keras.ops.convert_to_numpy(weight))
        if value.dtype.is_floating and bool(tf.reduce_any(tf.math.is_nan(value))):
            wrong.append(weight.path)
    diverged = bool(losses) and math.isnan(losses[-1])
    if wrong or (diverged and not any(getattr(one, "restore_best_weights", False) for one in callbacks)):
        what = since or f"{len(wrong)} weights have NaN, such as {wrong[0]}"
        do = "lower the learning rate, or clip the gradients: keras.optimizers.Adam(1e-4, clipnorm=1.0)"
        if names := _not_finite(training):
            do = f"the batches contain NaN or infinite values in {', '.join(names)}: fill or clean them in Transform"
        what += ", so the model would predict NaN and is not exported"
        raise NaNError(what, where=training.options.model_fn, do=do)
    if diverged:
        _log.warning("%s; the model has the weights of an earlier epoch", since)


def _not_finite(training: Training) -> list[str]:
    """Return the features, `the label` and `the weight` with non-finite values in the first batches."""
    packing, found = packing_of(training.graph, training.options), dict[str, None]()
    for features, *others in itertools.islice(training.train.dataset(workers=training.workers), _BATCHES):
        named = {**packing.unpack(features), **dict(zip(("the label", "the weight"), others, strict=False))}
        parts = ((name, part) for name, one in named.items() for part in tf.nest.flatten(one, expand_composites=True))
        found |= dict.fromkeys(
            name for name, part in parts if part.dtype.is_floating and not tf.reduce_all(tf.math.is_finite(part))
        )
    return list(found)
