"""The training itself, as TFX's Trainer calls it: features in, saved model and `input_profile.json` out."""

from __future__ import annotations

import logging
from typing import Any

import keras
import tensorflow as tf

from infeed.components.errors import InfeedError
from infeed.components.trainer import loop
from infeed.components.trainer.data import Feed, make_feed
from infeed.components.trainer.export import ServingModel
from infeed.components.trainer.graph import TransformGraph
from infeed.components.trainer.model import ModelSpec, build_model
from infeed.components.trainer.options import TrainOptions
from infeed.components.trainer.profile import write_profile
from infeed.components.trainer.strategy import describe, make_strategy

CUSTOM_CONFIG_KEY = "infeed"

_log = logging.getLogger(__name__)


def run_fn(fn_args: Any) -> None:
    """Trains, exports and reports.

    Args:
      fn_args: TFX's FnArgs; `custom_config["infeed"]` holds `TrainOptions.to_dict()`.

    Raises:
      InfeedError: an option, the data or the model function is wrong.
    """
    options = TrainOptions.from_dict(_options_dict(fn_args))
    keras.utils.set_random_seed(options.feed.seed)
    strategy = make_strategy(options.strategy)
    graph = TransformGraph(fn_args.transform_graph_path, options.label)
    train = make_feed(fn_args.train_files, graph, options, training=True)
    evaluation = make_feed(fn_args.eval_files, graph, options, training=False)
    dataset = train.dataset()
    _log.info("how training is fed:\n%s", train.plan.describe())
    with strategy.scope():
        model = build_model(options, _model_spec(dataset, graph, options))
    fitted = _fit(model, strategy, dataset, train, evaluation, options, fn_args)
    ServingModel(model, graph, options).save(fn_args.serving_model_dir)
    batch = next(iter(dataset))
    ceiling = loop.measure_ceiling(fitted.run_steps, strategy, batch, train.plan.batch_size)
    write_profile(
        fn_args.model_run_dir,
        train.plan,
        fitted.epochs,
        ceiling,
        strategy=describe(strategy),
        replicas=strategy.num_replicas_in_sync,
        hosts=1,
    )


def _options_dict(fn_args: Any) -> dict[str, Any]:
    options = (fn_args.custom_config or {}).get(CUSTOM_CONFIG_KEY)
    if options is None:
        raise InfeedError(
            "the Trainer was given no options",
            where=f"custom_config[{CUSTOM_CONFIG_KEY!r}]",
            do="Use infeed.components.trainer.Trainer, or pass TrainOptions(...).to_dict() there.",
        )
    return dict(options)


def _model_spec(dataset: tf.data.Dataset, graph: TransformGraph, options: TrainOptions) -> ModelSpec:
    features, _ = dataset.element_spec
    inputs = {name: tf.TensorSpec(spec.shape[1:], spec.dtype, name) for name, spec in features.items()}
    sizes = {
        name: graph.output.vocabulary_size_by_name(name)
        for name in inputs
        if graph.output.vocabulary_file_by_name(name)
    }
    return ModelSpec(inputs, options.task, graph.classes, sizes, options.hparams)


def _fit(
    model: keras.Model,
    strategy: tf.distribute.Strategy,
    dataset: tf.data.Dataset,
    train: Feed,
    evaluation: Feed,
    options: TrainOptions,
    fn_args: Any,
) -> loop.Fitted:
    plan = train.plan
    epochs = options.epochs
    if fn_args.train_steps:  # TFX's own way to say how long; it ends training at exactly that step
        epochs = -(-fn_args.train_steps // plan.steps_per_epoch)
    callbacks: list[keras.callbacks.Callback] = [keras.callbacks.TensorBoard(fn_args.model_run_dir, write_graph=False)]
    if options.patience:
        callbacks.append(
            keras.callbacks.EarlyStopping(monitor="val_loss", patience=options.patience, restore_best_weights=True)
        )
    return loop.fit(
        model,
        strategy,
        dataset,
        evaluation.dataset().take(fn_args.eval_steps or -1),
        batch_size=plan.batch_size,
        steps_per_epoch=plan.steps_per_epoch,
        steps_per_call=options.steps_per_call,
        epochs=epochs,
        max_steps=fn_args.train_steps,
        callbacks=callbacks,
    )
