"""Scores of a model: the number of scored rows, the intervals, and the score of guessing on the same rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from infeed.components.evaluation import intervals
from infeed.components.evaluation.intervals import Interval, Matrix
from infeed.pipelines.config import Blessing, PipelineConfig

_FEW_ROWS = 100  # below this, a score is unreliable even if its interval is narrow
_WIDE_SHARE = 0.05  # half the width of the interval of a share
_WIDE_ERROR = 1.25  # upper bound of an error over its lower bound: about 100 rows
_ERRORS = ("mse", "rmse", "mae")
_UNKNOWN = -1  # class id of a row whose class no training row has


@dataclass(frozen=True)
class Guess:
    """Score of guessing, which a model must exceed."""

    value: float  # score of the guess on the scored rows
    by: str  # strategy of the guess, for example "always 'no'"


@dataclass(frozen=True)
class Scores:
    """Scores of one model on one split."""

    split: str  # name of the split
    rows: int  # number of rows of the split
    metrics: Mapping[str, float]  # values by name, first the metric that decides about the blessing
    # 95 % intervals by metric, for metrics that have one.
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    guesses: Mapping[str, Guess] = field(default_factory=dict)  # scores of guessing, by metric
    caution: str = ""  # why the score is unreliable; empty if it is reliable


def read_scores(folder: str, config: PipelineConfig) -> Scores:
    """Read the scores of the overall slice from an evaluation that TFMA or our Evaluator wrote."""
    import tensorflow_model_analysis as tfma

    from infeed.pipelines.judging import MATRIX, ROWS, measured  # takes seconds

    values = {
        entry.key.name: entry.value
        for record in tfma.load_metrics(folder)
        for entry in record.metric_keys_and_values
        if not entry.key.is_diff and entry.key.model_name != tfma.BASELINE_KEY
    }
    rows = int(values[ROWS].double_value.value)
    given = {name: value.double_value.value for name, value in values.items() if value.HasField("double_value")}
    metrics = {name: given[name] for name in measured(config) if name in given}
    if config.train.task == "regression":
        return make_scores(config, rows, *of_errors(metrics, given, rows))
    (found,) = values[MATRIX].multi_class_confusion_matrix_at_thresholds.matrices
    matrix = {(cell.actual_class_id, cell.predicted_class_id): cell.num_weighted_examples for cell in found.entries}
    return make_scores(config, rows, *of_classes(metrics, matrix, config))


def reasons(uri: str, blessing: Blessing) -> tuple[str, ...]:
    """Return why the model of an evaluation is not blessed; empty if it is."""
    import tensorflow_model_analysis as tfma

    validation = tfma.load_validation_result(uri)
    worse = "below" if blessing.higher_is_better else "above"
    found = []
    for failure in (one for of_slice in validation.metric_validations_per_slice for one in of_slice.failures):
        value = failure.metric_value.double_value.value
        if failure.metric_key.is_diff:
            found.append(f"its {blessing.metric} is {abs(value):.4g} {worse} that of the last blessed model")
        else:
            found.append(f"its {blessing.metric} of {value:.4g} is {worse} {blessing.bound:.4g}")
    return tuple(found)


Parts = tuple[dict[str, float], dict[str, Interval | None], dict[str, Guess]]


def make_scores(
    config: PipelineConfig,
    rows: int,
    metrics: Mapping[str, float],
    found: Mapping[str, Interval | None],
    guesses: Mapping[str, Guess],
) -> Scores:
    """Return the scores, with a caution if they are unreliable."""
    known = {name: interval for name, interval in found.items() if interval and name in metrics}
    scores = Scores(config.judged_on, rows, metrics, known, guesses)
    decisive = "rmse" if config.blessing.metric == "mse" else config.blessing.metric
    return replace(scores, caution=_caution(scores, decisive))


def of_errors(metrics: Mapping[str, float], given: Mapping[str, float], rows: int) -> Parts:
    """Return metrics, intervals and guesses of a regression; `error_moments.RSquared` measures `given` beside R2."""
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


def of_classes(metrics: Mapping[str, float], matrix: Matrix, config: PipelineConfig) -> Parts:
    """Return metrics, intervals and guesses of a classification."""
    rows, actual = sum(matrix.values()), Counter[int]()
    for (of, _), count in matrix.items():
        actual[of] += count  # type: ignore[assignment]  # TFMA counts in fractions
    commonest, most = max(actual.items(), key=lambda item: item[1])
    share, always = most / rows, f"always {_name(commonest, config)}"
    found = {"accuracy": intervals.of_share(metrics["accuracy"], rows)} if "accuracy" in metrics else {}
    guesses = {"accuracy": Guess(share, always)}
    classes, name = config.survey.classes, config.blessing.positive
    if name is None:
        found |= intervals.of_means(matrix, _UNKNOWN)
        scored = len([one for one in actual if one != _UNKNOWN])
        guesses["f1"] = Guess(2 * share / (1 + share) / max(scored, 1), always)
    else:
        positive = classes.index(name)
        positives = actual[positive]
        found |= intervals.of_class(matrix, positive)
        found["auc"] = intervals.of_auc(metrics.get("auc", math.nan), positives, rows - positives)
        of_positive = positives / rows
        guesses["f1"] = Guess(2 * of_positive / (1 + of_positive), f"always {name!r}")
        guesses["auc"] = Guess(0.5, "guessing")
    return dict(metrics), found, {name: guess for name, guess in guesses.items() if name in metrics}


def _name(number: int, config: PipelineConfig) -> str:
    """Return the class name if the survey agrees that the class is the commonest; training may know fewer classes."""
    classes, rows = config.survey.classes, config.survey.class_rows
    known = 0 <= number < len(classes) and rows[number] == max(rows)
    return repr(classes[number]) if known else "the commonest class"


def _caution(scores: Scores, name: str) -> str:
    """Return why the decisive score is unreliable; empty if it is reliable."""
    if name not in scores.metrics:
        return ""
    rows = f"{scores.rows:,} {scores.split} row{'s' * (scores.rows != 1)}"
    more = "score it on more rows, or cross-validate"
    interval, guess = scores.intervals.get(name), scores.guesses.get(name)
    if interval is None:
        return f"{rows} are too few for an interval: {more}" if scores.rows < _FEW_ROWS else ""
    low, high = interval
    lies = f"on other rows the {name.upper() if name in _ERRORS else name} may be anywhere from {low:.3g} to {high:.3g}"
    if guess and low <= guess.value <= high:
        return f"{rows} do not tell this model from {guess.by}: {lies}"
    wide = high > _WIDE_ERROR * low if name in _ERRORS else high - low > 2 * _WIDE_SHARE
    return f"{rows} are few: {lies}; {more}" if wide or scores.rows < _FEW_ROWS else ""
