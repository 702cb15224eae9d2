"""Files of the report: `model_report.html` for people and `model_report.json` for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np

from infeed.components.base import units
from infeed.components.base.drawing import notebook_frame, render
from infeed.components.base.units import significant
from infeed.components.dataset import files
from infeed.components.evaluation.model_report import plots
from infeed.components.evaluation.model_report.clusters import classes_of, scores_of_sets
from infeed.components.evaluation.model_report.collected import BINS, SAMPLE, calibration_error
from infeed.components.evaluation.model_report.findings import ModelFindings, likely_confusions
from infeed.components.evaluation.model_report.importance import REPEATS
from infeed.components.evaluation.model_report.scores import (
    LABELS,
    Scores,
    bounds_of,
    decimals_of,
    judged,
    rounded,
    with_interval,
)

FORMAT = 1
_PLOTS = ("roc", "precision_recall", "reliability", "predicted", "residuals", "by_prediction", "importance")
_CLASSES_SHOWN = 50  # rows of the table of the classes of sets
_MATRIX_SHOWN = 20  # with more classes, the page lists the most frequent errors instead of the matrix


@dataclass(frozen=True)
class MetricLine:
    """Metric of all rows, that of the baseline, and the limits of the blessing. Empty texts for missing ones."""

    name: str
    value: float
    baseline: float | None = None
    bounds: str = ""


@dataclass(frozen=True)
class MetricRow:
    """Row of the table of metrics, as text."""

    name: str
    value: str
    interval: str
    guess: str
    baseline: str
    difference: str
    bounds: str

    @classmethod
    def of(cls, line: MetricLine, scores: Scores | None) -> MetricRow:
        interval = scores.intervals.get(line.name) if scores else None
        guess = scores.guesses.get(line.name) if scores else None
        return cls(
            titled(line.name),
            rounded(line.value, decimals_of(interval)) if interval else significant(line.value),
            bounds_of(interval) if interval else "",
            f"{significant(guess.value)} ({guess.by})" if guess else "",
            significant(line.baseline),
            significant(line.value - line.baseline) if line.baseline is not None else "unknown",
            line.bounds,
        )


def titled(metric: str) -> str:
    """Return the name of a metric for people: accuracy -> Accuracy, auc -> AUC."""
    name = {**LABELS, "auc": "AUC", "macro_f1": "macro F1"}.get(metric, metric)
    return name[:1].upper() + name[1:]


@dataclass(frozen=True)
class ModelPage:
    """Content of a report."""

    findings: ModelFindings
    split: str  # names of the splits
    blessed: bool | None  # whether the model meets its thresholds. None without thresholds
    metrics: tuple[MetricLine, ...]
    slices: Mapping[str, Mapping[str, float]]  # metrics of each slice, by the text of the slice
    scores: Scores | None = None  # with intervals and guesses. None if the eval config has not all their inputs
    doubt: str = ""  # why the model is not better than a guess. Empty if it is, or if this is not checked

    def write(self, folder: str) -> None:
        """Write both files into a folder, each atomically."""
        stem = files.join(folder, self.findings.report.file)
        files.write_bytes(f"{stem}.json", self.to_json().encode())
        files.write_bytes(f"{stem}.html", self.to_html().encode())

    def to_json(self) -> str:
        """Return JSON; see docs/evaluation.md."""
        found = self.findings
        content: dict[str, Any] = {
            "format": FORMAT,
            "split": self.split,
            "rows": found.sums.rows,
            "rows_with_nan": found.sums.nans,
            "blessed": self.blessed,
            "loss": found.sums.loss / max(1, found.sums.rows - found.sums.nans),
            "metrics": [asdict(line) for line in self.metrics],
            "slices": self.slices,
            "scores": asdict(self.scores) if self.scores else None,
            "importance": [asdict(one) for one in found.importances],
            "importance_rows": found.shuffled_rows,
            "groups_compared": found.groups.compared,
            "worst_groups": [asdict(group) for group in found.groups.worst],
            "worst_rows": [{**asdict(row), "picture": bool(row.picture)} for row in found.worst],
        }
        if found.report.task == "multilabel":
            content |= {
                "classes": [asdict(one) for one in classes_of(found.sums.sets, found.report)],
                "confusions": likely_confusions(found),
            }
        if found.report.task == "classification":
            content |= {
                "classes": [found.report.name_of(number) for number in range(found.sample.scores.shape[1])],
                "confusion_matrix": np.asarray(found.sums.matrix).tolist(),
            }
        if found.report.task != "regression":
            content |= {
                "curves": {
                    name: {"auc": curve.auc, "average_precision": curve.average_precision}
                    for name, curve in found.curves.items()
                },
                "calibration": found.sums.bins.tolist(),
                "expected_calibration_error": calibration_error(found.sums.bins),
                "both": None if found.both is None else found.both.tolist(),
            }
        return json.dumps(_finite(content), indent=1)

    def to_html(self) -> str:
        """Return a self-contained HTML page, without scripts or network access."""
        found = self.findings
        are_sets = found.report.task == "multilabel"
        classes = islice(classes_of(found.sums.sets, found.report), _CLASSES_SHOWN) if are_sets else ()
        return render(
            "infeed.components.evaluation.model_report",
            "model_report.html.j2",
            page=self,
            found=found,
            report=found.report,
            headline=self.headline,
            in_words=self.in_words,
            metrics=self._metric_rows(),
            matrix=self._matrix(),
            classes=[(one, bounds_of(one.interval) if one.interval else "") for one in classes],
            confusions=likely_confusions(found),
            calibration_error=calibration_error(found.sums.bins) if found.report.task != "regression" else None,
            drawn=self._plots(),
            significant=significant,
            constants={"bins": BINS, "sample": SAMPLE, "repeats": REPEATS, "classes": _CLASSES_SHOWN},
        )

    def _repr_html_(self) -> str:
        return notebook_frame(self.to_html())

    @property
    def headline(self) -> str:
        """Return the decisive metric, its interval, and the score of a guess, after the output if there are several."""
        scores, name, output = self.scores, judged(self.findings.report), self.findings.report.output
        score = self.in_words
        if scores and name in scores.metrics:
            guess = scores.guesses.get(name)
            than = f"; {guess.by} scores {significant(guess.value)}" if guess else ""
            value = with_interval(name, scores.metrics[name], scores.intervals.get(name))
            score = f"{titled(name)} {value} on {units.counted(scores.rows, f'{scores.split} row')}{than}."
        return f"{output}: {score}" if output else score

    def _metric_rows(self) -> list[MetricRow]:
        """Return the rows of the table of metrics as in the terminal: the root of a mean square comes first.

        The means over the classes of sets come last.
        """
        lines = {line.name: line for line in self.metrics}
        if (mse := lines.get("mse")) and self.scores and "rmse" in self.scores.metrics:
            root = None if mse.baseline is None else math.sqrt(mse.baseline)
            lines = {"rmse": MetricLine("rmse", math.sqrt(mse.value), root), **lines}
        baseline = self.findings.baseline
        of_baseline = scores_of_sets(baseline.sets) if baseline and np.ndim(baseline.sets) else {}
        for name, value in (self.scores.metrics if self.scores else {}).items():
            if name.startswith("macro_"):
                lines[name] = MetricLine(name, value, float(of_baseline[name]) if name in of_baseline else None)
        return [MetricRow.of(line, self.scores) for line in lines.values()]

    @property
    def in_words(self) -> str:
        """Return one sentence about the errors of the model."""
        found, rows = self.findings, units.counted(self.findings.sums.rows, f"{self.split} row")
        if found.report.task == "multilabel":
            share = units.percent(found.sums.exact / found.sums.rows)
            return f"The model predicts exactly the right set of classes for {share} of {rows}."
        if found.report.task == "classification":
            if not np.ndim(found.sums.matrix):
                return f"The model was evaluated on {rows}."
            right = int(np.trace(found.sums.matrix[:-1]))
            return f"The model predicts the right class for {units.percent(right / found.sums.rows)} of {rows}."
        losses = found.sample.losses
        half, most = np.quantile(losses, [0.5, 0.9])
        return (
            f"Half of the predictions for {rows} are off by at most {significant(half)}, "
            f"and nine in ten by at most {significant(most)}."
        )

    def _matrix(self) -> list[tuple[str, list[tuple[int, float]]]]:
        """Return (class, [(rows, share of the row)]) of each actual class. Empty for many classes."""
        matrix = np.asarray(self.findings.sums.matrix)
        if self.findings.report.task != "classification" or not matrix.ndim or matrix.shape[1] > _MATRIX_SHOWN:
            return []
        name, last = self.findings.report.name_of, len(matrix) - 1
        order = sorted(range(last), key=lambda one: -matrix[one].sum()) if last > 2 else list(range(last))
        rows = [(row, matrix[row, order].tolist()) for row in [*order, last]]
        return [
            (name(-1 if row == last else row), [(count, count / max(1, sum(counts))) for count in counts])
            for row, counts in rows
            if row < last or sum(counts)
        ]

    def _plots(self) -> dict[str, str]:
        found, report = self.findings, self.findings.report
        drawn = dict.fromkeys(_PLOTS, "")
        if report.task == "regression":
            labels, predicted = found.sample.labels, found.sample.predicted
            good = np.isfinite(found.sample.losses)
            if good.any():
                labels, predicted = labels[good], predicted[good]
                drawn["predicted"] = plots.predicted_by_label(labels, predicted)
                drawn["residuals"] = plots.residuals(predicted - labels)
                drawn["by_prediction"] = plots.residuals_by_prediction(labels, predicted)
        elif found.curves:
            has_point = len(found.curves) == 1 and (report.task == "multilabel" or found.sample.scores.shape[1] == 2)
            threshold = (report.threshold if report.positive else 1 - report.threshold) if has_point else None
            drawn["roc"] = plots.roc(found.curves, found.baseline_curve, threshold)
            drawn["precision_recall"] = plots.precision_recall(found.curves, found.baseline_curve, threshold)
        if report.task != "regression" and found.sums.bins[:, 0].any():
            drawn["reliability"] = plots.reliability(found.sums.bins, found.baseline.bins if found.baseline else None)
        if found.importances:
            drawn["importance"] = plots.importance(found.importances)
        return drawn


def _finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not support, with None."""
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
