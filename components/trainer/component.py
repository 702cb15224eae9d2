"""Trainer: a TFX Trainer with typed options, fed by the feed engine."""

from __future__ import annotations

from typing import Any

from tfx import types
from tfx.components.trainer.component import Trainer as TfxTrainer
from tfx.proto import trainer_pb2
from tfx.types.channel import OutputChannel

from infeed.components import user_code
from infeed.components.trainer.options import TrainOptions

RUN_FN = "infeed.components.trainer.run_fn.run_fn"


class Trainer(TfxTrainer):
    """Trains a Keras 3 model and exports it for serving.

    Outputs, as those of TFX's Trainer: `model`, and `model_run` with `input_profile.json` and TensorBoard logs.

    Args:
      examples: raw Examples, or ones that a Transform component materialised; which it is, is told from the channel and
        can be said in `options.examples_are`.
      transform_graph: what a Transform component gave.
      options: how to train.
      hyperparameters: what a Tuner found best; they come on top of `options.hparams`.
      schema: accepted for pipelines that wire it; the transform graph carries its own.
      train_args: splits to train on, and `num_steps` to end after exactly so many steps.
      eval_args: splits to evaluate on, and `num_steps` to look at only so many batches.

    Raises:
      InfeedError: the model function or the callbacks function does not exist.
    """

    def __init__(
        self,
        examples: types.BaseChannel,
        transform_graph: types.BaseChannel,
        options: TrainOptions,
        *,
        hyperparameters: types.BaseChannel | None = None,
        schema: types.BaseChannel | None = None,
        train_args: trainer_pb2.TrainArgs | None = None,
        eval_args: trainer_pb2.EvalArgs | None = None,
    ) -> None:
        settings: dict[str, Any] = options.to_dict()
        if isinstance(examples, OutputChannel) and examples.output_key == "transformed_examples":
            settings["examples_are"] = "transformed"
        callbacks = options.callbacks_fn
        super().__init__(
            run_fn=RUN_FN,
            examples=examples,
            transform_graph=transform_graph,
            hyperparameters=hyperparameters,
            schema=schema,
            train_args=train_args,
            eval_args=eval_args,
            custom_config={
                "infeed": settings,
                # Part of the execution's cache key: an edited model function has to be trained again.
                "model_fn_digest": user_code.digest(options.model_fn, "model_fn"),
                **({"callbacks_fn_digest": user_code.digest(callbacks, "callbacks_fn")} if callbacks else {}),
            },
        )
