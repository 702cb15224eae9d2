"""Metrics of a model with several outputs, the same numbers as TFX's Evaluator gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
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


def write_model(folder: Path, slope: float = 1.0, known: Sequence[bytes] = (b"crow", b"owl", b"tit")) -> Any:
    """A Model artifact with an output for a number, one for a class, and one for a set of classes."""
    import tensorflow as tf
    from tfx.types import standard_artifacts

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
    signatures = {"serving_default": serving_default, "transform_features": transform_features}
    tf.saved_model.save(model, str(folder / "Format-Serving"), signatures=signatures)
    artifact = standard_artifacts.Model()
    artifact.uri, artifact.id = str(folder), 7
    return artifact


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return write_model(tmp_path_factory.mktemp("outputs"))


@pytest.fixture(scope="module")
def config(eval_config: Callable[..., Any], metric: Callable[..., Any]) -> Callable[..., Any]:
    def make(threshold: Mapping[str, Any], **model_spec: Any) -> Any:
        accuracy = metric("SparseCategoricalAccuracy", threshold, name="accuracy")
        given = {"label_key": "", "prediction_key": "", "label_keys": LABELS, **model_spec}
        return eval_config(
            {"metrics": [metric(name) for name in OF_NUMBER], "output_names": ["size"]},
            {"metrics": [accuracy, *map(metric, OF_CLASSES)], "output_names": ["sort"]},
            {"metrics": [metric(name) for name in OF_SETS], "output_names": ["birds"]},
            {"metrics": [metric("ExampleCount", name="rows")]},
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
    config: Any, examples: Any, outputs: Any, execute: Callable[..., Any], tmp_path: Path, caplog: Any
) -> None:
    from tfx.components import Evaluator as TfxEvaluator

    baseline = write_model(tmp_path / "baseline", slope=0.3)
    kinds = {"ours": Evaluator, "theirs": TfxEvaluator}
    found = {
        name: execute(kind, tmp_path / name, examples, config(AT_LEAST), outputs, baseline)
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
    bound: float, is_blessed: bool, config: Any, examples: Any, outputs: Any, execute: Any, tmp_path: Path
) -> None:
    made = config({"value_threshold": {"lower_bound": bound}})
    _, blessing = execute(Evaluator, tmp_path, examples, made, outputs)
    assert blessing.get_int_custom_property("blessed") == is_blessed


def test_metrics_that_name_no_output_are_refused_before_work(
    eval_config: Any, metric: Any, examples: Any, outputs: Any, execute: Any, tmp_path: Path
) -> None:
    for names, value in ([], "name no output"), (["price"], "no output 'price'"):
        spec = {"metrics": [metric("MeanLabel")], "output_names": names}
        made = eval_config(spec, label_key="", prediction_key="", label_keys=LABELS)
        with pytest.raises(InfeedError, match=value) as raised:
            execute(Evaluator, tmp_path / value, examples, made, outputs)
        assert raised.value.where == "eval_config.metrics_specs[0].output_names"


def test_an_output_that_the_model_does_not_have_is_refused(
    eval_config: Any, metric: Any, examples: Any, outputs: Any, execute: Any, tmp_path: Path
) -> None:
    spec = {"metrics": [metric("MeanLabel")], "output_names": ["width"]}
    made = eval_config(spec, label_key="", prediction_key="", label_keys={"width": "girth"})
    with pytest.raises(InfeedError, match="no output 'width'"):
        execute(Evaluator, tmp_path, examples, made, outputs)


def test_the_model_report_is_about_the_output_that_it_names(
    config: Any, examples: Any, outputs: Any, tmp_path: Path
) -> None:
    from infeed.components.evaluation.evaluate import completed, evaluate
    from infeed.components.evaluation.model_report.options import ModelReport

    made = completed(config(AT_LEAST), has_baseline=False)
    report = ModelReport("classification", ("oak", "elm", "ash"), metrics=("accuracy",), output="sort")
    folders, models = [f"{examples.uri}/Split-eval"], {False: f"{outputs.uri}/Format-Serving"}
    evaluate(made, [examples.uri], folders, models, str(tmp_path), reports=[report])
    told = json.loads((tmp_path / "model_report.json").read_text())
    assert [one["name"] for one in told["metrics"]] == ["accuracy"]


@pytest.fixture
def sets_config(eval_config: Callable[..., Any], metric: Callable[..., Any]) -> Callable[..., Any]:
    def make(change: Mapping[str, Any] | None = None) -> Any:
        from infeed.components.evaluation.evaluate import completed

        of_sets = [metric(kind, change, name=name, thresholds=0.55) for name, kind in METRICS_OF_SETS.items()]
        rows = {"metrics": [metric("ExampleCount", name="example_count")]}
        spec = {"metrics": of_sets, "output_names": ["birds"]}
        made = eval_config(spec, rows, label_key="", prediction_key="", label_keys=LABELS)
        return completed(made, has_baseline=change is not None)

    return make


def test_a_baseline_that_knew_fewer_classes_of_a_set_is_compared(
    sets_config: Callable[..., Any], examples: Any, outputs: Any, tmp_path: Path
) -> None:
    from infeed.components.evaluation.evaluate import evaluate
    from infeed.components.evaluation.model_report.options import ModelReport

    baseline = write_model(tmp_path / "earlier", known=[b"crow", b"owl"])
    models = {is_baseline: f"{one.uri}/Format-Serving" for is_baseline, one in ((False, outputs), (True, baseline))}
    change = {"change_threshold": {"direction": "HIGHER_IS_BETTER", "absolute": -1.0}}
    report = ModelReport("multilabel", ("crow", "owl", "tit"), threshold=0.55, metrics=("f1",), output="birds")
    folders = [f"{examples.uri}/Split-eval"]
    told = evaluate(sets_config(change), [examples.uri], folders, models, str(tmp_path), reports=[report])
    assert told.validation_ok
    assert len(json.loads((tmp_path / "model_report.json").read_text())["classes"]) == 3


def test_a_set_of_classes_has_a_page_whose_counts_are_those_of_tfma(
    sets_config: Callable[..., Any], examples: Any, outputs: Any, tmp_path: Path
) -> None:
    from infeed.components.evaluation.evaluate import evaluate
    from infeed.components.evaluation.model_report.options import ModelReport

    kinds = tuple(METRICS_OF_SETS)
    report = ModelReport("multilabel", ("crow", "owl", "tit"), threshold=0.55, metrics=kinds, output="birds")
    folders, models = [f"{examples.uri}/Split-eval"], {False: f"{outputs.uri}/Format-Serving"}
    evaluate(sets_config(), [examples.uri], folders, models, str(tmp_path), reports=[report])
    told = json.loads((tmp_path / "model_report.json").read_text())
    right, actual = (sum(one["rows"] - k * one["missed"] for one in told["classes"]) for k in (1, 0))
    called = right + sum(one["added"] for one in told["classes"])
    found = told["scores"]
    assert found["metrics"]["recall"] == pytest.approx(right / actual)
    assert found["metrics"]["precision"] == pytest.approx(right / called)
    assert found["metrics"]["f1"] == pytest.approx(2 * right / (actual + called))
    assert found["metrics"].keys() == {*kinds, *(f"macro_{name}" for name in kinds)}
    for name, (low, high) in found["intervals"].items():
        assert 0 <= low < found["metrics"][name] < high <= 1
    assert "always" in found["guesses"]["f1"]["by"]
    assert "crow" in (tmp_path / "model_report.html").read_text()
