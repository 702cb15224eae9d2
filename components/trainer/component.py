"""Trainer: a TFX Trainer with typed options, fed by the feed engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfx import types
from tfx.components.trainer.component import Trainer as TfxTrainer
from tfx.dsl.components.base import executor_spec
from tfx.orchestration.data_types import RuntimeParameter
from tfx.proto import trainer_pb2
from tfx.types.channel import OutputChannel

from infeed.components import user_code
from infeed.components.trainer.executor import Executor
from infeed.components.trainer.options import CUSTOM_CONFIG_KEY, TrainOptions

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
      epochs, batch_size, strategy: win over the options of that name, and may be a RuntimeParameter.
      custom_job: trains in a Vertex AI custom job instead of in the step itself: its `display_name` and `job_spec`, by
        the names of the CustomJob proto, and the `project` and `region` that it runs in.

    Raises:
      InfeedError: a function that the options name does not exist.
    """

    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

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
        epochs: int | RuntimeParameter | None = None,
        batch_size: int | RuntimeParameter | None = None,
        strategy: str | RuntimeParameter | None = None,
        custom_job: Mapping[str, Any] | None = None,
    ) -> None:
        settings: dict[str, Any] = options.to_dict()
        if isinstance(examples, OutputChannel) and examples.output_key == "transformed_examples":
            settings["examples_are"] = "transformed"
        executor, vertex_config = _vertex(custom_job) if custom_job else (None, {})
        super().__init__(
            run_fn=RUN_FN,
            examples=examples,
            transform_graph=transform_graph,
            hyperparameters=hyperparameters,
            schema=schema,
            train_args=train_args,
            eval_args=eval_args,
            custom_config={
                CUSTOM_CONFIG_KEY: settings,
                # Part of the execution's cache key: an edited function has to be trained with again.
                **{f"{name}_digest": user_code.digest(text, name) for name, text in options.user_functions.items()},
                **vertex_config,
            },
            custom_executor_spec=executor,
        )
        given = {"epochs": epochs, "batch_size": batch_size, "strategy": strategy}
        # Not in the component spec: TFX's constructor makes that itself, of the parameters that it knows.
        self.spec.exec_properties.update({name: value for name, value in given.items() if value is not None})


def _vertex(custom_job: Mapping[str, Any]) -> tuple[executor_spec.ExecutorClassSpec, dict[str, Any]]:
    """Imports the client library of Vertex AI only where it is used."""
    from infeed.components.trainer import vertex_executor

    spec = executor_spec.ExecutorClassSpec(vertex_executor.VertexExecutor)
    return spec, vertex_executor.custom_config(custom_job)
