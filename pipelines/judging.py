"""Metrics and thresholds of a config, as TFMA's EvalConfig. This module does not import TFX."""

from __future__ import annotations

import json
from typing import Any

import infeed.components.evaluation.tfx_first  # noqa: F401 - before TFMA

# isort: split
# TFMA 0.52 exports these names at its top level only after TFX is imported.
from tensorflow_model_analysis.proto.config_pb2 import (
    BinarizationOptions,
    EvalConfig,
    MetricConfig,
    MetricDirection,
    MetricsSpec,
    MetricThreshold,
    ModelSpec,
    SlicingSpec,
)

from infeed.components.dataset.splits import ByColumns
from infeed.components.evaluation.model_report.options import ModelReport
from infeed.components.evaluation.model_report.scores import MATRIX, ROWS
from infeed.pipelines.config import Blessing, PipelineConfig
from infeed.pipelines.surveys import TableSurvey

_OURS = "infeed.components.evaluation.class_scores"
_OF_ERRORS = "infeed.components.evaluation.error_moments"

# Metric classes of TFMA and of this package.
_CLASSES = {
    # There is no cross-entropy, because it is undefined for a record whose class no training record has.
    "accuracy": ("SparseCategoricalAccuracy", ""),
    "auc": ("AUC", ""),
    "recall": ("ClassRecall", _OURS),
    "precision": ("ClassPrecision", _OURS),
    "f1": ("ClassF1", _OURS),
    "mse": ("MeanSquaredError", ""),
    "mae": ("MeanAbsoluteError", ""),
    "r2": ("RSquared", _OF_ERRORS),
}


def measured(config: PipelineConfig) -> list[str]:
    """Return the names of the metrics to compute. The first decides about the blessing."""
    if config.train.task == "regression":
        return ["mse", "mae", "r2"]
    if config.blessing.metric == "accuracy":
        return ["accuracy"]
    names = ["accuracy", *(["auc"] if len(config.survey.classes) == 2 else []), "recall", "precision", "f1"]
    return sorted(names, key=lambda name: name != config.blessing.metric)


def eval_config(config: PipelineConfig) -> EvalConfig:
    """Return TFMA's config: the metrics, and the thresholds of the blessing.

    AUC has a separate spec, because TFMA must binarize the probabilities for it.
    """
    model = ModelSpec(
        signature_name="serving_default",
        preprocessing_function_names=["transform_features"],
        label_key=config.train.only_label,
        prediction_key="probabilities" if config.train.task == "classification" else "prediction",
    )
    first, *_ = names = measured(config)
    metrics = {name: _metric(name, config) for name in names}
    metrics[first].threshold.CopyFrom(_threshold(config.blessing))
    auc = metrics.pop("auc", None)
    counts = [MetricConfig(class_name="ExampleCount", config=json.dumps({"name": ROWS}))]
    if config.train.task == "classification":
        options = {"name": MATRIX, "thresholds": [0.0]}  # count every row at any confidence of the model
        counts.append(MetricConfig(class_name="MultiClassConfusionMatrixAtThresholds", config=json.dumps(options)))
    specs = [MetricsSpec(metrics=[*metrics.values(), *counts])]
    if auc:
        one = BinarizationOptions(class_ids={"values": [_positive(config)]})
        specs.append(MetricsSpec(metrics=[auc], binarize=one))
    return EvalConfig(model_specs=[model], slicing_specs=[SlicingSpec()], metrics_specs=specs)


def model_report(config: PipelineConfig) -> ModelReport:
    """Return the options of the model report."""
    classes = config.survey.classes if config.train.task == "classification" else ()
    positive = _positive(config) if classes else None
    rule = config.ingest.split_by
    return ModelReport(
        task="classification" if config.train.task == "classification" else "regression",
        classes=classes,
        positive=positive if positive is not None and len(classes) == 2 else 1,
        threshold=config.train.threshold,
        metrics=tuple(measured(config)),
        scored_class=positive,
        split_by=rule.columns if isinstance(rule, ByColumns) else (),
        shown_classes=tuple(sorted(range(len(classes)), key=lambda one: -config.survey.class_rows[one])[:10]),
        beat_guess=config.blessing.beat_guess,
    )


def _metric(name: str, config: PipelineConfig) -> MetricConfig:
    kind, module = _CLASSES[name]
    options: dict[str, Any] = {"name": name}
    if module == _OURS:
        options["positive"] = _positive(config)
    if module == _OF_ERRORS and isinstance(config.survey, TableSurvey):
        options["center"] = config.survey.label.mean
    return MetricConfig(class_name=kind, module=module, config=json.dumps(options))


def _positive(config: PipelineConfig) -> int | None:
    """Return the class index for AUC, recall, precision and F1; None for the mean over all classes."""
    return config.survey.classes.index(config.blessing.positive) if config.blessing.positive else None


def _threshold(blessing: Blessing) -> MetricThreshold:
    bound = {"value": blessing.bound}
    if blessing.higher_is_better:
        change = {"direction": MetricDirection.HIGHER_IS_BETTER, "absolute": {"value": -blessing.slack}}
        return MetricThreshold(value_threshold={"lower_bound": bound}, change_threshold=change)
    change = {"direction": MetricDirection.LOWER_IS_BETTER, "relative": {"value": blessing.slack}}
    return MetricThreshold(value_threshold={"upper_bound": bound}, change_threshold=change)
