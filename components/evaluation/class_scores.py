"""Metrics for TFMA: recall, precision and F1 of a class, or their means over all classes.

TFMA's own mean over classes requires the classes as an option, but training may lack a rare class of the data. These
metrics take the classes from the confusion matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from tensorflow_model_analysis.metrics import metric_types, metric_util
from tensorflow_model_analysis.metrics.multi_class_confusion_matrix_metrics import multi_class_confusion_matrices

from infeed.components.evaluation.intervals import rows_of

_MATRICES = "_class_score_matrices"  # TFMA's own name may have other thresholds
_UNKNOWN = -1  # Transform's mark of a class that no training row has


class _ClassScore(metric_types.Metric):
    """Score of class `positive`, or if `positive` is None, scores of all classes and their mean."""

    score: ClassVar[str]

    def __init__(self, positive: int | None = None, name: str = "") -> None:
        computations = metric_util.merge_per_key_computations(_computations_of(self.score))
        super().__init__(computations, positive=positive, name=name or self.score)


# TFMA looks classes up by name alone, so the name must not be one of TFMA's classes.
class ClassRecall(_ClassScore):
    """Share of the rows of the class that are predicted as the class."""

    score = "recall"


class ClassPrecision(_ClassScore):
    """Share of the rows predicted as the class that belong to it."""

    score = "precision"


class ClassF1(_ClassScore):
    """Harmonic mean of recall and precision."""

    score = "f1"


for _metric in (ClassRecall, ClassPrecision, ClassF1):
    metric_types.register_metric(_metric)


def _computations_of(score: str) -> Callable[..., Any]:
    def computations(
        positive: int | None = None,
        name: str = "",
        eval_config: Any = None,
        model_name: str = "",
        output_name: str = "",
        example_weighted: bool = False,
    ) -> Any:
        of = {"model_name": model_name, "output_name": output_name, "example_weighted": example_weighted}
        key = metric_types.MetricKey(name=name, **of)
        matrices = multi_class_confusion_matrices(name=_MATRICES, eval_config=eval_config, **of)
        matrix_key = matrices[-1].keys[-1]

        def result(metrics: Mapping[Any, Any]) -> dict[Any, float]:
            (matrix,) = metrics[matrix_key].values()
            rows = {(entry.actual_class_id, entry.predicted_class_id): count for entry, count in matrix.items()}
            return {key: scores(rows, positive)[score]}

        return [*matrices, metric_types.DerivedMetricComputation(keys=[key], result=result)]

    return computations


def scores(rows: Mapping[tuple[int, int], float], positive: int | None = None) -> dict[str, float]:
    """Recall, precision and F1 of class `positive`, or else their means over the classes with training rows.

    `rows` maps (actual, predicted) to a number of rows.
    """
    actual, predicted = (rows_of(rows, side) for side in (0, 1))
    classes = [positive] if positive is not None else [one for one in actual if one != _UNKNOWN]
    found = {"recall": 0.0, "precision": 0.0, "f1": 0.0}
    for one in classes:
        if right := rows.get((one, one)):  # the denominators may be weights below 1
            found["recall"] += right / actual[one] / len(classes)
            found["precision"] += right / predicted[one] / len(classes)
            found["f1"] += 2 * right / (actual[one] + predicted[one]) / len(classes)
    return found
