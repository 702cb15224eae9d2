"""Hyperparameters found by KerasTuner inside TFX's Tuner, with the data decoded once for all trials."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tfx import types
from tfx.components.tuner.component import Tuner as TfxTuner
from tfx.components.tuner.component import TunerFnResult
from tfx.proto import trainer_pb2, tuner_pb2

from infeed.components.base import user_code
from infeed.components.base.checks import at_least, check_fields
from infeed.components.base.errors import InfeedError
from infeed.components.base.schema import read, to_plain
from infeed.components.trainer.data import packing_of
from infeed.components.trainer.executor import SOURCE_DIGEST, check_one_way, config_of
from infeed.components.trainer.options import TrainOptions

_SEARCH = "infeed_search"


@dataclass(frozen=True)
class SearchOptions:
    """What is searched, and how long.

    Attributes:
      search_fn: `package.module:function` or `path/file.py:function`, called as `function(hp)` with KerasTuner's
        HyperParameters; it declares the space by `hp.Int("units", 4, 64)` and the like. The model function finds the
        values by those names in `ModelSpec.hparams`, in the search and in the Trainer that follows.
      trials: models to train.
      algorithm: KerasTuner's RandomSearch or BayesianOptimization.
      objective: metric to improve, as Keras logs it; `direction` says whether less of it is better, or more.
    """

    search_fn: str
    trials: int = 10
    algorithm: Literal["random", "bayesian"] = "random"
    objective: str = "val_loss"
    direction: Literal["min", "max"] = "min"

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(self, 1, "trials")


class Tuner(TfxTuner):
    """TFX's Tuner, argument for argument; `outputs["best_hyperparameters"]` goes to the Trainer's `hyperparameters`.

    With `options` and `search` the package tries models of a model function over its feed. With `module_file` or
    `tuner_fn` the user's own `tuner_fn(fn_args)` says what is tried, as under TFX's Tuner.

    Args:
      examples, schema, transform_graph: as for the Trainer.
      base_model, custom_config: handed to the user's function in `fn_args`.
      module_file: a Python file that defines `tuner_fn(fn_args)`, which gives TFX's TunerFnResult.
      tuner_fn: the same function as `package.module.tuner_fn` or `package.module:tuner_fn`. An edited source is run
        again, not taken from the pipeline's cache.
      train_args, eval_args: splits to train and evaluate on, and `num_steps` of a trial.
      tune_args: `num_parallel_trials` of at most 1: the trials follow one another in one process, and each has the
        whole machine.
      options: those of the Trainer: each trial trains `options.epochs` epochs on one machine.
      search: what is searched.

    Raises:
      InfeedError: not exactly one of `options`, `module_file` and `tuner_fn`; an argument that the chosen way does not
        take; trials in parallel; or a function that does not exist.
    """

    def __init__(
        self,
        examples: types.BaseChannel,
        schema: types.BaseChannel | None = None,
        transform_graph: types.BaseChannel | None = None,
        base_model: types.BaseChannel | None = None,
        module_file: str | None = None,
        tuner_fn: str | None = None,
        train_args: trainer_pb2.TrainArgs | None = None,
        eval_args: trainer_pb2.EvalArgs | None = None,
        tune_args: tuner_pb2.TuneArgs | None = None,
        custom_config: Mapping[str, Any] | None = None,
        *,
        options: TrainOptions | None = None,
        search: SearchOptions | None = None,
    ) -> None:
        check_one_way(
            "Tuner",
            {"options": options, "module_file": module_file, "tuner_fn": tuner_fn},
            "what is tried",
            "options (with search), module_file and tuner_fn (a tuner_fn of your own)",
        )
        if tune_args is not None and tune_args.num_parallel_trials > 1:
            raise InfeedError(
                f"tune_args asks for {tune_args.num_parallel_trials} trials at a time",
                where="Tuner",
                do="leave tune_args out: the trials follow one another in one process, and each has the whole machine; "
                "trials on several machines are what the Tuner of tfx.extensions.google_cloud_ai_platform starts",
            )
        digest = _checked(module_file, tuner_fn)
        if options:
            search = _check_own_way(search, base_model, custom_config)
            searched = {_SEARCH: to_plain(search)}
            custom_config = {**config_of(options, examples, search_fn=search.search_fn), **searched}
        elif search:
            do = "give options=TrainOptions(...) beside it; a tuner_fn of your own declares its search itself"
            raise InfeedError("search is given without options", where="Tuner", do=do)
        super().__init__(
            examples=examples,
            schema=schema,
            transform_graph=transform_graph,
            base_model=base_model,
            module_file=module_file,
            tuner_fn="infeed.components.trainer.tuner.tuner_fn" if options else tuner_fn and tuner_fn.replace(":", "."),
            train_args=train_args,
            eval_args=eval_args,
            custom_config=custom_config,
        )
        if digest:  # TFX's executor reads what it knows; this is a part of the execution's cache key, and nothing else
            self.spec.exec_properties[SOURCE_DIGEST] = digest


def _check_own_way(search: SearchOptions | None, base_model: Any, custom_config: Any) -> SearchOptions:
    if search is None:
        raise InfeedError("options are given without search", where="Tuner", do="give search=SearchOptions(...), too")
    for name, value, instead in (
        ("base_model", base_model, "let the model function load what it starts from"),
        ("custom_config", custom_config, "give the values as TrainOptions.hparams, which the model function gets"),
    ):
        if value is not None:
            do = f"leave it out, and {instead}; or write a tuner_fn of your own, which gets it by fn_args"
            raise InfeedError(f"{name} is given beside options", where="Tuner", do=do)
    return search


def _checked(module_file: str | None, tuner_fn: str | None) -> str | None:
    """Return the digest of a function by name. TFX makes a wheel of a module file, and a fingerprint of the wheel."""
    if module_file:
        if "://" not in module_file:
            user_code.resolve(f"{module_file}:tuner_fn", "module_file")
        return None
    if tuner_fn and ".py:" in tuner_fn:
        do = f"write module_file={tuner_fn.partition(':')[0]!r}, and call the function tuner_fn"
        raise InfeedError(f"tuner_fn is {tuner_fn!r}, a function in a file", where="Tuner", do=do)
    return user_code.digest(tuner_fn, "tuner_fn") if tuner_fn else None


def tuner_fn(fn_args: Any) -> TunerFnResult:
    """What TFX's Tuner calls once: the tuner, and what each trial is fitted with; one worker alone may call it."""
    import keras
    import keras_tuner

    from infeed.components.trainer.class_weights import with_class_weights
    from infeed.components.trainer.model import make_model
    from infeed.components.trainer.training import features_of, model_spec, prepare

    search = read(SearchOptions, fn_args.custom_config[_SEARCH], "SearchOptions")
    training = prepare(fn_args, runs=search.trials)
    if training.workers.count > 1:
        what = f"a search runs on one machine, and TF_CONFIG names {training.workers.count} workers"
        raise InfeedError(what, where="Tuner", do="give the Tuner one worker; the Trainer after it may have many")
    options, graph, plan = training.options, training.graph, training.train.plan
    declare = user_code.load(search.search_fn, "search_fn")
    train = training.train.dataset()  # here rows are decoded where the plan holds columns; trials only gather them
    evaluation = training.evaluation.dataset().take(training.eval_steps or -1)
    spec, packing = model_spec(train, graph, options, training.steps), packing_of(graph, options)

    def build(hp: keras_tuner.HyperParameters) -> Any:
        declare(hp)
        keras.utils.set_random_seed(options.feed.seed)  # what differs between trials is hyperparameters alone
        tried = dataclasses.replace(spec, hparams={**options.hparams, **hp.values})
        return make_model(options, tried, features_of(train, evaluation, packing), packing)[0]

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
    fit_kwargs = {
        "x": with_class_weights(train, training.class_weights),
        "steps_per_epoch": plan.steps_per_epoch,
        "epochs": training.epochs,
        "validation_data": evaluation,
        "verbose": 2,
    }
    return TunerFnResult(tuner=tuner, fit_kwargs=fit_kwargs)
