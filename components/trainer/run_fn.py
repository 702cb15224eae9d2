"""The training itself, as TFX's Trainer calls it: features in, saved model and `input_profile.json` out."""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from infeed.components import progress, schema, user_code
from infeed.components.dataset.input_profile import WAITS_FROM, InputProfile
from infeed.components.errors import InfeedError
from infeed.components.feed import measure
from infeed.components.feed.build import Batches, Feed
from infeed.components.feed.options import WorkerContext
from infeed.components.feed.shards import corrupt_record_context
from infeed.components.feed.trials import try_changes
from infeed.components.feed.user_maps import map_error_context
from infeed.components.trainer import cluster, distribution, loop, warm_start
from infeed.components.trainer.asynchronous import PerWorkerDatasets
from infeed.components.trainer.callbacks import CallbackSpec, make_callbacks
from infeed.components.trainer.checkpoint import Checkpoints, checkpoint_folder, export_error_context, remove
from infeed.components.trainer.checkpoint_mirror import CheckpointMirror
from infeed.components.trainer.class_weights import class_weights, with_class_weights
from infeed.components.trainer.cluster import OutputDirs, chief_writes
from infeed.components.trainer.data import packing_of
from infeed.components.trainer.export import ServingModel
from infeed.components.trainer.graph import Graph, open_graph
from infeed.components.trainer.model import ModelSpec, make_model
from infeed.components.trainer.model_inputs import ModelInputs
from infeed.components.trainer.monitoring import monitored
from infeed.components.trainer.options import CUSTOM_CONFIG_KEY, TrainOptions
from infeed.components.trainer.own_input import check_same_length, make_input
from infeed.components.trainer.pace import Observer
from infeed.components.trainer.packing import Packing

# Preparing the measurement of the stages takes two to four seconds more.
_STAGES_FROM, _STAGES_SHARE, _MOST_STAGE_SECONDS = 120.0, 0.015, 4.0
_STAGE_TURNS = 5
# Stages and trials together take at most this share of a training. A trial measures up to three pipelines, and reads
# the rows that a change keeps in memory.
_MOST_SHARE, _TRIAL_PARTS, _LEAST_TRIAL_SECONDS = 0.04, 8, 0.5
_log = logging.getLogger(__name__)


def run_fn(fn_args: Any) -> None:
    """Trains, exports and reports. Every worker calls it; what the chief writes is kept.

    Args:
      fn_args: TFX's FnArgs; `custom_config["infeed"]` holds `TrainOptions(...).to_dict()`.

    Raises:
      InfeedError: an option, the data, the model function or the cluster is wrong.
    """
    cluster.adopt_cluster_spec()
    if read_options(fn_args).strategy == "parameter_server" and cluster.only_serves():
        cluster.serve(fn_args.serving_model_dir)
        return
    training = prepare(fn_args, own_loop=True)
    inputs = training.train, training.evaluation
    with (
        closing(inputs[0]),
        closing(inputs[1]),
        chief_writes(training.places, training.workers) as places,
        monitored(training.options, training.identity, chief=training.workers.index == 0) as monitors,
    ):
        shards = [shard for one in inputs for shard in one.plan.shards]
        with corrupt_record_context(shards), map_error_context(), cluster.lost_process_context():
            trained = fit(training, places, monitors.observers)
        with export_error_context(places.model, training.places.checkpoints):
            progress.report("exporting the model")
            ServingModel(trained.fitted.model, trained.inputs, training.graph, training.options).save(places.model)
        report(training, trained.fitted, places.run)
        monitors.finish(places.run, training.model_uri)
        distribution.barrier(training.strategy)  # no worker ends before the model is there
        if training.options.checkpoint_seconds is not None:
            remove(places.checkpoints)
        if training.mirror and training.workers.index == 0:
            training.mirror.remove()


