"""The same numbers as TFX's Evaluator: one run of each, with every metric, slice and threshold, and a baseline.

Covers `leaves`, `metric_plan`.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = [pytest.mark.tfx, pytest.mark.stack]

CLASS_SCORES = "infeed.components.evaluation.class_scores"
ERROR_MOMENTS = "infeed.components.evaluation.error_moments"
SLICES: list[dict[str, Any]] = [
    {},
    {"feature_keys": ["city"]},
    {"feature_keys": ["is_tall"], "feature_values": {"age": "1"}},  # one transformed, one of the examples
    {"feature_keys": ["birds"], "feature_values": {"age": "2", "city": "Bern"}},  # lists
]
# Of all classes together.
OF_CLASSES = [
    ("ExampleCount", {}),
    ("SparseCategoricalAccuracy", {}),
    ("SparseCategoricalCrossentropy", {}),
    ("MultiClassConfusionMatrixAtThresholds", {"thresholds": [0.3, 0.5]}),
    ("MultiClassConfusionMatrixPlot", {"thresholds": [0.3, 0.5]}),
    ("CategoricalCrossEntropy", {}),
    ("ClassF1", {"module": CLASS_SCORES}),
    ("ClassRecall", {"module": CLASS_SCORES, "positive": 1, "name": "recall_of_elm"}),
]
# Of one class, as TFMA measures two classes.
OF_ONE = [
    ("BinaryAccuracy", {}),
    ("AUC", {"num_thresholds": 200}),
    ("AUCPrecisionRecall", {"num_thresholds": 50}),
    ("Precision", {}),
    ("Recall", {"thresholds": [0.2, 0.6]}),
    ("F1Score", {}),
    ("ConfusionMatrixAtThresholds", {"thresholds": [0.25, 0.5]}),
    ("ConfusionMatrixPlot", {"num_thresholds": 6}),
    ("CalibrationPlot", {"num_buckets": 10}),
    ("BinaryCrossentropy", {}),
    ("BinaryCrossEntropy", {"label_smoothing": 0.1}),
    ("MeanSquaredError", {}),
    ("MeanAbsoluteError", {}),
    ("MeanAbsolutePercentageError", {}),
    ("MeanSquaredLogarithmicError", {}),
    ("RootMeanSquaredError", {}),
    ("RSquared", {"module": ERROR_MOMENTS, "center": 0.3}),
    ("MeanPrediction", {}),
    ("MeanLabel", {}),
    ("Calibration", {}),
]
BINARIZED = {"class_ids": {"values": [2]}}
AT_LEAST = {"value_threshold": {"lower_bound": 0.4}}
BETTER = {"change_threshold": {"direction": "HIGHER_IS_BETTER", "absolute": -0.01}}
NEVER = {"value_threshold": {"upper_bound": 0.01}}
IN_BERN = [{"feature_values": {"city": "Bern"}}]


@pytest.fixture(scope="module")
def config(build: ModuleType) -> Any:
    accuracy = build.metric("SparseCategoricalAccuracy", {**AT_LEAST, **BETTER}, name="accuracy")
    missed = build.metric("SparseCategoricalAccuracy", name="missed")
    missed["per_slice_thresholds"] = [{"slicing_specs": [{"feature_keys": ["city"]}], "threshold": NEVER}]
    return build.eval_config(
        {
            "metrics": [build.metric(name, **options) for name, options in OF_CLASSES],
        },
        {
            "metrics": [accuracy, missed, build.metric("WeightedExampleCount")],
            "example_weights": {"weighted": True, "unweighted": True},
        },
        {"metrics": [build.metric(name, **options) for name, options in OF_ONE], "binarize": BINARIZED},
        {"metrics": [build.metric("Precision"), build.metric("Recall")], "binarize": {"top_k_list": {"values": [2]}}},
        {"metrics": [build.metric("MeanPrediction", name="likeliest")], "binarize": {"k_list": {"values": [1]}}},
        {
            "metrics": [build.metric("Precision", name="mean_precision")],
            "aggregate": {"macro_average": True, "class_weights": {"0": 1.0, "1": 1.0, "2": 0.5}},
        },
        slices=SLICES,
        example_weight_key="weight",
    )


@pytest.fixture(scope="module")
def both(
    config: Any, examples: Any, model: Any, baseline: Any, tmp_path_factory: pytest.TempPathFactory, build: ModuleType
) -> tuple[Any, Any]:
    """(folder of the evaluation, blessing) by our Evaluator and by TFX's."""
    from tfx.components import Evaluator as TfxEvaluator

    from infeed.components.evaluation.component import Evaluator

    folder = tmp_path_factory.mktemp("both")
    kinds = {"ours": Evaluator, "theirs": TfxEvaluator}
    ours, theirs = (
        build.execute(kind, folder / name, examples, config, model, baseline) for name, kind in kinds.items()
    )
    return ours, theirs


