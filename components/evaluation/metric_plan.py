"""Computations of an eval config: leaves over rows, and the metrics that TFMA derives from them.

TFMA defines the computations of its metrics, their keys, and the derived metrics. This package replaces only the
computations over rows, each by a `Leaf`. Keras metrics are one kind of leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Number
from typing import Any

import numpy as np

import infeed.components.evaluation.tfx_first  # noqa: F401 - before TFMA

# isort: split
import tensorflow as tf
from tensorflow_model_analysis.api import types
from tensorflow_model_analysis.metrics import metric_specs, metric_types
from tensorflow_model_analysis.utils import model_util

from infeed.components.base.errors import InfeedError
from infeed.components.evaluation import leaves
from infeed.components.evaluation.error_moments import ErrorMomentsCombiner
from infeed.components.evaluation.leaves import Batch, Leaf, Terms
from infeed.components.evaluation.pairs import BeyondError, dense_labels
from infeed.components.seams import tfma as tfma_seam

_ROWS = 1_024  # rows of a slice are gathered up to this number, because a call of Keras takes a millisecond
Metrics = dict[Any, Any]  # TFMA's MetricKey or PlotKey -> value


@dataclass
class _Gathered:
    """Weights of Keras metrics for some rows, and rows that are not yet processed."""

    kept: list[list[Any]]
    waiting: list[Terms] = field(default_factory=list)


class KerasMetrics(Leaf):
    """Keras metrics of one output of a model and one selection of classes, such as SparseCategoricalAccuracy.

    It calls the metrics with whole batches, and sums the metrics' weights over batches in float64, because float32
    counts only up to 16,777,216. TFMA's combiner creates the metrics and reads their results. It may have metrics of
    several outputs, each a leaf.
    """

    def __init__(self, combiner: Any, place: int = 0) -> None:
        super().__init__(combiner)
        self._place, output = place, self.settings.output_names[place]
        self.subject = replace(self.subject, output=output)
        self._metrics = tfma_seam.keras_metrics(combiner, output)

    def terms(self, batch: Batch) -> Terms:
        """Return labels, predictions and weights.

        All classes are included if the metrics select classes by their own top_k.
        """
        chooses = bool(self.settings.sub_key_in_config)
        pairs = self.subject.pairs(batch, whole=chooses)
        labels = dense_labels(pairs) if chooses else pairs.labels
        if labels.dtype.kind not in "iufb":
            raise BeyondError(f"labels are of type {labels.dtype}")
        return labels, pairs.predictions, pairs.weights

    def example(self) -> Any:
        return _Gathered([metric.get_weights() for metric in self._metrics])

    def total(self, terms: Terms) -> Any:
        return self._flushed(_Gathered([[] for _ in self._metrics], [terms]), _ROWS)

    def merge(self, one: Any, other: Any) -> Any:
        both = zip(one.kept, other.kept, strict=True)
        kept = [mine if not its else its if not mine else _added(mine, its) for mine, its in both]
        return self._flushed(_Gathered(kept, one.waiting + other.waiting), _ROWS)

    def _flushed(self, gathered: _Gathered, rows: int) -> _Gathered:
        """Return the state after a call of Keras, if at least `rows` rows are waiting."""
        if not gathered.waiting or sum(len(terms[0]) for terms in gathered.waiting) < rows:
            return gathered
        given = [np.concatenate(parts) for parts in zip(*gathered.waiting, strict=True)]
        for metric, kept in zip(self._metrics, gathered.kept, strict=True):
            metric.reset_states()
            # Eager, because AutoGraph would first convert Keras' own code, which takes more than a second.
            tf.autograph.experimental.do_not_convert(metric.update_state)(*given)
            fresh = [np.asarray(weight, np.float64) for weight in metric.get_weights()]
            kept[:] = _added(kept, fresh) if kept else fresh
        return _Gathered(gathered.kept)

    def results(self, total: Any) -> dict[Any, Any]:
        done = self._flushed(total, 0)
        found = self.combiner.create_accumulator()
        for place, kept in enumerate(done.kept):
            if kept:
                found.add_weights(self._place, place, kept)
        given = self.combiner.extract_output(found)
        return {key: value for key, value in given.items() if (key.output_name or "") == self.subject.output}


def _added(one: list[Any], other: list[Any]) -> list[Any]:
    return [mine + its for mine, its in zip(one, other, strict=True)]


# Kind of a combiner -> leaf. TFMA itself computes the combiners of other kinds.
_LEAVES: Mapping[str, Callable[[Any], Leaf]] = {
    "ExampleCount": leaves.ExampleCount,
    "WeightedLabelsPredictionsExamples": leaves.MeanTotals,
    **dict.fromkeys(leaves.ERRORS, leaves.MeanError),
    "BinaryCrossEntropy": leaves.CrossEntropy,
    "CategoricalCrossEntropy": leaves.CrossEntropy,
    "CalibrationHistogram": leaves.BucketSums,
    "BinaryConfusionMatrix": leaves.ConfusionMatrices,
    "MultiClassConfusionMatrix": leaves.ClassMatrices,
    "ErrorMoments": leaves.ErrorMoments,
}


@dataclass(frozen=True)
class MetricPlan:
    """The computations for each slice."""

    leaves: Sequence[Leaf]  # computations over rows
    derived: Sequence[Any]  # TFMA's computations from earlier results
    of_all: Sequence[Any]  # TFMA's computations from all results, including differences to the baseline
    baseline: str | None  # name of the baseline's ModelSpec; None without a baseline

    @classmethod
    def of(cls, eval_config: Any) -> MetricPlan:
        """Return the plan of a completed eval config. Raise BeyondError if only TFMA can compute a metric.

        Raise InfeedError if a metric does not exist, or its options are invalid.
        """
        try:
            made = list(metric_specs.to_computations(eval_config.metrics_specs, eval_config=eval_config))
        except Exception as error:  # TFMA and Keras may raise anything for an invalid name or option
            what = f"cannot create the metrics: {str(error).strip().splitlines()[0] if str(error) else error!r}"
            do = "use classes of tfma.metrics or Keras, or set the module of your own class, with valid options"
            raise InfeedError(what, where="eval_config.metrics_specs", do=do) from error
        rows, of_all, derived = list[Any](), list[Any](), list[Any]()
        for one in dict.fromkeys(made):  # TFMA determines which are equal
            if isinstance(one, metric_types.MetricComputation):
                rows.append(one)
            elif isinstance(one, metric_types.CIDerivedMetricComputation):
                of_all.append(one)
            elif isinstance(one, metric_types.DerivedMetricComputation):
                derived.append(one)
        baseline = model_util.get_baseline_model_spec(eval_config)
        return cls(
            [leaf for one in rows for leaf in _leaves(one)], derived, of_all, baseline.name if baseline else None
        )

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs whose labels and predictions are needed. The only output of a model has the name ""."""
        return tuple(sorted({leaf.subject.output for leaf in self.leaves if leaf.needs_pairs}))

    def metrics(self, totals: Sequence[Any]) -> Metrics:
        """Return TFMA's metrics of a slice from the totals of the leaves."""
        found: Metrics = {}
        for leaf, total in zip(self.leaves, totals, strict=True):
            found.update(leaf.results(total))
        for one in self.derived:
            found.update(one.result(found))
        # Differences need the derived metrics of both models, and the last computations need the differences.
        found.update(self._differences(found))
        for one in self.of_all:
            found.update(one.result(found))
        return {key: value for key, value in found.items() if not _is_private(key)}

    def _differences(self, found: Metrics) -> Metrics:
        differences: Metrics = {}
        for key, value in found.items() if self.baseline else ():
            if _is_private(key) or key.is_diff or key.model_name == self.baseline:
                continue
            other = found.get(key.make_baseline_key(self.baseline))
            is_array = isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.number)
            is_number = is_array or isinstance(value, (Number, types.StructuredMetricValue))
            if other is not None and is_number:
                differences[key.make_diff_key()] = value - other
        return differences


