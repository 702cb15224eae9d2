"""The Evaluator, ours and TFMA's own, about a model that JAX has trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Here `test_training` holds that JAX trains the weights of TensorFlow, and serves them.
pytestmark = [pytest.mark.tfx, pytest.mark.slow, pytest.mark.image]

METRICS = ("SparseCategoricalAccuracy", "SparseCategoricalCrossentropy", "ExampleCount")
OF_ONE_CLASS = ("AUC", "Calibration", "BinaryCrossEntropy")


def eval_config() -> Any:
    import infeed.components.evaluation.tfx_first  # noqa: F401 - before TFMA

    # isort: split
    import tensorflow_model_analysis as tfma
    from tensorflow_model_analysis.proto import config_pb2

    model = tfma.ModelSpec(
        signature_name="serving_default",
        preprocessing_function_names=["transform_features"],
        label_key="kind",
        prediction_key="probabilities",
    )
    kinds = METRICS, OF_ONE_CLASS
    of_rows, of_one_class = ([tfma.MetricConfig(class_name=name) for name in names] for names in kinds)
    one = config_pb2.BinarizationOptions(class_ids={"values": [0]})
    specs = [tfma.MetricsSpec(metrics=of_rows), tfma.MetricsSpec(metrics=of_one_class, binarize=one)]
    return tfma.EvalConfig(model_specs=[model], slicing_specs=[tfma.SlicingSpec()], metrics_specs=specs)


def metrics(folder: Path) -> dict[str, float]:
    import tensorflow_model_analysis as tfma

    [whole] = list(tfma.load_metrics(str(folder)))
    return {entry.key.name: entry.value.double_value.value for entry in whole.metric_keys_and_values}


def evaluated(place: Path, data: Path, output: Path) -> dict[str, float]:
    from infeed.components.evaluation import evaluate as plain

    completed = plain.completed(eval_config(), has_baseline=False)
    plain.evaluate(completed, [str(data)], [str(data / "Split-eval")], {False: str(place / "model")}, str(output))
    return metrics(output)


def test_the_numbers_are_those_of_the_tensorflow_backend(
    table: Any, train: Callable[..., Path], on_one_device: Path, options: dict[str, Any], tmp_path: Path
) -> None:
    train(table[0], "class", "table", place=tmp_path / "tensorflow", **options)
    found = evaluated(on_one_device, table[0], tmp_path / "of_jax")
    expected = evaluated(tmp_path / "tensorflow", table[0], tmp_path / "of_tensorflow")
    assert found.keys() == expected.keys()
    assert found["auc"] > 0.5
    assert found == pytest.approx(expected, abs=1e-4)


def test_tfmas_own_loader_gives_the_same_numbers(table: Any, on_one_device: Path, tmp_path: Path) -> None:
    import tensorflow_model_analysis as tfma

    found = evaluated(on_one_device, table[0], tmp_path / "ours")
    config = eval_config()
    model = tfma.default_eval_shared_model(str(on_one_device / "model"), eval_config=config)
    [shard] = (table[0] / "Split-eval").glob("*.gz")
    tfma.run_model_analysis(
        model, config, data_location=str(shard), output_path=str(tmp_path / "theirs"), file_format="tfrecords"
    )
    theirs = metrics(tmp_path / "theirs")
    assert theirs.keys() == found.keys()
    assert theirs == pytest.approx(found, abs=1e-6)