@dataclass(frozen=True)
class Training:
    """What stands before the first step.

    `identity` names the training, and is the same if it is started again. `model_uri` is where the model ends up.
    """

    options: TrainOptions
    workers: WorkerContext
    strategy: tf.distribute.Strategy
    graph: Graph
    train: Feed
    evaluation: Feed
    max_steps: int | None
    eval_steps: int | None
    places: OutputDirs
    identity: str
    model_uri: str
    class_weights: tuple[float, ...] = ()
    base_model: str | None = None
    mirror: CheckpointMirror | None = None

    @property
    def epochs(self) -> int:
        """TFX's own way to say how long is a number of steps; training then ends at exactly that step."""
        return -(-self.max_steps // self.train.plan.steps_per_epoch) if self.max_steps else self.options.epochs

    @property
    def steps(self) -> int:
        """Planned steps; early stopping may end training before."""
        return self.max_steps or self.options.epochs * self.train.plan.steps_per_epoch


@dataclass(frozen=True)
class Trained:
    """What training leaves behind: the model, how it was trained, and which features it takes."""

    fitted: loop.Fitted
    inputs: ModelInputs


def prepare(fn_args: Any, *, runs: int = 1, own_loop: bool = False) -> Training:
    """Reads options, cluster and graph, and plans the feeds.

    Args:
      runs: how often the whole training is gone through, as by the trials of a search.
      own_loop: whether `loop.fit` trains, which takes row numbers as well as batches.
    """
    check_backend()
    options = read_options(fn_args)
    cluster.adopt_cluster_spec()
    workers = cluster.coordinated_workers() if options.strategy == "parameter_server" else cluster.worker_context()
    strategy = distribution.make_strategy(options.strategy, workers)
    distribution.check_batch_size(options.feed.batch_size, strategy)
    distribution.check_xla(options.xla, strategy)
    # The graph's tables are needed on every worker that a coordinator sends steps to.
    with strategy.scope() if distribution.is_coordinated(strategy) else nullcontext():
        graph = open_graph(fn_args.transform_graph_path, fn_args.schema_path, options.label, options.feed.weight)
    max_steps = fn_args.train_steps
    devices = distribution.gathering_devices(strategy) if own_loop else ()
    train = make_input(
        fn_args.train_files,
        graph,
        options,
        training=True,
        workers=workers,
        num_steps=max_steps,
        runs=runs,
        devices=devices,
    )
    evaluation = make_input(fn_args.eval_files, graph, options, training=False, workers=workers, runs=runs)
    if options.input_fn and workers.count > 1:
        for kind, feed in (("training", train), ("evaluation", evaluation)):
            check_same_length(distribution.all_gather(feed.plan.steps_per_epoch, strategy), kind, options.input_fn)
    checkpoints = _checkpoints(fn_args, options, train.identity, evaluation.identity)
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
        places=OutputDirs(
            fn_args.serving_model_dir,
            fn_args.model_run_dir,
            mirror.local if mirror else checkpoints,
        ),
        identity=os.path.basename(checkpoints),
        model_uri=getattr(fn_args, "model_uri", None) or fn_args.serving_model_dir,
        class_weights=class_weights(options, graph, fn_args.train_files),
        base_model=fn_args.base_model,
        mirror=mirror,
    )


def check_backend() -> None:
    """Raises InfeedError where Keras runs on something else than TensorFlow, whose graph and strategies this needs."""
    if (backend := keras.backend.backend()) != "tensorflow":
        do = "set KERAS_BACKEND=tensorflow, or train in a loop of your own on infeed.load"
        raise InfeedError(f"the Trainer cannot train with Keras on {backend}", where="KERAS_BACKEND", do=do)


def read_options(fn_args: Any) -> TrainOptions:
    """The options that the component passed on, with what a Tuner found on top of the hyperparameters."""
    given = (fn_args.custom_config or {}).get(CUSTOM_CONFIG_KEY)
    if given is None:
        raise InfeedError(
            "the Trainer was given no options",
            where=f"custom_config[{CUSTOM_CONFIG_KEY!r}]",
            do="use infeed.components.trainer.Trainer, or pass TrainOptions(...).to_dict() there",
        )
    options = schema.read(TrainOptions, given, "TrainOptions")
    tuned = (fn_args.hyperparameters or {}).get("values", {})
    return dataclasses.replace(options, hparams={**options.hparams, **tuned})


