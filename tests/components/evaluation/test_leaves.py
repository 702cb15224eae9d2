"""Totals of leaves: however the rows are cut into batches, merging gives the same.

Covers `pairs`.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = [pytest.mark.tfx, pytest.mark.stack]

ROWS = 40
METRICS: dict[str, dict[str, Any]] = {
    "ExampleCount": {},
    "MeanLabel": {},
    "MeanSquaredError": {},
    "MeanAbsolutePercentageError": {},
    "BinaryCrossEntropy": {},
    "AUC": {"num_thresholds": 20},
    "ConfusionMatrixAtThresholds": {"thresholds": [0.5, 0.25]},
    "MultiClassConfusionMatrixAtThresholds": {"thresholds": [0.25, 0.5]},
    "CategoricalAccuracy": {},
}
cuts = st.lists(st.integers(0, ROWS), max_size=5).map(sorted)


@functools.cache
def plan_of(name: str, *, k: int = 0, top_k: int = 0) -> Any:
    """The plan of a metric: of class 1, of all classes, of the k-th likeliest class, or of the likeliest `top_k`."""
    import tfx.components  # noqa: F401 - before TFMA

    # isort: split
    import tensorflow_model_analysis as tfma
    from tensorflow_model_analysis.proto import config_pb2

    from infeed.components.evaluation.metric_plan import MetricPlan

    of_classes = name in ("ExampleCount", "MultiClassConfusionMatrixAtThresholds", "CategoricalAccuracy")
    chosen = {"k_list": [k]} if k else {"top_k_list": [top_k]} if top_k else {"class_ids": [1]}
    options = config_pb2.BinarizationOptions(**{which: {"values": values} for which, values in chosen.items()})
    metric = tfma.MetricConfig(class_name=name, config=json.dumps(METRICS[name]))
    metrics = tfma.MetricsSpec(metrics=[metric], binarize=None if of_classes else options)
    config = tfma.EvalConfig(model_specs=[tfma.ModelSpec(example_weight_key="weight")], metrics_specs=[metrics])
    return MetricPlan.of(tfma.utils.update_eval_config_with_defaults(config))


def observed(part: slice, *, sparse: bool = True) -> Any:
    """Rows whose weights and predictions are eighths, so that sums of them are exact."""
    from infeed.components.evaluation.pairs import Observed

    draw = np.random.default_rng(3)
    labels = draw.integers(0, 3, (ROWS, 1))
    predictions = (draw.integers(1, 8, (ROWS, 3)) / 8).astype(np.float32)
    weights = draw.integers(0, 4, ROWS) / 8
    rows = len(labels[part])
    return Observed(rows, labels[part] if sparse else np.eye(3)[labels[part, 0]], predictions[part], weights[part])


def total(leaf: Any, parts: Sequence[slice]) -> Any:
    sparse = type(leaf).__name__ != "KerasMetrics"
    totals = (leaf.total(leaf.terms({"": observed(part, sparse=sparse)})) for part in parts)
    return functools.reduce(leaf.merge, totals)


@pytest.mark.parametrize("name", METRICS)
@given(cuts=cuts)
@settings(max_examples=10)
def test_batches_cut_anywhere_give_the_same(name: str, cuts: list[int]) -> None:
    edges, plan = [0, *cuts, ROWS], plan_of(name)
    parts = [slice(start, stop) for start, stop in itertools.pairwise(edges) if start < stop]
    found, expected = (plan.metrics([total(leaf, of) for leaf in plan.leaves]) for of in (parts, [slice(0, ROWS)]))
    for key, value in expected.items():
        # A logarithm is rounded, and so is a sum of some; all else here is exact.
        assert found[key] == (pytest.approx(value, rel=1e-12) if "entropy" in key.name else value)


def test_weights_count_rows() -> None:
    (leaf,) = plan_of("ExampleCount").leaves
    (weighted,) = leaf.results(total(leaf, [slice(0, ROWS)])).values()
    assert weighted == observed(slice(0, ROWS)).weights.sum()


def test_a_confusion_matrix_is_exact_at_its_thresholds() -> None:
    """A prediction at the threshold is no positive one, and NaN is none either."""
    from infeed.components.evaluation.pairs import Observed

    (leaf,) = plan_of("ConfusionMatrixAtThresholds").leaves
    likely = np.array([[0, 0.5, 0], [0, 0.5001, 0], [0, np.nan, 0], [0, 0.9, 0]])
    rows = Observed(4, np.array([[1], [1], [1], [0]]), likely, None)
    (entries,) = leaf.results(leaf.total(leaf.terms({"": rows}))).values()
    matrix = entries[0.5].matrix
    assert (matrix.tp, matrix.fn, matrix.fp, matrix.tn) == (1, 2, 1, 0)


@pytest.mark.parametrize(
    ("name", "label", "prediction", "words"),
    [
        ("AUC", [[1]], [[0.5, np.nan]], "the model predicts NaN in 1 of 1 "),
        ("AUC", [[1]], [[0.5]], "class 1 is requested"),
        ("AUC", [[0.0, 1.5]], [[0.5, 0.5]], "a label is 1.5, but the metric needs probabilities"),
        ("MultiClassConfusionMatrixAtThresholds", [[1]], [[0.5]], "but the model predicts one number"),
    ],
)
def test_what_cannot_be_measured_is_an_error(name: str, label: Any, prediction: Any, words: str) -> None:
    from infeed.components.evaluation.pairs import Observed

    rows = Observed(1, np.array(label), np.array(prediction), None)
    with pytest.raises(ValueError, match=words):
        plan_of(name).leaves[0].terms({"": rows})


def by_tfma(leaf: Any, labels: Any, predictions: Any) -> Any:
    from tensorflow_model_analysis.metrics import metric_types

    total = leaf.combiner.create_accumulator()
    for label, prediction in zip(labels, predictions, strict=True):
        row = metric_types.StandardMetricInputs(labels=label, predictions=prediction, example_weights=np.array(1.0))
        total = leaf.combiner.add_input(total, row)
    return leaf.combiner.extract_output(total)


def by_ours(leaf: Any, labels: Any, predictions: Any) -> Any:
    from infeed.components.evaluation.pairs import Observed

    return leaf.results(leaf.total(leaf.terms({"": Observed(len(labels), labels, predictions, None)})))


@pytest.mark.parametrize("name", ["AUC", "ConfusionMatrixAtThresholds"])
@given(data=st.data())
@settings(max_examples=60)
def test_of_the_likeliest_classes_counts_are_those_of_tfma(name: str, data: st.DataObject) -> None:
    """Equal predictions are frequent: a saturated softmax gives many exact zeros. NaN is an error of both, or none."""
    rows, classes = data.draw(st.integers(1, 6)), data.draw(st.integers(2, 24))
    values = st.sampled_from([0.0, 0.2, 0.5, 1.0, *data.draw(st.sampled_from([[], [np.nan]]))])
    kind = data.draw(st.sampled_from([np.float32, np.float64]))
    predictions = np.array(data.draw(st.lists(values, min_size=rows * classes, max_size=rows * classes)), kind)
    predictions = predictions.reshape(rows, classes)
    labels = np.array(data.draw(st.lists(st.integers(0, classes - 1), min_size=rows, max_size=rows))).reshape(-1, 1)
    (leaf,) = plan_of(
        name, **{data.draw(st.sampled_from(["k", "top_k"])): data.draw(st.integers(1, min(classes, 4)))}
    ).leaves
    try:
        expected = by_tfma(leaf, labels, predictions)
    except ValueError:
        with pytest.raises(ValueError, match="the model predicts NaN in "):
            by_ours(leaf, labels, predictions)
    else:
        (found,), (wanted,) = by_ours(leaf, labels, predictions).values(), expected.values()
        assert repr(found) == repr(wanted)  # NaN is not equal to itself
