"""Metrics of a model with several outputs, the same numbers as TFX's Evaluator gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.evaluation.component import Evaluator

pytestmark = [pytest.mark.tfx, pytest.mark.stack]

LABELS = {"size": "height", "sort": "number", "birds": "heard"}
OF_NUMBER = ("MeanSquaredError", "MeanAbsoluteError", "MeanLabel", "RootMeanSquaredError", "ExampleCount")
OF_CLASSES = ("SparseCategoricalAccuracy", "SparseCategoricalCrossentropy", "ExampleCount")
OF_SETS = ("BinaryAccuracy", "AUC", "Precision", "BinaryCrossentropy", "CalibrationPlot", "ExampleCount")
METRICS_OF_SETS = {"f1": "F1Score", "recall": "Recall", "precision": "Precision"}
AT_LEAST = {"value_threshold": {"lower_bound": 0.4}}


def made_of(slope: float = 1.0, known: Sequence[bytes] = (b"crow", b"owl", b"tit")) -> Any:
    """A module with an output for a number, one for a class, and one for a set of classes."""
    import tensorflow as tf

    number = tf.io.FixedLenFeature([1], tf.float32)
    spec = {"height": number, "girth": number, "kind": tf.io.FixedLenFeature([1], tf.string)}
    spec["birds"] = tf.io.VarLenFeature(tf.string)
    signature = [tf.TensorSpec([None], tf.string, name="examples")]
    model = tf.Module()

    @tf.function(input_signature=signature)
    def serving_default(examples: Any) -> Any:
        row = tf.io.parse_example(examples, spec)
        height, girth = row["height"], row["girth"]
        sure = tf.nn.softmax(slope * tf.concat([tf.zeros_like(height), height, girth], axis=1))
        heard = tf.sigmoid(tf.concat([height, girth, height - girth], axis=1)[:, : len(known)])
        return {
            "size": slope * girth[:, 0],
            "sort/probabilities": sure,
            "sort/class": tf.as_string(tf.argmax(sure, 1))[:, tf.newaxis],
            "birds/probabilities": heard,
        }

    @tf.function(input_signature=signature)
    def transform_features(examples: Any) -> Any:
        row = tf.io.parse_example(examples, spec)
        kinds = tf.argmax(row["kind"] == tf.constant([[b"oak", b"elm", b"ash"]]), axis=1)
        birds = tf.sparse.to_dense(row["birds"], b"")[..., tf.newaxis] == tf.constant(known)
        return {"number": kinds, "heard": tf.cast(tf.reduce_any(birds, axis=1), tf.float32)}

    model.serving_default, model.transform_features = serving_default, transform_features
    return model


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory, build: ModuleType) -> Any:
    return build.save_model(made_of(), tmp_path_factory.mktemp("outputs"))


@pytest.fixture(scope="module")
def config(build: ModuleType) -> Callable[..., Any]:
    def make(threshold: Mapping[str, Any], **model_spec: Any) -> Any:
        accuracy = build.metric("SparseCategoricalAccuracy", threshold, name="accuracy")
        given = {"label_key": "", "prediction_key": "", "label_keys": LABELS, **model_spec}
        return build.eval_config(
            {"metrics": [build.metric(name) for name in OF_NUMBER], "output_names": ["size"]},
            {"metrics": [accuracy, *map(build.metric, OF_CLASSES)], "output_names": ["sort"]},
            {"metrics": [build.metric(name) for name in OF_SETS], "output_names": ["birds"]},
            {"metrics": [build.metric("ExampleCount", name="rows")]},
            slices=[{}, {"feature_keys": ["city"]}],
            example_weight_key="weight",
            **given,
        )

    return make


def values_of(folder: str) -> dict[Any, Any]:
    import tensorflow_model_analysis as tfma

    found = {}
    for record in tfma.load_metrics(folder):
        key = record.slice_key.SerializeToString(deterministic=True)
        for entry in record.metric_keys_and_values:
            found[key, entry.key.SerializeToString(deterministic=True)] = entry.value.double_value.value
    return found


@pytest.mark.image  # here `test_component_against_tfx` compares one output
def test_every_output_has_the_metrics_that_tfx_gives_it(
    config: Any, examples: Any, outputs: Any, tmp_path: Path, caplog: Any, build: ModuleType
) -> None:
    from tfx.components import Evaluator as TfxEvaluator

    baseline = build.save_model(made_of(slope=0.3), tmp_path / "baseline")
    kinds = {"ours": Evaluator, "theirs": TfxEvaluator}
    found = {
        name: build.execute(kind, tmp_path / name, examples, config(AT_LEAST), outputs, baseline)
        for name, kind in kinds.items()
    }
    ours, theirs = (values_of(folder) for folder, _ in found.values())
    assert ours.keys() == theirs.keys()
    assert len(ours) > 100
    for key, value in theirs.items():
        assert ours[key] == pytest.approx(value, rel=1e-5, abs=1e-6), key
    assert "TFX's own executor" not in caplog.text


@pytest.mark.parametrize(("bound", "is_blessed"), [(0.1, True), (0.99, False)])
def test_the_metric_of_one_output_decides_about_the_blessing(
    bound: float, is_blessed: bool, config: Any, examples: Any, outputs: Any, tmp_path: Path, build: ModuleType
) -> None:
    made = config({"value_threshold": {"lower_bound": bound}})
    _, blessing = build.execute(Evaluator, tmp_path, examples, made, outputs)
    assert blessing.get_int_custom_property("blessed") == is_blessed


@pytest.mark.parametrize(
    ("names", "labels", "what", "where"),
    [
        ([], LABELS, "name no output", "eval_config.metrics_specs[0].output_names"),
        (["price"], LABELS, "no output 'price'", "eval_config.metrics_specs[0].output_names"),
        (["width"], {"width": "girth"}, "no output 'width'", "eval_config.metrics_specs.output_names"),  # of the model
    ],
)
def test_metrics_of_no_output_or_of_one_that_there_is_not_are_refused(
    names: list[str], labels: Any, what: str, where: str, examples: Any, outputs: Any, tmp_path: Path, build: ModuleType
) -> None:
    spec = {"metrics": [build.metric("MeanLabel")], "output_names": names}
    made = build.eval_config(spec, label_key="", prediction_key="", label_keys=labels)
    with pytest.raises(InfeedError, match=what) as raised:
        build.execute(Evaluator, tmp_path, examples, made, outputs)
    assert raised.value.where == where


@pytest.fixture
def told(examples: Any, outputs: Any, tmp_path: Path) -> Callable[..., tuple[Any, Any]]:
    """told(config, baseline, **options of the report) -> the verdict, and the report as JSON."""

    def evaluated(config: Any, baseline: Any = None, **options: Any) -> tuple[Any, Any]:
        from infeed.components.evaluation.evaluate import completed, evaluate
        from infeed.components.evaluation.model_report.options import ModelReport

        models = {is_baseline: one for is_baseline, one in ((False, outputs), (True, baseline)) if one}
        folders = {is_baseline: f"{one.uri}/Format-Serving" for is_baseline, one in models.items()}
        made = completed(config, has_baseline=baseline is not None)
        given = [examples.uri], [f"{examples.uri}/Split-eval"], folders, str(tmp_path)
        verdict = evaluate(made, *given, reports=[ModelReport(**options)])
        return verdict, json.loads((tmp_path / "model_report.json").read_text())

    return evaluated


def test_the_model_report_is_about_the_output_that_it_names(config: Any, told: Any) -> None:
    kinds = ("oak", "elm", "ash")
    _, report = told(config(AT_LEAST), task="classification", classes=kinds, metrics=("accuracy",), output="sort")
    assert [one["name"] for one in report["metrics"]] == ["accuracy"]


@pytest.fixture
def sets_config(build: ModuleType) -> Callable[..., Any]:
    def make(change: Mapping[str, Any] | None = None) -> Any:
        of_sets = [build.metric(kind, change, name=name, thresholds=0.55) for name, kind in METRICS_OF_SETS.items()]
        rows = {"metrics": [build.metric("ExampleCount", name="example_count")]}
        spec = {"metrics": of_sets, "output_names": ["birds"]}
        return build.eval_config(spec, rows, label_key="", prediction_key="", label_keys=LABELS)

    return make


OF_BIRDS = {"task": "multilabel", "classes": ("crow", "owl", "tit"), "threshold": 0.55, "output": "birds"}


def test_a_baseline_that_knew_fewer_classes_of_a_set_is_compared(
    sets_config: Callable[..., Any], told: Any, tmp_path: Path, build: ModuleType
) -> None:
    baseline = build.save_model(made_of(known=[b"crow", b"owl"]), tmp_path / "earlier")
    change = {"change_threshold": {"direction": "HIGHER_IS_BETTER", "absolute": -1.0}}
    verdict, report = told(sets_config(change), baseline, metrics=("f1",), **OF_BIRDS)
    assert verdict.validation_ok
    assert len(report["classes"]) == 3


def test_a_set_of_classes_has_a_page_whose_counts_are_those_of_tfma(
    sets_config: Callable[..., Any], told: Any, tmp_path: Path
) -> None:
    kinds = tuple(METRICS_OF_SETS)
    _, report = told(sets_config(), metrics=kinds, **OF_BIRDS)
    right, actual = (sum(one["rows"] - k * one["missed"] for one in report["classes"]) for k in (1, 0))
    called = right + sum(one["added"] for one in report["classes"])
    found = report["scores"]
    assert found["metrics"]["recall"] == pytest.approx(right / actual)
    assert found["metrics"]["precision"] == pytest.approx(right / called)
    assert found["metrics"]["f1"] == pytest.approx(2 * right / (actual + called))
    assert found["metrics"].keys() == {*kinds, *(f"macro_{name}" for name in kinds)}
    for name, (low, high) in found["intervals"].items():
        assert 0 <= low < found["metrics"][name] < high <= 1
    assert "always" in found["guesses"]["f1"]["by"]
    assert "crow" in (tmp_path / "model_report.html").read_text()