def fit(training: Training, places: OutputDirs, observers: Sequence[Observer] = ()) -> Trained:
    """Builds the model and trains it, from where a killed training left off."""
    options, strategy, graph, plan = training.options, training.strategy, training.graph, training.train.plan
    start, checkpoints = 0, None
    if options.checkpoint_seconds is not None:
        upload = training.mirror.upload if training.mirror and training.workers.index == 0 else None
        checkpoints = Checkpoints(
            training.places.checkpoints, places.checkpoints, options.checkpoint_seconds, strategy, upload
        )
        start = checkpoints.start_step
    shares = PerWorkerDatasets(
        training.workers.count, partial(_train_batches, training, start), partial(_eval_batches, training)
    )
    dataset, evaluation = shares.train(training.workers), shares.evaluation(training.workers)
    spec = model_spec(dataset, graph, options, training.steps)
    if distribution.strategy_name(strategy) == "tpu":
        distribution.check_for_tpu(dataset.element_spec[0])
    progress.report("building the model and tracing its steps")
    _log.info("how training is fed:\n%s", plan.describe())
    packing = packing_of(graph, options)
    build = partial(make_model, options, features=features_of(dataset, evaluation, packing), packing=packing)
    base_model, starts = None if start else training.base_model, list[warm_start.Start]()
    if base_model and not tf.io.gfile.exists(base_model):  # of `PushedModel`, before the first model
        _log.info("there is no earlier model at %s: training starts from random weights", base_model)
        base_model = None
    if base_model:
        with warm_start.may_start_anew(options.other_base_model):
            starts = warm_start.starts_of(base_model, graph, spec, build)
    with strategy.scope():
        # At the last moment: a thread that some library left running may draw from the same generator.
        keras.utils.set_random_seed(options.feed.seed)
        model, inputs = build(spec)
        if base_model and starts:
            with warm_start.may_start_anew(options.other_base_model):
                warm_start.assign(model, starts, base_model)
    if inputs.unused and training.workers.index == 0:
        _log.warning("features that the model does not use: %s", ", ".join(inputs.unused))
    spec_of_callbacks = CallbackSpec(places.run, training.workers.index == 0, options.hparams)
    if start:
        _log.info("training goes on after step %s, by the checkpoint in %s", start, training.places.checkpoints)
    fitted = loop.fit(
        model,
        strategy,
        dataset,
        evaluation,
        batch_size=plan.batch.size,
        steps_per_epoch=plan.steps_per_epoch,
        steps_per_call=options.steps_per_call or loop.steps_per_call(model),
        epochs=training.epochs,
        max_steps=training.max_steps,
        callbacks=make_callbacks(options, spec_of_callbacks),
        checkpoints=checkpoints,
        start_step=start,
        per_worker=shares if distribution.is_coordinated(strategy) else None,
        observers=observers,
    )
    return Trained(fitted, inputs)


def features_of(train: Batches, evaluation: tf.data.Dataset, packing: Packing) -> dict[str, tf.TypeSpec]:
    """The features that batches of both have, [batch, ...]; an input function may give some of them alone."""
    specs, also = (packing.unpack(batches.element_spec[0]) for batches in (train, evaluation))
    return {name: spec for name, spec in specs.items() if name in also}


def _train_batches(training: Training, start_step: int, workers: WorkerContext) -> Batches:
    batches = training.train.batches(workers=workers, start_step=start_step)
    return with_class_weights(batches, training.class_weights)


def _eval_batches(training: Training, workers: WorkerContext) -> tf.data.Dataset:
    return training.evaluation.dataset(workers=workers).take(training.eval_steps or -1)


def model_spec(dataset: Batches, graph: Graph, options: TrainOptions, steps: int = 0) -> ModelSpec:
    """What the model function is given."""
    features = packing_of(graph, options).unpack(dataset.element_spec[0])
    # In order of name: the graph gives them in any order, and a model that joins them must find its weights again.
    inputs = {name: tf.TensorSpec(features[name].shape[1:], features[name].dtype, name) for name in sorted(features)}
    sizes = {name: size for name, size in graph.vocabulary_sizes.items() if name in inputs}
    return ModelSpec(inputs, options.task, graph.classes, sizes, options.hparams, steps)