def metrics_of(folder: str) -> dict[Any, dict[Any, Any]]:
    """Slice -> key -> the metric's proto."""
    import tensorflow_model_analysis as tfma

    return {
        record.slice_key.SerializeToString(deterministic=True): {
            entry.key.SerializeToString(deterministic=True): entry for entry in record.metric_keys_and_values
        }
        for record in tfma.load_metrics(folder)
    }


def flattened(value: Any, path: str = "") -> dict[str, Any]:
    """A message as its numbers and texts, by where they stand."""
    found: dict[str, Any] = {}
    for field, inside in value.ListFields():
        repeated = inside if field.label == field.LABEL_REPEATED else [inside]
        for number, one in enumerate(repeated):
            place = f"{path}.{field.name}[{number}]"
            found.update(flattened(one, place) if hasattr(one, "ListFields") else {place: one})
    return found


def assert_same(ours: Any, theirs: Any) -> None:
    found, expected = flattened(ours), flattened(theirs)
    assert found.keys() == expected.keys()
    for place, value in expected.items():
        if isinstance(value, float) and math.isfinite(value):
            assert found[place] == pytest.approx(value, rel=1e-6, abs=1e-6), place
        else:
            assert found[place] == value or value != value, place


def test_every_metric_of_every_slice_is_the_same(both: tuple[Any, Any]) -> None:
    ours, theirs = (metrics_of(folder) for folder, _ in both)
    assert ours.keys() == theirs.keys()
    assert len(ours) == 9
    for of_slice, expected in theirs.items():
        assert ours[of_slice].keys() == expected.keys()
        for key, value in expected.items():
            assert_same(ours[of_slice][key], value)


def test_plots_are_the_same(both: tuple[Any, Any]) -> None:
    import tensorflow_model_analysis as tfma

    ours, theirs = ({str(record.slice_key): record for record in tfma.load_plots(folder)} for folder, _ in both)
    assert ours.keys() == theirs.keys()
    for of_slice, expected in theirs.items():
        assert_same(ours[of_slice], expected)


def test_thresholds_are_missed_in_the_same_slices(both: tuple[Any, Any]) -> None:
    import tensorflow_model_analysis as tfma

    ours, theirs = (tfma.load_validation_result(folder) for folder, _ in both)
    assert not ours.validation_ok
    assert ours.rubber_stamp == theirs.rubber_stamp
    failed = [{str(one.slice_key): one for one in side.metric_validations_per_slice} for side in (ours, theirs)]
    assert failed[0].keys() == failed[1].keys()
    assert len(failed[0]) == 3  # the cities
    for of_slice, expected in failed[1].items():
        assert_same(failed[0][of_slice], expected)
    details = [sorted(str(one) for one in side.validation_details.slicing_details) for side in (ours, theirs)]
    assert details[0] == details[1]


def test_the_files_are_those_of_tfma(both: tuple[Any, Any]) -> None:
    import tensorflow_model_analysis as tfma

    ours, theirs = (Path(folder) for folder, _ in both)
    assert {path.name for path in ours.iterdir()} == {path.name for path in theirs.iterdir()}
    configs = [json.loads((folder / "eval_config.json").read_text()) for folder in (ours, theirs)]
    assert configs[0] == configs[1]
    attributions = [sorted(map(str, tfma.load_attributions(str(folder)))) for folder in (ours, theirs)]
    assert attributions[0] == attributions[1]


def test_people_read_it_with_tfma(both: tuple[Any, Any]) -> None:
    import tensorflow_model_analysis as tfma

    ours, theirs = (tfma.load_eval_result(folder, model_name="candidate") for folder, _ in both)
    assert ours.config == theirs.config
    assert ours.model_location == theirs.model_location
    assert {key for key, _ in ours.slicing_metrics} == {key for key, _ in theirs.slicing_metrics}


def test_the_blessing_is_the_same(both: tuple[Any, Any]) -> None:
    (_, ours), (_, theirs) = both
    assert sorted(path.name for path in Path(ours.uri).iterdir()) == ["NOT_BLESSED"]
    assert ours.mlmd_artifact.custom_properties == theirs.mlmd_artifact.custom_properties
