"""Hyperparameters found by KerasTuner inside TFX's Tuner, with the data decoded once for all trials."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tfx import types
from tfx.components.tuner.component import Tuner as TfxTuner
from tfx.components.tuner.component import TunerFnResult
from tfx.proto import trainer_pb2

from infeed.components import user_code
from infeed.components.errors import InfeedError
from infeed.components.trainer.options import TrainOptions

TUNER_FN = "infeed.components.trainer.tuner.tuner_fn"
_SEARCH = "infeed_search"

Algorithm = Literal["random", "bayesian"]


@dataclass(frozen=True)
class SearchOptions:
    """What is searched, and how long.

    Attributes:
      search_fn: `package.module:function` or `path/file.py:function`, called as `function(hp)` with KerasTuner's
        HyperParameters; it declares the space by `hp.Int("units", 4, 64)` and the like. The model function finds the
        values by those names in `ModelSpec.hparams`, in the search and in the Trainer that follows.
      trials: models to train.
      algorithm: KerasTuner's RandomSearch or BayesianOptimization.
      objective: metric to improve, as Keras logs it.
      direction: whether less of it is better, or more.
    """

    search_fn: str
    trials: int = 10
    algorithm: Algorithm = "random"
    objective: str = "val_loss"
    direction: Literal["min", "max"] = "min"

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise InfeedError(f"trials is {self.trials}", where="SearchOptions", do="Use a whole number of at least 1.")
        for name, allowed in (("algorithm", get_args(Algorithm)), ("direction", ("min", "max"))):
            if getattr(self, name) not in allowed:
                raise InfeedError(
                    f"{name} is {getattr(self, name)!r}",
                    where="SearchOptions",
                    do=f"Use one of {', '.join(allowed)}.",
                )


class Tuner(TfxTuner):
    """TFX's Tuner over our feed; `outputs["best_hyperparameters"]` goes to the Trainer's `hyperparameters`.

    Args:
      examples: as for the Trainer.
      transform_graph: as for the Trainer.
      options: those of the Trainer: each trial trains `options.epochs` epochs on one machine.
      search: what is searched.
      train_args: splits to train on.
      eval_args: splits to evaluate on.

    Raises:
      InfeedError: a function that the options name, or the search function, does not exist.
    """

    def __init__(
        self,
        examples: types.BaseChannel,
        transform_graph: types.BaseChannel,
        options: TrainOptions,
        search: SearchOptions,
        *,
        train_args: trainer_pb2.TrainArgs | None = None,
        eval_args: trainer_pb2.EvalArgs | None = None,
    ) -> None:
        super().__init__(
            examples=examples,
            transform_graph=transform_graph,
            tuner_fn=TUNER_FN,
            train_args=train_args or trainer_pb2.TrainArgs(),
            eval_args=eval_args or trainer_pb2.EvalArgs(),
            custom_config={
                "infeed": options.to_dict(),
                _SEARCH: dataclasses.asdict(search),
                **{f"{name}_digest": user_code.digest(text, name) for name, text in options.user_functions.items()},
                "search_fn_digest": user_code.digest(search.search_fn, "search_fn"),
            },
        )


def tuner_fn(fn_args: Any) -> TunerFnResult:
    """What TFX's Tuner calls once: the tuner, and what each trial is fitted with.

    Raises:
      InfeedError: an option, the data or a function of the user is wrong, or there are several workers.
    """
    import keras
    import keras_tuner

    from infeed.components.trainer.model import build_model
    from infeed.components.trainer.run_fn import model_spec, prepare, read_options
    from infeed.components.trainer.weights import weighted

    search = SearchOptions(**fn_args.custom_config[_SEARCH])
    if read_options(fn_args).strategy == "parameter_server":
        raise InfeedError(
            "a search runs on one machine, and the strategy is parameter_server",
            where="Tuner",
            do="Give the Tuner options with another strategy; the Trainer after it may have this one.",
        )
    training = prepare(fn_args, runs=search.trials)
    if training.workers.count > 1:
        raise InfeedError(
            f"a search runs on one machine, and TF_CONFIG names {training.workers.count} workers",
            where="Tuner",
            do="Give the Tuner one worker; the Trainer after it may have many.",
        )
    options, graph, plan = training.options, training.graph, training.train.plan
    declare = user_code.load(search.search_fn, "search_fn")
    train = training.train.dataset()  # here rows are decoded where the plan holds columns; trials only gather them
    spec = model_spec(train, graph, options)

    def build(hp: keras_tuner.HyperParameters) -> Any:
        declare(hp)
        keras.utils.set_random_seed(options.feed.seed)  # what differs between trials is hyperparameters alone
        return build_model(options, dataclasses.replace(spec, hparams={**options.hparams, **hp.values}))

    kind = {"random": keras_tuner.RandomSearch, "bayesian": keras_tuner.BayesianOptimization}[search.algorithm]
    tuner = kind(
        build,
        objective=keras_tuner.Objective(search.objective, search.direction),
        max_trials=search.trials,
        seed=options.feed.seed,
        directory=fn_args.working_dir,
        project_name="search",
        distribution_strategy=training.strategy,
    )
    fit_kwargs: Mapping[str, Any] = {
        "x": weighted(train, options.class_weight, graph.classes),
        "steps_per_epoch": plan.steps_per_epoch,
        "epochs": training.epochs,
        "validation_data": training.evaluation.dataset().take(training.eval_steps or -1),
        "verbose": 2,
    }
    return TunerFnResult(tuner=tuner, fit_kwargs=fit_kwargs)