def _leaves(computation: Any) -> list[Leaf]:
    combiner = computation.combiner
    kind = "ErrorMoments" if isinstance(combiner, ErrorMomentsCombiner) else tfma_seam.kind_of(combiner)
    if kind not in _LEAVES and kind != "CompilableMetrics":
        by = f"{type(combiner).__module__}.{type(combiner).__name__}"
        names = ", ".join(sorted({key.name for key in computation.keys})) or by
        raise BeyondError(f"only {by} can compute the metric {names}")
    # Other preprocessors change rows before the combiner sees them.
    own = [one for one in computation.preprocessors if type(one) is not metric_types.StandardMetricInputsPreprocessor]
    if own:
        raise BeyondError(f"a metric uses the preprocessor {type(own[0]).__name__}")
    try:
        if kind == "CompilableMetrics":
            outputs = tfma_seam.settings_of(combiner).output_names
            found: list[Leaf] = [KerasMetrics(combiner, place) for place in range(len(outputs))]
        else:
            found = [_LEAVES[kind](combiner)]
        for leaf in found:
            leaf.check()
        return found
    except (AttributeError, TypeError, ValueError) as error:
        raise BeyondError(f"TFMA's {kind} differs from the supported versions: {error}") from error


def _is_private(key: Any) -> bool:
    """Return whether a key belongs to an intermediate result, which TFMA does not write."""
    return key.name.startswith("_") and not key.name.startswith("__")
