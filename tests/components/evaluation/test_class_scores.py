from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.tfx

# (actual, predicted) -> rows: of 90 rows of class 0, 80 are found; of 10 of class 1, 5.
ROWS = {(0, 0): 80.0, (0, 1): 10.0, (1, 1): 5.0, (1, 0): 5.0}


def test_a_class_has_its_recall_precision_and_f1() -> None:
    from infeed.components.evaluation.class_scores import scores

    assert scores(ROWS, 1) == {"recall": 0.5, "precision": pytest.approx(1 / 3), "f1": pytest.approx(0.4)}


def test_without_a_class_it_is_the_mean_over_those_that_the_rows_have() -> None:
    from infeed.components.evaluation.class_scores import scores

    found = scores({**ROWS, (-1, 0): 20.0})  # a class that no training row has is called something else, always
    assert found["recall"] == pytest.approx((80 / 90 + 0.5) / 2)
    assert found["precision"] == pytest.approx((80 / 105 + 5 / 15) / 2)


@pytest.mark.parametrize("positive", [None, 0, 1])
def test_the_unit_of_weights_does_not_matter(positive: int | None) -> None:
    from infeed.components.evaluation.class_scores import scores

    light = {cell: 1e-3 * rows for cell, rows in ROWS.items()}
    assert scores(light, positive) == pytest.approx(scores(ROWS, positive))


@pytest.mark.parametrize(("classes", "positive"), [(2, 1), (3, None)])
def test_tfma_measures_them_with_two_classes_and_with_several(classes: int, positive: int | None) -> None:
    import numpy as np
    import sklearn.metrics
    import tfx.components  # noqa: F401 - before TFMA

    # isort: split
    import tensorflow_model_analysis as tfma
    from tensorflow_model_analysis.metrics import metric_specs

    module = "infeed.components.evaluation.class_scores"
    kinds = ["ClassRecall", "ClassPrecision", "ClassF1"]
    options = "{}" if positive is None else f'{{"positive": {positive}}}'
    metrics = [tfma.MetricConfig(class_name=kind, module=module, config=options) for kind in kinds]
    config = tfma.EvalConfig(model_specs=[tfma.ModelSpec()], metrics_specs=[tfma.MetricsSpec(metrics=metrics)])
    (matrix, *_), derived = _separated(metric_specs.to_computations(config.metrics_specs, eval_config=config))
    draw = np.random.default_rng(0)
    labels, sure = draw.integers(0, classes, 60), draw.dirichlet([1] * classes, 60)
    accumulator = matrix.combiner.create_accumulator()
    for label, row in zip(labels, sure, strict=True):
        matrix.combiner.add_input(accumulator, _row(np.array([label]), row, np.array([1])))
    found = matrix.combiner.extract_output(accumulator)
    values = {key.name: value for one in derived for key, value in one.result(found).items()}
    told = {"labels": None if positive is None else [positive], "average": "macro", "zero_division": 0}
    expected = sklearn.metrics.precision_recall_fscore_support(labels, sure.argmax(1), **told)
    assert values == pytest.approx(dict(zip(("precision", "recall", "f1"), expected, strict=False)))


def _row(label: Any, prediction: Any, weight: Any) -> Any:
    from tensorflow_model_analysis.metrics import metric_types

    return metric_types.StandardMetricInputs(labels=label, predictions=prediction, example_weights=weight)


def _separated(computations: Any) -> tuple[list[Any], list[Any]]:
    from tensorflow_model_analysis.metrics import metric_types

    derived = [one for one in computations if isinstance(one, metric_types.DerivedMetricComputation)]
    return [one for one in computations if one not in derived], derived
