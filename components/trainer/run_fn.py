"""The training itself, as TFX's Trainer calls it: features in, saved model and `input_profile.json` out."""

from __future__ import annotations

import dataclasses
import logging
import os
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from infeed.components import user_code
from infeed.components.errors import InfeedError
from infeed.components.feed.corrupt import naming_corrupt_records
from infeed.components.feed.options import Workers
from infeed.components.trainer import devices, loop, parameter_server
from infeed.components.trainer.asynchronous import PerWorker
from infeed.components.trainer.callbacks import CallbackSpec, make_callbacks
from infeed.components.trainer.checkpoint import Checkpoints, checkpoint_folder, remove, saved_step
from infeed.components.trainer.cluster import (
    Places,
    adopt_cluster_spec,
    chief_writes,
    is_coordinated,
    meet,
    of_all_workers,
    workers_here,
)
from infeed.components.trainer.data import Feed
from infeed.components.trainer.epochs import measure_ceiling
from infeed.components.trainer.export import ServingModel
from infeed.components.trainer.graph import TransformGraph
from infeed.components.trainer.model import ModelSpec, build_model
from infeed.components.trainer.options import CUSTOM_CONFIG_KEY, TrainOptions
from infeed.components.trainer.own_input import check_same_length, make_input
from infeed.components.trainer.profile import write_profile
from infeed.components.trainer.strategy import check_batch_size, check_for_tpu, check_xla, describe, make_strategy
from infeed.components.trainer.weights import weighted

_log = logging.getLogger(__name__)


def run_fn(fn_args: Any) -> None:
    """Trains, exports and reports. Every worker calls it; what the chief writes is kept.

    Args:
      fn_args: TFX's FnArgs; `custom_config["infeed"]` holds `TrainOptions.to_dict()`.

    Raises:
      InfeedError: an option, the data, the model function or the cluster is wrong.
    """
    if _only_serves(fn_args):
        parameter_server.serve(fn_args.serving_model_dir)
        return
    training = prepare(fn_args)
    inputs = training.train, training.evaluation
    with closing(inputs[0]), closing(inputs[1]), chief_writes(training.places, training.workers) as places:
        shards = [shard for one in inputs for shard in one.plan.shards]
        with naming_corrupt_records(shards), parameter_server.naming_lost_processes():
            fitted = fit(training, places)
        ServingModel(fitted.model, training.graph, training.options).save(places.model)
        report(training, fitted, places.run)
        meet(training.strategy)  # no worker ends before the model is there
        remove(places.checkpoints)


