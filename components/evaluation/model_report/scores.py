"""Scores of a model: number of rows, intervals, and the score of guessing on the same rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from infeed.components.base.units import counted, significant
from infeed.components.evaluation import intervals
from infeed.components.evaluation.intervals import Interval, Matrix
from infeed.components.evaluation.model_report.clusters import SCORES, ClusterSums, best_guess, scores_of_sets
from infeed.components.evaluation.model_report.options import ModelReport

# Inputs of the intervals: names of metrics in the eval config.
ROWS, MATRIX = "example_count", "confusion_matrix"
LABELS = {"mse": "MSE", "rmse": "RMSE", "mae": "MAE", "r2": "R²"} | {
    f"macro_{name}": f"macro {name}"
    for name in SCORES  # means over the classes of sets
}
_FEW_ROWS = 100  # below this, a score is unreliable even if its interval is narrow
_FEW_GROUPS = 30
_WIDE_SHARE = 0.05  # half the width of the interval of a share
_WIDE_ERROR = 1.25  # ratio of the bounds of an error's interval, about 100 rows
_ERRORS = ("mse", "rmse", "mae")
_SHARES = ("accuracy", "auc", *SCORES, *(f"macro_{name}" for name in SCORES))  # metrics from 0 to 1
_UNKNOWN = -1  # class id of rows whose class no training row has
_DECIMALS = 6  # numbers with more decimals use an exponent
_ALIKE = 0.1  # largest relative difference of the halves of an interval that "±" may hide


@dataclass(frozen=True)
class Guess:
    """Score of guessing, which the model must exceed."""

    value: float  # score of the guess on the scored rows
    by: str  # strategy of the guess, for example "always 'no'"


@dataclass(frozen=True)
class Scores:
    """Scores of one model on one split."""

    split: str  # name of the split
    rows: int  # number of rows of the split
    metrics: Mapping[str, float]  # values by name. The first metric decides about the blessing
    # 95 % intervals by metric, if it has one.
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    guesses: Mapping[str, Guess] = field(default_factory=dict)  # scores of guessing, by metric
    caution: str = ""  # why the score is unreliable. Empty if it is reliable
    groups: int = 0  # number of groups that the intervals resample. 0 if they resample rows


Parts = tuple[dict[str, float], dict[str, Interval | None], dict[str, Guess]]


def read_scores(record: Any, report: ModelReport, split: str, clusters: ClusterSums | None = None) -> Scores | None:
    """Return the scores from TFMA's MetricsForSlice of all rows. None if it has not all inputs of intervals.

    Args:
      clusters: sums of the groups that the intervals resample.
    """
    values = {
        entry.key.name: entry.value
        for entry in record.metric_keys_and_values
        if not entry.key.is_diff
        and entry.key.model_name != "baseline"
        and (entry.key.output_name == report.output or entry.key.name == ROWS)
    }
    given = {key: value.double_value.value for key, value in values.items() if value.HasField("double_value")}
    metrics = {key: given[key] for key in report.metrics if key in given}
    if not given.get(ROWS):  # the sum of their weights
        return None
    rows = int(given[ROWS])
    if report.task == "multilabel":
        if metrics.keys() != set(report.metrics):
            return None
        parts = of_sets(metrics, given[ROWS], report, clusters)
        return make_scores(report, split, clusters.rows if clusters else rows, parts, clusters)
    if report.task == "regression":
        if not {"mse", "mae", "r2", "label_variance"} <= given.keys():
            return None
        return make_scores(report, split, rows, of_errors(metrics, given, rows), clusters)
    if MATRIX not in values:
        return None
    (found,) = values[MATRIX].multi_class_confusion_matrix_at_thresholds.matrices
    matrix = {(cell.actual_class_id, cell.predicted_class_id): cell.num_weighted_examples for cell in found.entries}
    scores = make_scores(report, split, rows, of_classes(metrics, matrix, report), clusters)
    return _naming_rare_class(scores, matrix, report)


def make_scores(
    report: ModelReport, split: str, rows: int, parts: Parts, clusters: ClusterSums | None = None
) -> Scores:
    """Return the scores that are defined, with a caution if they are unreliable.

    R2 of a constant label and the precision of a class that is never predicted are undefined.
    """
    metrics, found, guesses = parts
    metrics = {key: value for key, value in metrics.items() if math.isfinite(value)}
    guesses = {key: guess for key, guess in guesses.items() if key in metrics}
    groups = len(clusters) if clusters and report.split_by else 0
    if groups == 1 and report.task != "multilabel":
        groups = 0  # the intervals of rows stand
    if clusters and groups:
        found = _of_clusters(metrics, clusters, report)
    known = {key: interval for key, interval in found.items() if interval and key in metrics}
    scores = Scores(split, rows, metrics, known, guesses, groups=groups)
    return replace(scores, caution=_caution(scores, report))


def _of_clusters(
    metrics: Mapping[str, float], clusters: ClusterSums, report: ModelReport
) -> dict[str, Interval | None]:
    left_out = clusters.left_out(report)
    return {key: intervals.of_clusters(value, left_out.get(key), key) for key, value in metrics.items()}


def of_sets(metrics: Mapping[str, float], rows: float, report: ModelReport, clusters: ClusterSums | None) -> Parts:
    """Return metrics, intervals and the guess of sets of classes. Without sums of groups, only the metrics.

    `rows` is the sum of the weights of all rows.
    """
    if not clusters:
        return dict(metrics), {}, {}
    sums = clusters.total
    of_all = scores_of_sets(sums)
    told = {**metrics, **{f"macro_{name}": float(of_all[f"macro_{name}"]) for name in metrics if name in SCORES}}
    guesses = {"f1": Guess(*best_guess(sums, rows, report))} if "f1" in metrics else {}
    return told, _of_clusters(told, clusters, report), guesses


def of_errors(metrics: Mapping[str, float], given: Mapping[str, float], rows: int) -> Parts:
    """Return metrics, intervals and guesses of a regression.

    `given` are the measurements of `error_moments.RSquared`.
    """
    mse, mae, variance = metrics["mse"], metrics["mae"], given["label_variance"]
    of_mse = intervals.of_mean_square(mse, given["mse_standard_error"], rows)
    # The variance of |error| follows from its mean and the mean of its square.
    of_mae = intervals.of_mean_square(mae, math.sqrt(max(0.0, mse - mae**2) / max(rows, 1)), rows)
    found = {
        "rmse": of_mse and (math.sqrt(of_mse[0]), math.sqrt(of_mse[1])),
        "r2": intervals.of_r2(metrics["r2"], given["r2_standard_error"], rows),
        "mse": of_mse,
        "mae": of_mae,
    }
    told = {"rmse": math.sqrt(mse), **{name: metrics[name] for name in ("r2", "mse", "mae")}}
    values = {"rmse": math.sqrt(variance), "r2": 0.0, "mse": variance}
    return told, found, {name: Guess(value, "always the mean") for name, value in values.items()}


def of_classes(metrics: Mapping[str, float], matrix: Matrix, report: ModelReport) -> Parts:
    """Return metrics, intervals and guesses of a classification."""
    rows, actual = sum(matrix.values()), intervals.rows_of(matrix, 0)
    # A class without training rows is not a guess, unless all rows have such a class.
    known = {one: count for one, count in actual.items() if one != _UNKNOWN} or actual
    commonest, most = max(known.items(), key=lambda item: item[1])
    share, always = most / rows, f"always {report.name_of(commonest)!r}"
    found = {"accuracy": intervals.of_share(metrics["accuracy"], rows)} if "accuracy" in metrics else {}
    guesses = {"accuracy": Guess(share, always)}
    positive = report.scored_class
    if positive is None:
        found |= intervals.of_means(matrix, _UNKNOWN)
        guesses["f1"] = Guess(2 * share / (1 + share) / len(known), always)
    else:
        positives = actual[positive]
        found |= intervals.of_class(matrix, positive)
        found["auc"] = intervals.of_auc(metrics.get("auc", math.nan), positives, rows - positives)
        of_positive = positives / rows
        guesses["f1"] = Guess(2 * of_positive / (1 + of_positive), f"always {report.name_of(positive)!r}")
        guesses["auc"] = Guess(0.5, "guessing")
    return dict(metrics), found, {key: guess for key, guess in guesses.items() if key in metrics}


def judged(report: ModelReport) -> str:
    """Return the decisive metric in its readable form: the root of a mean square."""
    first = report.metrics[0] if report.metrics else ""
    return "rmse" if first == "mse" else first


def _compared(scores: Scores, report: ModelReport) -> str:
    """Return the metric that shows whether the model is better than a guess.

    For an error, R2 does: it compares the model and the mean on the same rows, so hard rows widen its interval less.
    """
    name = judged(report)
    return "r2" if name == "rmse" and "r2" in scores.intervals else name


def unproven(scores: Scores, report: ModelReport) -> str:
    """Return why the rows do not prove the model better than a guess. Empty if they do, or there is no known guess."""
    name = _compared(scores, report)
    guess = scores.guesses.get(name)
    if guess is None:
        return ""
    if name not in scores.intervals and _are_few(scores):
        return f"{_sample(scores, report)} are too few to show whether it is better than {guess.by}"
    low, high = scores.intervals.get(name, (scores.metrics[name],) * 2)  # an error of 0 has no interval
    if (guess.value < low) if name not in _ERRORS else (high < guess.value):
        return ""
    bounds = bounds_of((low, high))
    than = f"{guess.by}, which scores {significant(guess.value)}"
    return f"its {LABELS.get(name, name)}, {bounds} by {_sample(scores, report)}, is not clearly better than {than}"


def _are_few(scores: Scores) -> bool:
    return scores.groups < _FEW_GROUPS if scores.groups else scores.rows < _FEW_ROWS


def _sample(scores: Scores, report: ModelReport) -> str:
    if scores.groups:
        return f"{counted(scores.groups, 'group')} of rows ({', '.join(report.split_by)})"
    return counted(scores.rows, f"{scores.split} row")


def _caution(scores: Scores, report: ModelReport) -> str:
    """Return why the decisive score is unreliable. Empty if it is reliable."""
    name = judged(report)
    if name not in scores.metrics:
        return ""
    sample, few = _sample(scores, report), _are_few(scores)
    interval = scores.intervals.get(name)
    more = f"score it on more {'groups' if scores.groups else 'rows'}"
    if interval is None:
        return f"{sample} are too few for an interval: {more}" if few else ""
    compared = _compared(scores, report)
    guess, bounds = scores.guesses.get(compared), scores.intervals.get(compared, interval)
    if guess and bounds[0] <= guess.value <= bounds[1]:
        return f"{sample} do not distinguish this model from {guess.by}: {more}"
    low, high = interval
    wide = high > _WIDE_ERROR * low if name in _ERRORS else high - low > 2 * _WIDE_SHARE
    return f"{sample} are few: {more}" if wide or few else ""


def _naming_rare_class(scores: Scores, matrix: Matrix, report: ModelReport) -> Scores:
    """Return the scores with a caution that names the class with few rows, if there are enough rows in total.

    AUC and means of classes depend on the rarest class, and recall, precision and F1 on the scored class.
    """
    rows, name = {one: count for one, count in intervals.rows_of(matrix, 0).items() if one != _UNKNOWN}, judged(report)
    if not rows or name == "accuracy" or scores.groups or scores.rows < _FEW_ROWS or not scores.caution:
        return scores
    of_all = report.scored_class is None or name == "auc"
    rarest = min(rows, key=lambda one: rows[one]) if of_all else report.scored_class
    # A class with at least half of an even share is not rare.
    if rarest is None or rows.get(rarest, 0) * len(rows) * 2 >= scores.rows:
        return scores
    sample = _sample(scores, report)
    rare = f"{counted(round(rows.get(rarest, 0)), f'{scores.split} row')} of class {report.name_of(rarest)!r}"
    return replace(scores, caution=scores.caution.replace(sample, rare, 1))


def with_interval(name: str, value: float, interval: Interval | None) -> str:
    """Format 0.986 ± 0.010, or 0.986 (0.926 to 0.998) if the interval is asymmetric."""
    if interval is None:
        return significant(value)
    low, high = interval
    half, decimals = (high - low) / 2, decimals_of(interval)
    least, most = (0.0, 1.0) if name in _SHARES else (-math.inf, 1.0) if name == "r2" else (0.0, math.inf)
    is_even = abs((high - value) - (value - low)) <= _ALIKE * half
    if is_even and least <= value - half and value + half <= most:
        return f"{rounded(value, decimals)} ± {rounded(half, decimals)}"
    return f"{rounded(value, decimals)} ({bounds_of(interval)})"


def bounds_of(interval: Interval) -> str:
    """Format the bounds of an interval as in `with_interval`: 0.926 to 0.998."""
    decimals = decimals_of(interval)
    return f"{rounded(interval[0], decimals)} to {rounded(interval[1], decimals)}"


def decimals_of(interval: Interval) -> int:
    """Return the significant decimals of a score, given its interval: two digits of half its width."""
    half = (interval[1] - interval[0]) / 2
    return max(0, 1 - math.floor(math.log10(half))) if half > 0 else _DECIMALS + 1


def rounded(value: float, decimals: int) -> str:
    """Format a number with this many decimals, or with an exponent if they are many."""
    return f"{value:.3g}" if decimals > _DECIMALS else f"{value:,.{decimals}f}"
