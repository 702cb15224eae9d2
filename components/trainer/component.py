"""Trainer component: the arguments of TFX's Trainer, our input pipeline, and training from a model function."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from tfx import types
from tfx.components.trainer.component import Trainer as TfxTrainer
from tfx.dsl.components.base import executor_spec
from tfx.orchestration.data_types import RuntimeParameter
from tfx.proto import trainer_pb2

from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError
from infeed.components.trainer.executor import SOURCE_DIGEST, TrainerExecutor, check_one_way, config_of
from infeed.components.trainer.options import CUSTOM_CONFIG_KEY, TrainOptions

RUN_FN = "infeed.components.trainer.run_fn.run_fn"


class Trainer(TfxTrainer):
    """Trains a model and exports it for serving.

    With `options`, the component trains the Keras 3 model of a model function. With `module_file` or `run_fn`, the
    user's `run_fn(fn_args)` trains, as in TFX's Trainer. Data that it reads by `fn_args.data_accessor` or
    `infeed.components.datasets` comes from our input pipeline, and the wait is measured.

    Outputs are those of TFX's Trainer: `model`, and `model_run` with `input_profile.json` and TensorBoard logs.

    Args:
      examples: raw Examples, or transformed ones of a Transform component. Detected from the channel, or set by
          `options.examples_are`.
      transformed_examples: TFX's older name for transformed `examples`.
      transform_graph: output of a Transform component. Without it, the raw Examples are the features.
      schema: schema of the Examples. Required without a transform graph.
      base_model: model to start from. Must be exported by an earlier infeed Trainer, unless `run_fn` loads it.
      hyperparameters: output of a Tuner. Overrides `options.hparams`.
      module_file: file that defines `run_fn(fn_args)`.
      run_fn: dotted path of the same function.
      train_args: splits to train on, and `num_steps`, the exact number of steps.
      eval_args: splits to evaluate on, and `num_steps`, the number of batches.
      custom_config: passed to `run_fn` as `fn_args.custom_config`.
      custom_executor_spec: executor that replaces the default executor.
      statistics: statistics of the Examples, for `fn_args.num_examples`. Requires TFX 1.21.
      options: training options, if there is no `run_fn`.
      epochs, batch_size, strategy: override the options of these names. Each may be a RuntimeParameter.
      custom_job: Vertex AI custom job to train in, instead of the step itself: `display_name` and `job_spec`, as in
          the CustomJob proto, and `project` and `region`.

    Raises:
      InfeedError: not exactly one of `options`, `module_file` and `run_fn` is set, arguments conflict, or a function
          in the options does not exist.
    """

    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(TrainerExecutor)

    def __init__(
        self,
        examples: types.BaseChannel | None = None,
        transformed_examples: types.BaseChannel | None = None,
        transform_graph: types.BaseChannel | None = None,
        schema: types.BaseChannel | None = None,
        base_model: types.BaseChannel | None = None,
        hyperparameters: types.BaseChannel | None = None,
        module_file: str | RuntimeParameter | None = None,
        run_fn: str | RuntimeParameter | None = None,
        train_args: trainer_pb2.TrainArgs | RuntimeParameter | None = None,
        eval_args: trainer_pb2.EvalArgs | RuntimeParameter | None = None,
        custom_config: dict[str, Any] | RuntimeParameter | None = None,
        custom_executor_spec: executor_spec.ExecutorSpec | None = None,
        *,
        statistics: types.BaseChannel | None = None,
        options: TrainOptions | None = None,
        epochs: int | RuntimeParameter | None = None,
        batch_size: int | RuntimeParameter | None = None,
        strategy: str | RuntimeParameter | None = None,
        custom_job: Mapping[str, Any] | None = None,
    ) -> None:
        anew = {"epochs": epochs, "batch_size": batch_size, "strategy": strategy}
        anew = {name: value for name, value in anew.items() if value is not None}
        check_one_way(
            "Trainer",
            {"options": options, "module_file": module_file, "run_fn": run_fn},
            "the training",
            "options (a model function), module_file and run_fn (your own run_fn)",
        )
        if anew and (custom_executor_spec or not options):
            raise InfeedError(
                f"{', '.join(anew)} given, but options of this package do not define the training",
                where="Trainer",
                do=f"for your own run_fn, use custom_config={{{', '.join(f'{name!r}: ...' for name in anew)}}}; "
                "for another executor, set them in options",
            )
        added: dict[str, Any] = {}
        if options:
            run_fn = RUN_FN
            added |= config_of(options, examples or transformed_examples)
        if custom_job:
            from infeed.components.trainer import vertex_executor  # imports Vertex AI's client library

            custom_executor_spec = vertex_executor.spec_of(custom_job, custom_executor_spec)
            added |= vertex_executor.custom_config(custom_job)
        known = {} if statistics is None else {"statistics": statistics}
        if known and "statistics" not in inspect.signature(TfxTrainer.__init__).parameters:
            do = "leave it out, or use TFX 1.21"
            raise InfeedError("the Trainer of the installed TFX has no argument statistics", where="Trainer", do=do)
        super().__init__(
            examples=examples,
            transformed_examples=transformed_examples,
            transform_graph=transform_graph,
            schema=schema,
            base_model=base_model,
            hyperparameters=hyperparameters,
            module_file=module_file,
            run_fn=run_fn,
            train_args=train_args,
            eval_args=eval_args,
            custom_config={**_plain(custom_config), **added} if added else custom_config,
            custom_executor_spec=custom_executor_spec,
            **known,
        )
        # Not in the component spec: TFX's constructor creates it from the parameters that it knows.
        self.spec.exec_properties.update(anew)
        if isinstance(run_fn, str) and not options and not custom_executor_spec:
            self.spec.exec_properties[SOURCE_DIGEST] = user_code.digest(run_fn, "run_fn")


def _plain(custom_config: dict[str, Any] | RuntimeParameter | None) -> dict[str, Any]:
    if isinstance(custom_config, RuntimeParameter):
        named = f"custom_config is the runtime parameter {custom_config.name!r}"
        what = f"{named}, but the component must add entries to it"
        do = "give custom_config as a dict; epochs, batch_size and strategy may be runtime parameters"
        raise InfeedError(what, where="Trainer", do=do)
    if CUSTOM_CONFIG_KEY in (custom_config or {}):
        what = f"custom_config has the key {CUSTOM_CONFIG_KEY!r}, which is reserved for the options"
        do = "use options=TrainOptions(...), or rename your entry"
        raise InfeedError(what, where="Trainer", do=do)
    return dict(custom_config or {})