@dataclass(frozen=True)
class Training:
    """What stands before the first step."""

    options: TrainOptions
    workers: Workers
    strategy: tf.distribute.Strategy
    graph: TransformGraph
    train: Feed
    evaluation: Feed
    max_steps: int | None
    eval_steps: int | None
    places: Places

    @property
    def epochs(self) -> int:
        """TFX's own way to say how long is a number of steps; training then ends at exactly that step."""
        return -(-self.max_steps // self.train.plan.steps_per_epoch) if self.max_steps else self.options.epochs


def prepare(fn_args: Any, *, runs: int = 1) -> Training:
    """Reads options, cluster and graph, and plans the feeds.

    Args:
      runs: how often the whole training is gone through, as by the trials of a search.
    """
    options = read_options(fn_args)
    adopt_cluster_spec()
    workers = parameter_server.chief_of() if options.strategy == "parameter_server" else workers_here()
    strategy = make_strategy(options.strategy, workers)
    check_batch_size(options.feed.batch_size, strategy)
    check_xla(options.xla, strategy)
    with strategy.scope() if is_coordinated(strategy) else nullcontext():  # every worker needs the graph's tables
        graph = TransformGraph(fn_args.transform_graph_path, options.label, options.feed.weight)
    max_steps = fn_args.train_steps
    train = make_input(
        fn_args.train_files, graph, options, training=True, workers=workers, num_steps=max_steps, runs=runs
    )
    evaluation = make_input(fn_args.eval_files, graph, options, training=False, workers=workers, runs=runs)
    if options.input_fn and workers.count > 1:
        for kind, feed in (("training", train), ("evaluation", evaluation)):
            check_same_length(of_all_workers(feed.plan.steps_per_epoch, strategy), kind, options.input_fn)
    return Training(
        options=options,
        workers=workers,
        strategy=strategy,
        graph=graph,
        train=train.then(*devices.steps(strategy)),
        evaluation=evaluation,
        max_steps=max_steps,
        eval_steps=fn_args.eval_steps,
        places=Places(
            fn_args.serving_model_dir,
            fn_args.model_run_dir,
            _checkpoints(fn_args, options, train.identity, evaluation.identity),
        ),
    )


def _only_serves(fn_args: Any) -> bool:
    adopt_cluster_spec()
    return read_options(fn_args).strategy == "parameter_server" and parameter_server.only_serves()


def read_options(fn_args: Any) -> TrainOptions:
    """The options that the component passed on, with what a Tuner found on top of the hyperparameters."""
    given = (fn_args.custom_config or {}).get(CUSTOM_CONFIG_KEY)
    if given is None:
        raise InfeedError(
            "the Trainer was given no options",
            where=f"custom_config[{CUSTOM_CONFIG_KEY!r}]",
            do="Use infeed.components.trainer.Trainer, or pass TrainOptions(...).to_dict() there.",
        )
    options = TrainOptions.from_dict(given)
    tuned = (fn_args.hyperparameters or {}).get("values", {})
    return dataclasses.replace(options, hparams={**options.hparams, **tuned})


def fit(training: Training, places: Places) -> loop.Fitted:
    """Builds the model and trains it, from where a killed training left off."""
    options, strategy, graph, plan = training.options, training.strategy, training.graph, training.train.plan
    start, checkpoints = 0, None
    if options.checkpoint_seconds is not None:
        start = saved_step(training.places.checkpoints)
        checkpoints = Checkpoints(training.places.checkpoints, places.checkpoints, options.checkpoint_seconds, strategy)
    shares = PerWorker(
        training.workers.count, partial(_train_batches, training, start), partial(_eval_batches, training)
    )
    dataset = shares.train(training.workers)
    spec = model_spec(dataset, graph, options)
    if describe(strategy) == "tpu":
        check_for_tpu(dataset.element_spec[0])
    _log.info("how training is fed:\n%s", plan.describe())
    with strategy.scope():
        # At the last moment: a thread that some library left running may draw from the same generator.
        keras.utils.set_random_seed(options.feed.seed)
        model = build_model(options, spec)
    return loop.fit(
        model,
        strategy,
        dataset,
        shares.evaluation(training.workers),
        batch_size=plan.batch_size,
        steps_per_epoch=plan.steps_per_epoch,
        steps_per_call=options.steps_per_call or loop.steps_per_call(model),
        epochs=training.epochs,
        max_steps=training.max_steps,
        callbacks=make_callbacks(options, CallbackSpec(places.run, training.workers.index == 0, options.hparams)),
        checkpoints=checkpoints,
        start_step=start,
        per_worker=shares if is_coordinated(strategy) else None,
    )


def _train_batches(training: Training, start_step: int, workers: Workers) -> tf.data.Dataset:
    batches = training.train.dataset(workers=workers, start_step=start_step)
    return weighted(batches, training.options.class_weight, training.graph.classes)


def _eval_batches(training: Training, workers: Workers) -> tf.data.Dataset:
    return training.evaluation.dataset(workers=workers).take(training.eval_steps or -1)


def model_spec(dataset: tf.data.Dataset, graph: TransformGraph, options: TrainOptions) -> ModelSpec:
    """What the model function is told."""
    features = dataset.element_spec[0]
    # In order of name: the graph gives them in any order, and a model that joins them must find its weights again.
    inputs = {name: tf.TensorSpec(features[name].shape[1:], features[name].dtype, name) for name in sorted(features)}
    sizes = {
        name: graph.output.vocabulary_size_by_name(name)
        for name in inputs
        if graph.output.vocabulary_file_by_name(name)
    }
    return ModelSpec(inputs, options.task, graph.classes, sizes, options.hparams)


def report(training: Training, fitted: loop.Fitted, folder: str) -> None:
    """Writes the profile. It trains on, so the model has to be saved before."""
    strategy, plan = training.strategy, training.train.plan
    ceiling = measure_ceiling(fitted.train_steps, strategy, next(iter(fitted.train)), plan.batch_size)
    write_profile(
        folder,
        plan,
        fitted.epochs,
        ceiling,
        strategy=describe(strategy),
        replicas=strategy.num_replicas_in_sync,
        hosts=training.workers.count,
    )


def _checkpoints(fn_args: Any, options: TrainOptions, *fed: Any) -> str:
    """This training's own folder of checkpoints."""
    code = [user_code.digest(function, name) for name, function in options.user_functions.items()]
    base = options.checkpoint_dir or os.path.join(fn_args.model_run_dir or "", "checkpoints")
    return checkpoint_folder(base, options.to_dict(), fed, fn_args.train_steps, fn_args.eval_steps, code)
