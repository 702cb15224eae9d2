"""What an eval config asks for, as the computations over rows that it comes down to, and what is derived from them.

TFMA itself says which computations its metrics need, under which keys, and how one follows from another. Only those
that look at rows are done here, by a `Leaf` each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np
import tfx.components  # noqa: F401 - before TFMA: the other order fails on TFX 1.21

# isort: split
from tensorflow_model_analysis.api import types
from tensorflow_model_analysis.metrics import metric_specs, metric_types
from tensorflow_model_analysis.utils import model_util

from infeed.components.errors import InfeedError
from infeed.components.evaluation import leaves
from infeed.components.evaluation.keras_metrics import KerasMetrics
from infeed.components.evaluation.leaves import Leaf
from infeed.components.evaluation.pairs import BeyondError

# By the names of TFMA's combiners, which are private; one that a later TFMA renames is left to TFMA.
_LEAVES: Mapping[str, Callable[[Any], Leaf]] = {
    "_ExampleCountCombiner": leaves.ExampleCount,
    "_WeightedLabelsPredictionsExamplesCombiner": leaves.MeanTotals,
    "_MeanAbsoluteErrorCombiner": leaves.MeanError,
    "_MeanSquaredErrorCombiner": leaves.MeanError,
    "_MeanAbsolutePercentageErrorCombiner": leaves.MeanError,
    "_MeanSquaredLogarithmicErrorCombiner": leaves.MeanError,
    "_BinaryCrossEntropyCombiner": leaves.CrossEntropy,
    "_CategoricalCrossEntropyCombiner": leaves.CrossEntropy,
    "_CalibrationHistogramCombiner": leaves.BucketSums,
    "_BinaryConfusionMatrixCombiner": leaves.ConfusionMatrices,
    "_MultiClassConfusionMatrixCombiner": leaves.ClassMatrices,
    "_CompilableMetricsCombiner": KerasMetrics,
}
_TFMA = "tensorflow_model_analysis."
Metrics = dict[Any, Any]  # TFMA's MetricKey or PlotKey -> value


@dataclass(frozen=True)
class MetricPlan:
    """What is computed of each slice.

    Attributes:
      leaves: over the rows
      derived: TFMA's own, from the results of those before them
      of_all: TFMA's own, from everything, differences to the baseline too
      baseline: name of the baseline's ModelSpec; None where there is none
    """

    leaves: Sequence[Leaf]
    derived: Sequence[Any]
    of_all: Sequence[Any]
    baseline: str | None

    @classmethod
    def of(cls, eval_config: Any) -> MetricPlan:
        """The plan of an eval config that TFMA has completed.

        Raises:
          BeyondError: a metric of another kind.
          InfeedError: one that there is not, or whose options are wrong.
        """
        kinds = (
            metric_types.MetricComputation,
            metric_types.CIDerivedMetricComputation,
            metric_types.DerivedMetricComputation,
        )
        found: dict[Any, list[Any]] = {kind: [] for kind in kinds}
        for one in dict.fromkeys(_computations(eval_config)):  # TFMA's own notion of which are the same
            if kind := next((kind for kind in kinds if isinstance(one, kind)), None):
                found[kind].append(one)
        rows, of_all, derived = found.values()
        baseline = model_util.get_baseline_model_spec(eval_config)
        return cls([_leaf(one) for one in rows], derived, of_all, baseline.name if baseline else None)

    @property
    def needs_pairs(self) -> bool:
        """Whether labels and predictions are looked at."""
        return any(leaf.needs_pairs for leaf in self.leaves)

    def metrics(self, totals: Sequence[Any]) -> Metrics:
        """All that TFMA gives for a slice, from the total of each leaf."""
        found: Metrics = {}
        for leaf, total in zip(self.leaves, totals, strict=True):
            found.update(leaf.results(total))
        for one in self.derived:
            found.update(one.result(found))
        found.update(self._differences(found))
        for one in self.of_all:
            found.update(one.result(found))
        return {key: value for key, value in found.items() if not _is_private(key)}

    def _differences(self, found: Metrics) -> Metrics:
        """Each metric of the candidate less that of the baseline."""
        differences: Metrics = {}
        for key, value in found.items() if self.baseline else ():
            if _is_private(key) or key.is_diff or key.model_name == self.baseline:
                continue
            other = found.get(key.make_baseline_key(self.baseline))
            if other is not None and _is_number(value):
                differences[key.make_diff_key()] = value - other
        return differences


def _computations(eval_config: Any) -> Iterable[Any]:
    try:
        return list(metric_specs.to_computations(eval_config.metrics_specs, eval_config=eval_config))
    except Exception as error:  # whatever TFMA and Keras raise for a name or an option
        raise InfeedError(
            f"the metrics cannot be made: {str(error).strip().splitlines()[0] if str(error) else error!r}",
            where="eval_config.metrics_specs",
            do="name classes of tfma.metrics or Keras, or give the module of your own, with options that they have",
        ) from error


def _leaf(computation: Any) -> Leaf:
    combiner = computation.combiner
    kind = type(combiner)
    if kind.__name__ not in _LEAVES or not kind.__module__.startswith(_TFMA):
        names = ", ".join(sorted({key.name for key in computation.keys})) or kind.__name__
        raise BeyondError(f"the metric {names} is computed by {kind.__module__}.{kind.__name__}")
    own = [one for one in computation.preprocessors if type(one) is not metric_types.StandardMetricInputsPreprocessor]
    if own:
        raise BeyondError(f"a metric prepares its rows by {type(own[0]).__name__}")
    try:
        return _LEAVES[kind.__name__](combiner)
    except AttributeError as error:
        raise BeyondError(f"this TFMA's {kind.__name__} is another: {error}") from error


def _is_private(key: Any) -> bool:
    """Of what TFMA computes on the way, and does not write."""
    return key.name.startswith("_") and not key.name.startswith("__")


def _is_number(value: Any) -> bool:
    is_array = isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.number)
    return is_array or isinstance(value, (Number, types.StructuredMetricValue))
