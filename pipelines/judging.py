"""Metrics and thresholds of a config, as TFMA's EvalConfig. This module does not import TFX."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
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

from infeed.components.base.units import UniqueNames
from infeed.components.dataset.splits import ByColumns
from infeed.components.evaluation.model_report.options import STEM, ModelReport
from infeed.components.evaluation.model_report.scores import MATRIX, ROWS
from infeed.pipelines.config import Blessing, PipelineConfig
from infeed.pipelines.surveys import ImageSurvey, TableSurvey, Task

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
_OF_SETS = {"f1": "F1Score", "recall": "Recall", "precision": "Precision"}  # TFMA counts each class of each row


@dataclass(frozen=True)
class _Target:
    """An output of the model, and its label."""

    output: str  # name of the output. Empty if the model has only one
    feature: str  # transformed feature that is the label
    task: Task
    threshold: float
    classes: tuple[str, ...]
    class_rows: tuple[int, ...]
    mean: float
    blessing: Blessing | None  # None if another output decides

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics to compute. If the output decides, the first metric does."""
        if self.task == "regression":
            return ["mse", "mae", "r2"]
        metric = self.blessing.metric if self.blessing else "f1" if self.task == "multilabel" else "accuracy"
        if self.task == "multilabel":
            return sorted(_OF_SETS, key=lambda name: name != metric)
        if metric == "accuracy" and self.blessing:
            return ["accuracy"]
        names = ["accuracy", *(["auc"] if len(self.classes) == 2 else []), "recall", "precision", "f1"]
        return sorted(names, key=lambda name: name != metric)

    @property
    def positive(self) -> int | None:
        """Class index for AUC, recall, precision and F1. None for the mean over all classes."""
        if self.task != "classification":
            return None
        if self.blessing:
            return self.classes.index(self.blessing.positive) if self.blessing.positive else None
        return self.class_rows.index(min(self.class_rows)) if len(self.classes) == 2 else None


def _targets(config: PipelineConfig) -> list[_Target]:
    """Return the outputs of the model. The first one decides about the blessing."""
    survey, outputs = config.survey, dict(config.train.outputs)
    if isinstance(survey, ImageSurvey) or len(outputs) == 1:
        [(name, output)] = outputs.items()
        mean = survey.label.mean if isinstance(survey, TableSurvey) else 0.0
        classes = survey.classes if output.task != "regression" else ()
        facts = output.feature, output.task, output.threshold, classes, survey.class_rows, mean
        return [_Target(name, *facts, config.blessing)]
    found = []
    for label in survey.labels:
        name, output = label.column.name, outputs[label.column.name]
        facts = output.feature, output.task, output.threshold, label.classes, label.class_rows, label.column.mean
        found.append(_Target(name, *facts, config.blessing if name == config.blessing.output else None))
    return found


def eval_config(config: PipelineConfig) -> EvalConfig:
    """Return TFMA's config: the metrics, and the thresholds of the blessing."""
    targets = _targets(config)
    model = ModelSpec(signature_name="serving_default", preprocessing_function_names=["transform_features"])
    if targets[0].output:
        for one in targets:
            model.label_keys[one.output] = one.feature
    else:
        model.label_key = targets[0].feature
        model.prediction_key = "prediction" if targets[0].task == "regression" else "probabilities"
    rows = MetricConfig(class_name="ExampleCount", config=json.dumps({"name": ROWS}))
    specs = [spec for one in targets for spec in _specs(one, rows if not one.output else None)]
    specs += [MetricsSpec(metrics=[rows])] if targets[0].output else []
    return EvalConfig(model_specs=[model], slicing_specs=[SlicingSpec()], metrics_specs=specs)


def _specs(target: _Target, rows: MetricConfig | None) -> list[MetricsSpec]:
    """Return the metrics of an output, with the number of `rows` if there is no other output.

    AUC has a separate spec, because TFMA must binarize the probabilities for it.
    """
    metrics = {name: _metric(name, target) for name in target.metrics}
    if target.blessing:
        metrics[target.metrics[0]].threshold.CopyFrom(_threshold(target.blessing))
    auc = metrics.pop("auc", None)
    others = [rows] if rows else []
    if target.task == "classification":
        options = {"name": MATRIX, "thresholds": [0.0]}  # count every row at any confidence of the model
        others.append(MetricConfig(class_name="MultiClassConfusionMatrixAtThresholds", config=json.dumps(options)))
    of = [target.output] if target.output else []
    specs = [MetricsSpec(metrics=[*metrics.values(), *others], output_names=of)]
    if auc:
        one = BinarizationOptions(class_ids={"values": [target.positive]})
        specs.append(MetricsSpec(metrics=[auc], binarize=one, output_names=of))
    return specs


def model_reports(config: PipelineConfig) -> list[ModelReport]:
    """Return the options of the model report of each output. The first one decides about the blessing."""
    names, rule, reports = UniqueNames(), config.ingest.split_by, []
    for target in _targets(config):
        classes, positive, rows = target.classes, target.positive, target.class_rows
        suffix = f"-{names.take(re.sub(r'[^A-Za-z0-9]+', '_', target.output))}" if not target.blessing else ""
        reports.append(
            ModelReport(
                task=target.task,
                classes=classes,
                positive=positive if positive is not None and len(classes) == 2 else 1,
                threshold=target.threshold,
                metrics=tuple(target.metrics),
                scored_class=positive,
                split_by=rule.columns if isinstance(rule, ByColumns) else (),
                shown_classes=tuple(sorted(range(len(classes)), key=rows.__getitem__, reverse=True)[:10]),
                beat_guess=bool(target.blessing and target.blessing.beat_guess),
                output=target.output,
                file=STEM + suffix,
            )
        )
    return reports


def _metric(name: str, target: _Target) -> MetricConfig:
    if target.task == "multilabel":
        return MetricConfig(
            class_name=_OF_SETS[name], config=json.dumps({"name": name, "thresholds": target.threshold})
        )
    kind, module = _CLASSES[name]
    options: dict[str, Any] = {"name": name}
    if module == _OURS:
        options["positive"] = target.positive
    if module == _OF_ERRORS:
        options["center"] = target.mean
    return MetricConfig(class_name=kind, module=module, config=json.dumps(options))


def _threshold(blessing: Blessing) -> MetricThreshold:
    bound = {"value": blessing.bound}
    if blessing.higher_is_better:
        change = {"direction": MetricDirection.HIGHER_IS_BETTER, "absolute": {"value": -blessing.slack}}
        return MetricThreshold(value_threshold={"lower_bound": bound}, change_threshold=change)
    change = {"direction": MetricDirection.LOWER_IS_BETTER, "relative": {"value": blessing.slack}}
    return MetricThreshold(value_threshold={"upper_bound": bound}, change_threshold=change)