def report(training: Training, fitted: loop.Fitted, folder: str) -> None:
    """Writes the profile. It trains on, so the model has to be saved before."""
    progress.report("measuring the rate of the step without input")
    strategy, plan = training.strategy, training.train.plan
    batch = next(iter(fitted.train))
    ceiling = loop.measure_believable_ceiling(
        fitted.train_steps, fitted.meter, strategy, batch, plan.batch.size, fitted.epochs
    )
    profile = InputProfile(
        strategy=distribution.strategy_name(strategy),
        replicas=strategy.num_replicas_in_sync,
        hosts=training.workers.count,
        batch_size=plan.batch.size,
        steps_per_epoch=plan.steps_per_epoch,
        epochs=fitted.epochs,
        ceiling=ceiling,
        plan=plan.summary(),
        bytes=plan.bytes,
        timeline=fitted.timeline,
    )
    profile = _with_stages(training, profile)
    profile.write(folder)
    if training.workers.index == 0:
        _write_scalars(profile, folder)


def _write_scalars(profile: InputProfile, folder: str) -> None:
    """Writes the rate and the share waited of each epoch for TensorBoard, beside the logs of Keras."""
    try:
        with closing(tf.summary.create_file_writer(os.path.join(folder, "input"))) as writer, writer.as_default():
            for epoch in profile.epochs:
                tf.summary.scalar("input/wait_fraction", profile.wait_fraction([epoch]), step=epoch.epoch)
                tf.summary.scalar("input/examples_per_second", epoch.examples_per_second, step=epoch.epoch)
    except (tf.errors.OpError, OSError) as error:  # a finished training must not fail because of its logs
        _log.warning("no scalars of the input for TensorBoard: %s", error)


def _with_stages(training: Training, profile: InputProfile) -> InputProfile:
    """Returns the profile with the cost of each stage of the plan and, if training waited, with trials of changes.

    Both are left out if they would take too long.
    """
    given, feed = training.options.stage_seconds, training.train
    trained, started = sum(epoch.seconds for epoch in profile.epochs), time.monotonic()
    share = min(_MOST_STAGE_SECONDS, _STAGES_SHARE * trained) if trained >= _STAGES_FROM else 0.0
    seconds = share if given is None else given
    plan = measure.short_plan(feed.plan) if seconds and feed.functions and training.workers.count == 1 else None
    if plan is None or feed.functions is None or feed.replan is None:
        return profile
    progress.report("measuring the stages of the input pipeline")
    try:
        cuts = measure.plan_cuts(plan, feed.functions)
        stages = measure.measure(cuts, seconds=seconds, turns=_STAGE_TURNS).stages
        profile = dataclasses.replace(profile, stages=stages)
        if profile.wait_fraction(profile.steady_epochs) < WAITS_FROM:
            return profile
        left = _MOST_SHARE * trained - (time.monotonic() - started)
        seconds = min(_MOST_STAGE_SECONDS, left / _TRIAL_PARTS) if given is None else given
        if seconds < _LEAST_TRIAL_SECONDS and given is None:
            return profile
        progress.report("trying changes of the input pipeline")
        base = dataclasses.replace(measure.rival_cut(cuts), rival=False)
        trials = try_changes(
            stages, base, training.options.feed, feed.replan, feed.functions, seconds=seconds, turns=_STAGE_TURNS
        )
        return dataclasses.replace(profile, trials=trials)
    except (tf.errors.OpError, ValueError, InfeedError) as error:  # a finished training must not fail by a measurement
        _log.warning("the measurement of the input pipeline ended early: %s", error)
        return profile


def _checkpoints(fn_args: Any, options: TrainOptions, *fed: Any) -> str:
    """This training's own folder of checkpoints."""
    code = [user_code.digest(function, name) for name, function in options.user_functions.items()]
    base = options.checkpoint_dir or os.path.join(fn_args.model_run_dir or "", "checkpoints")
    args = fn_args.train_steps, fn_args.eval_steps, fn_args.base_model
    # What observes a training does not change it.
    trained = {name: value for name, value in options.to_dict().items() if name not in ("mlflow", "prometheus")}
    return checkpoint_folder(base, trained, fed, *args, code)
