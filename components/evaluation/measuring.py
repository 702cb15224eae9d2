"""Measurement of models on examples: the terms of each metric are summed per slice and range, and merged."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import infeed.components.evaluation.tfx_first  # noqa: F401 - before TFMA

# isort: split
import numpy as np
from tensorflow_model_analysis.proto.config_pb2 import EvalConfig, ModelSpec

from infeed.components.base import progress
from infeed.components.base.errors import InfeedError
from infeed.components.base.schema import check_known
from infeed.components.base.units import counted
from infeed.components.dataset.reading import ShardRange
from infeed.components.engine.engine import Engine, WithSetUp
from infeed.components.evaluation.batches import Batch, SliceKey, SliceSpec, batches_of, slice_rows
from infeed.components.evaluation.metric_plan import MetricPlan, Metrics
from infeed.components.evaluation.model_report.collected import Collected
from infeed.components.evaluation.model_report.options import ModelReport
from infeed.components.evaluation.models import EvaluatedModel, ModelAnswer, feature_values
from infeed.components.evaluation.pairs import Array, Observed, is_unknown, unknown_class, with_all_classes

_SLICES = "eval_config.slicing_specs"
_DO = "compare with a model that has the same label, or leave out baseline_model"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Evaluation:
    """Evaluation job, as plain data for workers."""

    config: bytes  # completed EvalConfig, serialized
    models: tuple[tuple[bytes, str], ...]  # serialized ModelSpec and folder of each model, candidate first
    default_metrics: bool  # whether to include the compiled metrics of a Keras model
    known: frozenset[str]  # columns that the examples are known to have, even if few rows have them. Empty if unknown
    most_rows: int  # maximum rows of a batch
    most_bytes: int
    pages: tuple[ModelReport, ...] = ()  # options of each page

    @property
    def outputs(self) -> tuple[str, ...]:
        """Outputs whose labels and predictions are read. The only output of a model has the name ""."""
        shown = (one.output for one in self.pages)
        return tuple(dict.fromkeys([*shown, *plan_of(self.config).outputs]))


class _Plans(threading.local):
    """Plans of this thread. Keras metrics in a plan hold the state of a batch, and workers may use threads."""

    def __init__(self) -> None:
        self.of = functools.lru_cache(maxsize=2)(lambda config: MetricPlan.of(EvalConfig.FromString(config)))


_plans = _Plans()


def plan_of(config: bytes) -> MetricPlan:
    """Return the plan of a serialized eval config, cached per thread; see `MetricPlan.of`."""
    return _plans.of(config)


@functools.lru_cache(maxsize=2)
def slices_of(config: bytes) -> tuple[SliceSpec, ...]:
    """Return the slices of a serialized eval config. All rows if it has none."""
    specs = EvalConfig.FromString(config).slicing_specs
    return tuple(SliceSpec.of(spec) for spec in specs) or (SliceSpec((), ()),)


def load_models(evaluation: Evaluation) -> list[EvaluatedModel]:
    """Load all models, candidate first. For errors, see `EvaluatedModel`."""
    return [
        EvaluatedModel(ModelSpec.FromString(spec), path, default_metrics=evaluation.default_metrics)
        for spec, path in evaluation.models
    ]


@dataclass
class Measurement:
    """Results for some rows: one total per leaf and slice, independent of the number of rows."""

    rows: int = 0
    totals: dict[SliceKey, list[Any]] = field(default_factory=dict)
    filled: set[SliceSpec] = field(default_factory=set)  # specs that have had rows
    collected: tuple[Collected, ...] = ()  # data of the rows for each page

    def add(self, key: SliceKey, totals: Sequence[Any], plan: MetricPlan) -> None:
        before = self.totals.get(key)
        if before is not None:
            totals = [leaf.merge(*both) for leaf, *both in zip(plan.leaves, before, totals, strict=True)]
        self.totals[key] = list(totals)


Measuring: TypeAlias = WithSetUp[list[EvaluatedModel], ShardRange, Measurement]


def merge(config: bytes, one: Measurement, other: Measurement) -> Measurement:
    plan = plan_of(config)
    for key, totals in other.totals.items():
        one.add(key, totals, plan)
    collected = tuple(mine.merge(its) for mine, its in zip(one.collected, other.collected, strict=True))
    return Measurement(one.rows + other.rows, one.totals, one.filled | other.filled, collected)


def measuring(evaluation: Evaluation) -> Measuring:
    """Return the function that measures a range of records. A worker loads the models once."""
    return WithSetUp(functools.partial(measure_range, evaluation), functools.partial(load_models, evaluation))


def measure(evaluation: Evaluation, call: Measuring, ranges: Sequence[ShardRange], engine: Engine) -> Measurement:
    """Measure all records with `call`, a result of `measuring`, and merge the results in order.

    Raises:
      BeyondError: only TFX's own executor supports the evaluation.
      ValueError: there are no ranges.
      InfeedError: there are no examples, a column is missing, a slice has no rows, or the baseline has another label.
    """
    found: Measurement = engine.reduce(call, ranges, functools.partial(merge, evaluation.config))
    if not found.rows:
        raise InfeedError("there are no examples to evaluate", where="examples", do="use a split with examples")
    for spec in slices_of(evaluation.config):
        if spec not in found.filled:
            raise InfeedError(f"no row is in the slice {spec}", where=_SLICES, do="leave it out, or correct its values")
    return found


def check_classes(evaluation: Evaluation, ranges: Sequence[ShardRange], engine: Engine) -> None:
    """Raise InfeedError for a label whose class the model does not know. TFMA's own errors do not name it.

    Raise BeyondError for data that this package cannot read.
    """
    load = functools.partial(load_models, evaluation)
    for _ in engine.map(WithSetUp(functools.partial(_check_range, evaluation), load), ranges):
        pass


def _check_range(evaluation: Evaluation, models: Sequence[EvaluatedModel], part: ShardRange) -> None:
    for batch in batches_of(part, evaluation.most_rows, evaluation.most_bytes):
        for model in models:
            outputs = [*model.spec.label_keys] or [""]
            seen = model.observe(batch, model.answer(batch, predict=True), outputs)
            for output, observed in ((one, seen.of(one)) for one in outputs):
                assert observed.labels is not None, "labels of these outputs are observed"
                assert observed.predictions is not None, "so are predictions"
                classes = observed.predictions.shape[1]
                if (row := unknown_class(observed.labels, classes)) is not None:
                    what = is_unknown(observed.labels[row, 0], classes)
                    do = "remove such rows, correct the label, or train a model that knows the class"
                    raise InfeedError(what, where=f"{batch.where(row)}, {model.label_of(output)!r}", do=do)


def metrics_of(evaluation: Evaluation, found: Measurement) -> list[tuple[SliceKey, Metrics]]:
    """Return the metrics of each slice, all rows first, then sorted by column and value."""
    plan = plan_of(evaluation.config)
    keys = sorted(found.totals, key=lambda key: (len(key), str(key)))
    return [(key, plan.metrics(found.totals[key])) for key in keys]


def measure_range(evaluation: Evaluation, models: Sequence[EvaluatedModel], part: ShardRange) -> Measurement:
    """Measure the models on a range of records, batch by batch. Raises the errors of `measure`."""
    plan, specs, outputs = plan_of(evaluation.config), slices_of(evaluation.config), evaluation.outputs
    found = Measurement(collected=tuple(Collected() for _ in evaluation.pages))
    for batch in batches_of(part, evaluation.most_rows, evaluation.most_bytes):
        answers = [model.answer(batch, predict=bool(outputs)) for model in models]
        # Check the first batch only, because labels and outputs of a model have the same form in all batches.
        if not found.rows:
            check_columns(specs, batch, answers, evaluation.known)
            _check_labels(models, batch, answers)
        observed = {
            model.spec.name: model.observe(batch, answer, outputs)
            for model, answer in zip(models, answers, strict=True)
        }
        if not found.rows:
            for output in outputs:
                _check_alike(models, [one.of(output) for one in observed.values()])
        observed = with_all_classes(observed)
        progress.count("example evaluated", len(batch.records))
        for page, collected in zip(evaluation.pages, found.collected, strict=True):
            collected.add(batch, {name: one.of(page.output) for name, one in observed.items()}, page)
        try:
            terms = [leaf.terms(observed) for leaf in plan.leaves]
        except ValueError as error:
            told = error if isinstance(error, InfeedError) else None
            what, do = (told.what, told.do) if told else (str(error), "use metrics that fit the label and the model")
            raise InfeedError(what, where=f"eval_config.metrics_specs, {batch.where()}", do=do) from error
        rows = len(batch.records)
        found.rows += rows
        slices = slice_rows(specs, rows, functools.partial(feature_values, batch, answers))
        found.filled.update(spec for spec, of_spec in zip(specs, slices, strict=True) if of_spec)
        for key, inside in {key: inside for of_spec in slices for key, inside in of_spec.items()}.items():
            # Terms are per row and computed once. A slice only selects its rows.
            some = terms if len(inside) == rows else [tuple(term[inside] for term in of_leaf) for of_leaf in terms]
            found.add(key, [leaf.total(of_leaf) for leaf, of_leaf in zip(plan.leaves, some, strict=True)], plan)
    return found


def check_columns(
    specs: Sequence[SliceSpec], batch: Batch, answers: Sequence[ModelAnswer], known: Collection[str]
) -> None:
    """Raise InfeedError for a slice of a column that neither the data nor a model has. `known` is empty if unknown."""
    there = {*batch.columns, *known, *(name for answer in answers for name in answer.features)}
    if known:
        check_known((name for spec in specs for name in spec.names), sorted(there), _SLICES, "column")


def _check_labels(models: Sequence[EvaluatedModel], batch: Batch, answers: Sequence[ModelAnswer]) -> None:
    """Raise InfeedError unless all models take the label from the same source: the examples or transformed features."""
    for model in models:
        model.check_names(batch.columns)
    for label in models[0].labels:
        sources = [label in answer.features for answer in answers]
        for model, is_own in zip(models, sources, strict=True):
            if is_own != sources[0]:
                who, other = ("model", "baseline") if is_own else ("baseline", "model")
                what = f"the {who} does not compute {label!r} from the examples, as the {other} does"
                raise InfeedError(what, where=model.path, do=_DO)


def _check_alike(models: Sequence[EvaluatedModel], observed: Sequence[Observed]) -> None:
    """Raise InfeedError if the labels or classes of the models differ.

    Only the number of classes may, if models number them.
    """
    mine, *others = observed
    for model, its in zip(models[1:], others, strict=True):
        if mine.labels is None or its.labels is None or mine.predictions is None or its.predictions is None:
            continue  # no metric uses them
        ours, theirs = _form(mine.labels), _form(its.labels)
        are_sets = _is_set(mine.labels, mine.predictions) and _is_set(its.labels, its.predictions)
        if ours != theirs and not are_sets:
            what = f"the labels of the baseline are {theirs}, but those of the model are {ours}"
            raise InfeedError(what, where=model.path, do=_DO)
        before, now = its.predictions.shape[1], mine.predictions.shape[1]
        if before != now:
            words = f"the baseline predicts {counted(before, 'number')} per row, but the model predicts {now}"
            is_numbered = are_sets or its.labels.shape[1] == 1
            if 1 in (before, now) or not is_numbered or not model.spec.preprocessing_function_names:
                raise InfeedError(words, where=model.path, do=_DO)
            _log.warning("%s; it is wrong about the labels that only the model knows", words)


def _form(labels: Array) -> str:
    return counted(labels.shape[1], "whole number" if labels.dtype.kind in "iub" else "fraction") + " per row"


def _is_set(labels: Array, predictions: Array) -> bool:
    return 1 < labels.shape[1] == predictions.shape[1] and bool(np.isin(labels, (0, 1)).all())
