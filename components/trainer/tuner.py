"""Hyperparameter search with KerasTuner in TFX's Tuner. All trials share the decoded data."""

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
    """Search space, objective and budget of a hyperparameter search.

    Attributes:
      search_fn: `package.module:function` or `path/file.py:function`, called as `function(hp)` with KerasTuner's
        HyperParameters; it declares the space with calls such as `hp.Int("units", 4, 64)`. The model function receives
        the values by name in `ModelSpec.hparams`, in the search and in the later Trainer.
      trials: number of models to train.
      algorithm: KerasTuner's RandomSearch or BayesianOptimization.
      objective: metric to improve, by its name in Keras' logs. `direction` is whether to minimize or maximize it.
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
    """Tuner with the arguments of TFX's. Pass `outputs["best_hyperparameters"]` to the Trainer as `hyperparameters`.

    With `options` and `search`, the component tries models of a model function on our input pipeline. With
    `module_file` or `tuner_fn`, the user's `tuner_fn(fn_args)` defines the search, as in TFX's Tuner.

    Args:
      examples, schema, transform_graph: as for the Trainer.
      base_model, custom_config: passed to the user's function in `fn_args`.
      module_file: a Python file that defines `tuner_fn(fn_args)`, which returns TFX's TunerFnResult.
      tuner_fn: the same function as `package.module.tuner_fn` or `package.module:tuner_fn`. Its source is part of the
          cache key.
      train_args, eval_args: splits to train and evaluate on, and `num_steps` of a trial.
      tune_args: `num_parallel_trials`, at most 1. Trials run one after another in one process, and each uses the whole
          machine.
      options: training options. Each trial trains `options.epochs` epochs on one machine.
      search: search space, objective and budget.

    Raises:
      InfeedError: not exactly one of `options`, `module_file` and `tuner_fn` is set, an argument conflicts with it,
          trials are parallel, or a function does not exist.
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
            "the search",
            "options (with search), module_file and tuner_fn (your own tuner_fn)",
        )
        if tune_args is not None and tune_args.num_parallel_trials > 1:
            raise InfeedError(
                f"tune_args.num_parallel_trials is {tune_args.num_parallel_trials}",
                where="Tuner",
                do="leave out tune_args: trials run one after another in one process, and each uses the whole "
                "machine. For trials on several machines, use the Tuner of "
                "tfx.extensions.google_cloud_ai_platform",
            )
        digest = _checked(module_file, tuner_fn)
        if options:
            search = _check_own_way(search, base_model, custom_config)
            searched = {_SEARCH: to_plain(search)}
            custom_config = {**config_of(options, examples, search_fn=search.search_fn), **searched}
        elif search:
            do = "add options=TrainOptions(...). Your own tuner_fn declares its search itself"
            raise InfeedError("search is set without options", where="Tuner", do=do)
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
        if digest:  # TFX's executor ignores unknown entries. This one is only part of the cache key of the execution
            self.spec.exec_properties[SOURCE_DIGEST] = digest


def _check_own_way(search: SearchOptions | None, base_model: Any, custom_config: Any) -> SearchOptions:
    if search is None:
        raise InfeedError("options is set without search", where="Tuner", do="add search=SearchOptions(...)")
    for name, value, instead in (
        ("base_model", base_model, "load the initial model in the model function"),
        ("custom_config", custom_config, "set TrainOptions.hparams, which the model function receives"),
    ):
        if value is not None:
            do = f"leave it out, and {instead}; or write your own tuner_fn, which receives it in fn_args"
            raise InfeedError(f"{name} is given beside options", where="Tuner", do=do)
    return search


def _checked(module_file: str | None, tuner_fn: str | None) -> str | None:
    """Return the digest of a function by name. For a module file, TFX fingerprints a wheel."""
    if module_file:
        if "://" not in module_file:
            user_code.resolve(f"{module_file}:tuner_fn", "module_file")
        return None
    if tuner_fn and ".py:" in tuner_fn:
        do = f"use module_file={tuner_fn.partition(':')[0]!r}, and rename the function to tuner_fn"
        raise InfeedError(f"tuner_fn is {tuner_fn!r}, a function in a file", where="Tuner", do=do)
    return user_code.digest(tuner_fn, "tuner_fn") if tuner_fn else None


def tuner_fn(fn_args: Any) -> TunerFnResult:
    """Return the tuner and the arguments of each trial's `fit`. TFX's Tuner calls this once, on a single worker."""
    import keras
    import keras_tuner

    from infeed.components.trainer.class_weights import with_class_weights
    from infeed.components.trainer.model import make_model
    from infeed.components.trainer.training import features_of, model_spec, prepare

    search = read(SearchOptions, fn_args.custom_config[_SEARCH], "SearchOptions")
    training = prepare(fn_args, runs=search.trials)
    if training.workers.count > 1:
        what = f"a search runs on one machine, but TF_CONFIG names {training.workers.count} workers"
        raise InfeedError(what, where="Tuner", do="run the Tuner with one worker. The later Trainer may use several")
    options, graph, plan = training.options, training.graph, training.train.plan
    if options.backend != "tensorflow":
        do = "use the backend tensorflow here; the later Trainer may use jax"
        raise InfeedError(f"backend is {options.backend!r}, but a search runs on TensorFlow", where="Tuner", do=do)
    declare = user_code.load(search.search_fn, "search_fn")
    train = training.train.dataset()  # rows are decoded here if the plan holds columns, so trials only gather them
    evaluation = training.evaluation.dataset().take(training.eval_steps or -1)
    spec, packing = model_spec(train, graph, options, training.steps), packing_of(graph, options)

    def build(hp: keras_tuner.HyperParameters) -> Any:
        declare(hp)
        keras.utils.set_random_seed(options.feed.seed)  # trials must differ only in their hyperparameters
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
