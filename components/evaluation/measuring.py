"""Measures models on examples: batch after batch, the terms of every metric are added up for each slice."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from infeed.components import progress
from infeed.components.errors import InfeedError
from infeed.components.evaluation.metric_plan import MetricPlan, Metrics
from infeed.components.evaluation.models import EvaluatedModel, ModelAnswer, feature_values
from infeed.components.evaluation.pairs import Array, Observed
from infeed.components.evaluation.predictions.batches import Batch
from infeed.components.evaluation.slices import SliceKey, SliceSpec, slice_rows

_SLICES = "eval_config.slicing_specs"
_DO = "compare with a model of the same label, or leave baseline_model out"
_log = logging.getLogger(__name__)


@dataclass
class Measurement:
    """What has been measured so far.

    Attributes:
      plan: the metrics
      specs: the slices
      rows: how many
      totals: slice -> the total of each leaf of the plan
      filled: the specs that have had rows
    """

    plan: MetricPlan
    specs: Sequence[SliceSpec]
    rows: int = 0
    totals: dict[SliceKey, list[Any]] = field(default_factory=dict)
    filled: set[SliceSpec] = field(default_factory=set)

    def add(self, batch: Batch, answers: Sequence[ModelAnswer], observed: Mapping[str, Observed]) -> None:
        """Adds the rows of a batch.

        Raises:
          BeyondError: what only TFX's own executor can do.
          InfeedError: labels or predictions that a metric cannot be of.
        """
        try:
            terms = [leaf.terms(observed) for leaf in self.plan.leaves]
        except ValueError as error:
            raise InfeedError(
                str(error), where="eval_config.metrics_specs", do="choose metrics that fit the label and the model"
            ) from error
        rows = len(batch.records)
        self.rows += rows
        found = slice_rows(self.specs, rows, partial(feature_values, batch, answers))
        self.filled.update(spec for spec, slices in zip(self.specs, found, strict=True) if slices)
        for key, inside in {key: inside for slices in found for key, inside in slices.items()}.items():
            whole = len(inside) == rows
            self._add(key, terms if whole else [tuple(term[inside] for term in of_leaf) for of_leaf in terms])

    def _add(self, key: SliceKey, terms: Sequence[tuple[Array, ...]]) -> None:
        fresh = [leaf.total(of_leaf) for leaf, of_leaf in zip(self.plan.leaves, terms, strict=True)]
        before = self.totals.get(key)
        if before is not None:
            fresh = [leaf.merge(*both) for leaf, *both in zip(self.plan.leaves, before, fresh, strict=True)]
        self.totals[key] = fresh

    def results(self) -> list[tuple[SliceKey, Metrics]]:
        """The metrics of each slice, all rows first, then by column and value."""
        keys = sorted(self.totals, key=lambda key: (len(key), str(key)))
        return [(key, self.plan.metrics(self.totals[key])) for key in keys]


def measure(
    plan: MetricPlan,
    specs: Sequence[SliceSpec],
    models: Sequence[EvaluatedModel],
    batches: Iterable[Batch],
    known: Collection[str],
) -> list[tuple[SliceKey, Metrics]]:
    """The metrics of each slice.

    Args:
      models: the candidate first.
      known: columns that the examples are known to have, those that few rows have among them; empty where nobody knows.

    Raises:
      BeyondError: what only TFX's own executor can do.
      InfeedError: no examples, a column that there is not, a slice without rows, a baseline of another label.
    """
    measurement = Measurement(plan, specs)
    for number, batch in enumerate(batches):
        answers = [model.answer(batch, predict=plan.needs_pairs) for model in models]
        if not number:
            _check_columns(specs, batch, answers, known)
            _check_labels(models, batch, answers)
        of_each = [
            model.observe(batch, answer, pairs=plan.needs_pairs) for model, answer in zip(models, answers, strict=True)
        ]
        if not number:
            _check_alike(models, of_each)
        progress.count("examples evaluated", len(batch.records))
        measurement.add(batch, answers, {model.spec.name: one for model, one in zip(models, of_each, strict=True)})
    if not measurement.rows:
        raise InfeedError("there are no examples to evaluate on", where="examples", do="name a split that has some")
    for spec in specs:
        if spec not in measurement.filled:
            raise InfeedError(f"no row is in the slice {spec}", where=_SLICES, do="leave it out, or mend its values")
    return measurement.results()


def _check_columns(
    specs: Sequence[SliceSpec], batch: Batch, answers: Sequence[ModelAnswer], known: Collection[str]
) -> None:
    there = {*batch.columns, *known, *(name for answer in answers for name in answer.features)}
    for name in (name for spec in specs for name in spec.names):
        if known and name not in there:
            raise InfeedError(
                f"there is no column {name!r} to slice by", where=_SLICES, do=f"name one of {', '.join(sorted(there))}"
            )


def _check_labels(models: Sequence[EvaluatedModel], batch: Batch, answers: Sequence[ModelAnswer]) -> None:
    """All models take the label from where the candidate does: of the examples, or of what they make of them.

    Raises:
      BeyondError: TFMA would call a signature with columns.
      InfeedError: a baseline takes it from elsewhere.
    """
    sources = [model.makes_label(answer) for model, answer in zip(models, answers, strict=True)]
    for model, is_own in zip(models, sources, strict=True):
        model.check_names(batch.columns)
        if is_own != sources[0]:
            who, other = ("model", "baseline") if is_own else ("baseline", "model")
            raise InfeedError(
                f"the {who} does not make {model.spec.label_key!r} of the examples, as the {other} does",
                where=model.path,
                do=_DO,
            )


def _check_alike(models: Sequence[EvaluatedModel], observed: Sequence[Observed]) -> None:
    """Classes may be more than they were, where each model numbers them itself; all else has to be the same.

    Raises:
      InfeedError: a baseline is of another label.
    """
    mine, *others = observed
    for model, its in zip(models[1:], others, strict=True):
        if mine.labels is None or its.labels is None or mine.predictions is None or its.predictions is None:
            continue  # nothing looks at them
        if _words(mine.labels) != _words(its.labels):
            raise InfeedError(
                f"the labels of the baseline are {_words(its.labels)}, those of the model {_words(mine.labels)}",
                where=model.path,
                do=_DO,
            )
        classes = its.predictions.shape[1], mine.predictions.shape[1]
        if classes[0] != classes[1]:
            words = f"the baseline predicts {classes[0]} numbers a row, the model {classes[1]}"
            if 1 in classes or not model.spec.preprocessing_function_names:
                raise InfeedError(words, where=model.path, do=_DO)
            _log.warning("%s: each is measured by the labels of its own", words)


def _words(labels: Array) -> str:
    return f"{labels.shape[1]} {'whole numbers' if labels.dtype.kind in 'iub' else 'fractions'} a row"
