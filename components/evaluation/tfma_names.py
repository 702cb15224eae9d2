"""The names of TFMA that the Evaluator uses beyond its documented interface, read before the first row is.

TFMA promises none of them. If an installed version lacks one, TFX's own Evaluator takes over.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Mapping

from infeed.components.evaluation.pairs import BeyondError

# Module of TFMA -> names in it. The private attributes of its combiners are checked by each `Leaf`.
USED: Mapping[str, tuple[str, ...]] = {
    "": (
        "EvalConfig",
        "metrics.metric_thresholds_from_metrics_specs",
        "utils.update_eval_config_with_defaults",
        "utils.verify_eval_config",
    ),
    "api.types": ("StructuredMetricValue",),
    "constants": ("ATTRIBUTIONS_KEY", "METRICS_KEY", "PLOTS_KEY", "TF_GENERIC", "TF_KERAS", "VALIDATIONS_KEY"),
    "evaluators.metrics_validator": ("validate_metrics",),
    "metrics.calibration_histogram": ("Bucket",),
    "metrics.metric_specs": ("to_computations",),
    "metrics.metric_types": (
        "CIDerivedMetricComputation",
        "DerivedMetricComputation",
        "Metric",
        "MetricComputation",
        "MetricKey",
        "PlotKey",
        "StandardMetricInputsPreprocessor",
        "register_metric",
    ),
    "metrics.metric_util": ("merge_per_key_computations", "one_hot", "to_label_prediction_example_weight"),
    "metrics.multi_class_confusion_matrix_metrics": (
        "MatrixEntryKey",
        "MatrixEntryKey.actual_class_id",
        "MatrixEntryKey.predicted_class_id",
        "NO_PREDICTED_CLASS_ID",
        "multi_class_confusion_matrices",
    ),
    "proto.config_pb2": ("EvalConfig", "EvalRun", "ModelSpec"),
    "utils.model_util": (
        "find_input_name_in_features",
        "get_baseline_model_spec",
        "get_default_signature_name_from_model",
        "get_model_type",
        "is_callable_fn",
    ),
    "writers.metrics_plots_and_validations_writer": (
        "CombineValidations",
        "convert_slice_attributions_to_proto",
        "convert_slice_metrics_to_proto",
        "convert_slice_plots_to_proto",
    ),
}


def check_names() -> None:
    """
    Raises:
      BeyondError: this TFMA lacks one of the names.
    """
    for place, names in USED.items():
        module = f"tensorflow_model_analysis.{place}".rstrip(".")
        try:
            found = importlib.import_module(module)
            for name in names:
                operator.attrgetter(name)(found)
        except (ImportError, AttributeError) as error:
            raise BeyondError(f"this TFMA is another: {error}") from error
