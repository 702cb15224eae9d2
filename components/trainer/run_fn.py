"""Training as TFX's Trainer calls it: from features to a saved model and `input_profile.json`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from infeed.components.base import progress
from infeed.components.feed.shards import corrupt_record_context
from infeed.components.feed.user_maps import map_error_context
from infeed.components.trainer import cluster, distribution, loop, warm_start
from infeed.components.trainer.callbacks import CallbackSpec, make_callbacks
from infeed.components.trainer.checkpoint import Checkpoints, export_error_context, remove
from infeed.components.trainer.class_weights import with_class_weights
from infeed.components.trainer.cluster import OutputDirs, chief_writes
from infeed.components.trainer.data import packing_of
from infeed.components.trainer.export import ServingModel
from infeed.components.trainer.model import ModelSpec, make_model
from infeed.components.trainer.model_inputs import ModelInputs
from infeed.components.trainer.profile import write_profile
from infeed.components.trainer.training import NaNError, Training, check_trained, features_of, model_spec, prepare

_log = logging.getLogger(__name__)


def run_fn(fn_args: Any) -> None:
    """Train, export and report. Every worker calls this function, and the chief's output is kept.

    Args:
      fn_args: TFX's FnArgs. `custom_config["infeed"]` holds `TrainOptions(...).to_dict()`.

    Raises:
      InfeedError: an option, the data, the model function or the cluster is invalid.
    """
    training = prepare(fn_args, own_loop=True)
    feeds = training.train, training.evaluation
    with (
        closing(feeds[0]),
        closing(feeds[1]),
        chief_writes(training.places, training.workers) as places,
    ):
        shards = [shard for one in feeds for shard in one.plan.shards]
        with corrupt_record_context(shards), map_error_context(), cluster.lost_process_context():
            try:
                fitted, (model, inputs) = train(training, places, fn_args)
            except NaNError:
                _forget(training, places)  # otherwise it would be resumed
                raise
        with export_error_context(places.model, training.places.checkpoints):
            progress.report("exporting the model")
            ServingModel(model, inputs, training.graph, training.options).save(places.model)
        if fitted:
            write_profile(training, fitted, places.run)
        distribution.barrier(training.strategy)  # no worker ends before the model is there
        _forget(training, places)


def _forget(training: Training, places: OutputDirs) -> None:
    """Remove the checkpoints of a training that has ended."""
    if training.options.checkpoint_seconds is not None:
        remove(places.checkpoints)
    if training.mirror and training.workers.index == 0:
        training.mirror.remove()


def train(
    training: Training, places: OutputDirs, fn_args: Any
) -> tuple[loop.Fitted | None, tuple[keras.Model, ModelInputs]]:
    """Return the trained model and, if this process trained it, how."""
    if training.options.backend == "jax":
        from infeed.components.trainer.on_jax import process

        return None, process.train(fn_args, partial(_build, training))
    fitted, inputs = fit(training, places)
    return fitted, (fitted.model, inputs)


def fit(training: Training, places: OutputDirs) -> tuple[loop.Fitted, ModelInputs]:
    """Build and train the model, or resume a killed training. Return the trained model and its inputs."""
    options, strategy, plan = training.options, training.strategy, training.train.plan
    checkpoints = training.checkpoints(Checkpoints, places)
    start = checkpoints.start_step if checkpoints else 0

    # A resumed training reads from its step on, so it sees the batches that the killed one would have seen.
    batches = training.train.batches(workers=training.workers, start_step=start)
    dataset = with_class_weights(batches, training.class_weights)
    evaluation = training.evaluation.dataset(workers=training.workers).take(training.eval_steps or -1)
    if distribution.strategy_name(strategy) == "tpu":
        # XLA would refuse them minutes later, when it compiles the step, without the name of the feature.
        distribution.check_for_tpu(dataset.element_spec[0])
    progress.report("building the model and tracing its steps")
    _log.info("input pipeline of training:\n%s", plan.describe())
    # The model is built after the feed, because its inputs have the shapes and types of the batches.
    spec = model_spec(dataset, training.graph, options, training.steps)
    features = features_of(dataset, evaluation, packing_of(training.graph, options))
    model, inputs = _build(training, spec, features, resumes=bool(start))
    if start:
        _log.info("training resumes after step %s, from the checkpoint in %s", start, training.places.checkpoints)
    per_call = options.steps_per_call or loop.steps_per_call(model)
    callbacks = make_callbacks(options, CallbackSpec(places.run, training.workers.index == 0, options.hparams))
    fitted = loop.fit(
        model,
        strategy,
        dataset,
        evaluation,
        training.schedule(per_call),
        callbacks,
        checkpoints=checkpoints,
        start_step=start,
    )
    check_trained(training, model, callbacks)
    return fitted, inputs


def _build(
    training: Training, spec: ModelSpec, features: Mapping[str, tf.TypeSpec], resumes: bool
) -> tuple[keras.Model, ModelInputs]:
    options, graph = training.options, training.graph
    base_model = None if resumes else training.base_model
    if base_model and not tf.io.gfile.exists(base_model):  # PushedModel's output is empty before the first push
        _log.info("there is no earlier model at %s: training starts from random weights", base_model)
        base_model = None
    build = partial(make_model, options, features=features, packing=packing_of(graph, options))
    starts: list[warm_start.Start] = []
    if base_model:
        with warm_start.may_start_anew(options.other_base_model):
            starts = warm_start.starts_of(base_model, graph, spec, build)
    with training.strategy.scope():
        # As late as possible, because a background thread of a library may use the same generator.
        keras.utils.set_random_seed(options.feed.seed)
        model, inputs = build(spec)
        if base_model and starts:
            with warm_start.may_start_anew(options.other_base_model):
                warm_start.assign(model, starts, base_model)
    if inputs.unused and training.workers.index == 0:
        _log.warning("features that the model ignores: %s", ", ".join(inputs.unused))
    return model, inputs
