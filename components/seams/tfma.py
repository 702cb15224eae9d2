"""TensorFlow Model Analysis: the metrics of an eval config, and the settings of TFMA's combiners."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from infeed.components.seams.seam import Seam, listed

_TFMA = "tensorflow_model_analysis"
_VERSIONS = ("0.47.1", "0.52.0")
EVALUATION = Seam(
    "tensorflow-model-analysis",
    "metrics over whole batches",
    listed(
        {
            _TFMA: (
                "BASELINE_KEY MetricDirection.HIGHER_IS_BETTER metrics.metric_thresholds_from_metrics_specs "
                "utils.update_eval_config_with_defaults utils.verify_eval_config"
            ),
            f"{_TFMA}.api.types": "StructuredMetricValue",
            f"{_TFMA}.constants": "ATTRIBUTIONS_KEY METRICS_KEY PLOTS_KEY TF_GENERIC TF_KERAS VALIDATIONS_KEY",
            f"{_TFMA}.evaluators.metrics_validator": "validate_metrics",
            f"{_TFMA}.metrics.calibration_histogram": "Bucket",
            f"{_TFMA}.metrics.metric_specs": "to_computations",
            f"{_TFMA}.metrics.metric_types": (
                "CIDerivedMetricComputation DerivedMetricComputation Metric MetricComputation MetricKey PlotKey "
                "StandardMetricInputs StandardMetricInputsPreprocessor register_metric"
            ),
            f"{_TFMA}.metrics.metric_util": "merge_per_key_computations one_hot to_label_prediction_example_weight",
            f"{_TFMA}.metrics.multi_class_confusion_matrix_metrics": (
                "MatrixEntryKey MatrixEntryKey.actual_class_id MatrixEntryKey.predicted_class_id "
                "NO_PREDICTED_CLASS_ID multi_class_confusion_matrices"
            ),
            f"{_TFMA}.proto.config_pb2": "EvalConfig EvalRun ModelSpec",
            f"{_TFMA}.utils.model_util": (
                "find_input_name_in_features get_baseline_model_spec get_default_signature_name_from_model "
                "get_model_type is_callable_fn"
            ),
            f"{_TFMA}.writers.metrics_plots_and_validations_writer": (
                "CombineValidations convert_slice_attributions_to_proto convert_slice_metrics_to_proto "
                "convert_slice_plots_to_proto"
            ),
        }
    ),
    _VERSIONS,
    "TFX's own executor evaluates on Beam",
)
_PAIRS = ("aggregation_type", "class_weights", "example_weighted")  # settings of combiners that read predictions
_ERROR = ("metric_key", *_PAIRS)
_CROSS_ENTROPY = (*_ERROR, "from_logits", "label_smoothing")
# Class of a combiner -> settings, each an attribute with an underscore in front.
_COMBINERS = {
    "binary_confusion_matrices:_BinaryConfusionMatrixCombiner": (
        *("key", *_PAIRS, "binary_confusion_matrices"),
        *("enable_fractional_labels", "example_id_key", "extract_label_prediction_and_weight"),
    ),
    "calibration:_WeightedLabelsPredictionsExamplesCombiner": ("key", *_PAIRS),
    "calibration_histogram:_CalibrationHistogramCombiner": (
        *("key", *_PAIRS, "fractional_labels", "left", "num_buckets", "prediction_based_bucketing", "range"),
    ),
    "cross_entropy_metrics:_BinaryCrossEntropyCombiner": _CROSS_ENTROPY,
    "cross_entropy_metrics:_CategoricalCrossEntropyCombiner": _CROSS_ENTROPY,
    "example_count:_ExampleCountCombiner": ("keys", "model_name", "output_name", "example_weighted"),
    "mean_regression_error:_MeanAbsoluteErrorCombiner": _ERROR,
    "mean_regression_error:_MeanAbsolutePercentageErrorCombiner": _ERROR,
    "mean_regression_error:_MeanSquaredErrorCombiner": _ERROR,
    "mean_regression_error:_MeanSquaredLogarithmicErrorCombiner": _ERROR,
    "multi_class_confusion_matrix_metrics:_MultiClassConfusionMatrixCombiner": (
        *("key", "example_weighted", "extract_label_prediction_and_weight", "thresholds"),
    ),
    "tf_metric_wrapper:_CompilableMetricsCombiner": (
        *("model_name", "output_names", "sub_key", *_PAIRS, "metrics", "sub_key_in_config"),
    ),
}
COMBINERS = Seam(
    "tensorflow-model-analysis",
    "settings of the combiners that read rows",
    tuple(f"{_TFMA}.metrics.{kind}@_{name}" for kind, names in _COMBINERS.items() for name in names),
    _VERSIONS,
    "TFX's own executor evaluates on Beam if the eval config asks for a metric of a combiner that has changed",
)


def kind_of(combiner: Any) -> str:
    """Return the name of a TFMA combiner's metric, such as `BinaryCrossEntropy`. Empty for an unknown combiner."""
    kind = type(combiner)
    known = f"{kind.__module__.removeprefix(f'{_TFMA}.metrics.')}:{kind.__name__}" in _COMBINERS
    return kind.__name__.strip("_").removesuffix("Combiner") if known else ""


def settings_of(combiner: Any) -> SimpleNamespace:
    """Return the settings of a known combiner, by names without underscore. Raises AttributeError if one is missing."""
    kind = type(combiner)
    names = _COMBINERS[f"{kind.__module__.removeprefix(f'{_TFMA}.metrics.')}:{kind.__name__}"]
    found = SimpleNamespace(**{name: getattr(combiner, f"_{name}") for name in names})
    if hasattr(found, "binary_confusion_matrices"):
        found.thresholds = found.binary_confusion_matrices._thresholds
    return found


def keras_metrics(combiner: Any, output: str = "") -> list[Any]:
    """Return the Keras metrics of an output of a `CompilableMetrics` combiner."""
    combiner.setup()
    return list(combiner._metrics[output])
