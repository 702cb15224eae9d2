"""95 % intervals of scores, from the counts and moments of an evaluation.

An interval estimates the score on many more rows of the same kind. Intervals of shares are within 0 to 1, even for a
score of exactly 1. None marks a score without a valid interval.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Interval = tuple[float, float]
Matrix = Mapping[tuple[int, int], float]  # (actual class, predicted class) -> rows

_Z = 1.959964  # 97.5 % quantile of the normal distribution
# Squared errors are skewed, so the normal approximation of their mean needs some rows.
_ROWS_FOR_MOMENTS = 20
_GROUPS_FOR_JACKKNIFE = 5
_HALVINGS = 60  # bisection steps of the search for a bound: exact to the last bit


def of_share(share: float, rows: float) -> Interval | None:
    """Return the score interval of a share of `rows`.

    Wilson, E. B. (1927), Probable inference, the law of succession, and statistical inference, JASA 22, 209-212.
    """
    if rows <= 0:
        return None
    middle = (share + _Z**2 / (2 * rows)) / (1 + _Z**2 / rows)
    half = _Z / (1 + _Z**2 / rows) * math.sqrt(share * (1 - share) / rows + _Z**2 / (4 * rows**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def of_auc(auc: float, positives: float, negatives: float) -> Interval | None:
    """Return the score interval of an area under the ROC curve.

    Newcombe, R. G. (2006), Confidence intervals for an effect size measure based on the Mann-Whitney statistic, part
    2, Statistics in Medicine 25, 559-573, method 5: the variance of Hanley and McNeil (1982) at the bound itself.
    """
    if min(positives, negatives) < 1 or not 0 <= auc <= 1:
        return None
    others = (positives + negatives) / 2 - 1

    def is_inside(area: float) -> bool:
        spread = 1 + others * (1 - area) / (2 - area) + others * area / (1 + area)
        return (area - auc) ** 2 <= _Z**2 * area * (1 - area) * spread / (positives * negatives)

    return _farthest(is_inside, auc, 0.0), _farthest(is_inside, auc, 1.0)


def _farthest(is_inside: Callable[[float], bool], inside: float, outside: float) -> float:
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if is_inside(middle) else (inside, middle)
    return inside


def rows_of(matrix: Matrix, side: int) -> Counter[int]:
    """Return the rows of each class: of the actual classes (side 0), or of the predicted ones (1)."""
    found = Counter[int]()
    for cell, rows in matrix.items():
        found[cell[side]] += rows  # type: ignore[assignment]  # rows may be weighted
    return found


def of_class(matrix: Matrix, positive: int) -> dict[str, Interval | None]:
    """Return the intervals of recall, precision and F1 of one class.

    Recall and precision are shares of rows. F1 is 2 J / (1 + J), where J is the share of true positives among all rows
    that are of the class or predicted as it: Hand, Christen, Kirielle (2021), F*: an interpretable
    transformation of the F-measure, Machine Learning 110, 451-456.
    """
    right = matrix.get((positive, positive), 0.0)
    actual, called = (rows_of(matrix, side)[positive] for side in (0, 1))
    either = actual + called - right
    of_either = of_share(right / either, either) if either else None
    return {
        "recall": of_share(right / actual, actual) if actual else None,
        "precision": of_share(right / called, called) if called else None,
        "f1": of_either and (2 * of_either[0] / (1 + of_either[0]), 2 * of_either[1] / (1 + of_either[1])),
    }


def of_means(matrix: Matrix, unknown: int) -> dict[str, Interval | None]:
    """Return the intervals of the means of recall, precision and F1 over the classes with rows.

    By the delta method over the multinomial cells, as Takahashi, Yamamoto, Kuchiba, Koyama (2022), Confidence interval
    for micro-averaged F1 and macro-averaged F1 scores, Applied Intelligence 52, 4961-4972, do for F1. A cell changes
    the mean through the numerators and denominators of its two classes. Without any error, the result is the score
    interval of a share with the equivalent number of rows.

    Args:
      unknown: class id of rows whose class is unknown to the model. It has no score.
    """
    actual, called = (rows_of(matrix, side) for side in (0, 1))
    classes = [one for one in actual if one != unknown]

    def interval(of_actual: float, of_called: float) -> Interval | None:
        sizes = {one: of_actual * actual[one] + of_called * called[one] for one in classes}
        return _of_mean(matrix, {one: size for one, size in sizes.items() if size}, len(classes), of_actual, of_called)

    return {"recall": interval(1, 0), "precision": interval(0, 1), "f1": interval(0.5, 0.5)}


def _of_mean(
    matrix: Matrix, sizes: Mapping[int, float], classes: int, of_actual: float, of_called: float
) -> Interval | None:
    """Return the interval of the mean of a score over the classes.

    `sizes` are the denominators of the scores by class. A row adds `of_actual` to the denominator of its actual class,
    and `of_called` to that of its predicted class.
    """
    total = sum(matrix.values())
    score = {one: matrix.get((one, one), 0.0) / size for one, size in sizes.items()}
    per_row = {one: score[one] / size for one, size in sizes.items()}
    moved = first = 0.0
    for (of, said), rows in matrix.items():
        right = 1 / sizes[of] if of == said and of in sizes else 0.0
        change = right - of_actual * per_row.get(of, 0.0) - of_called * per_row.get(said, 0.0)
        moved, first = moved + rows * change**2, first + rows * change
    variance = (moved - first**2 / total) / classes**2
    mean = sum(score.values()) / classes
    half = _Z * math.sqrt(max(0.0, variance))
    if not half:
        return of_share(mean, classes**2 / sum(1 / size for size in sizes.values())) if sizes else None
    return max(0.0, mean - half), min(1.0, mean + half)


def of_mean_square(mean: float, standard_error: float, rows: float) -> Interval | None:
    """Return the interval of a mean of squares, or another positive number, from its logarithm.

    The standard error of log(x) is that of x over x: the delta method, as in Casella and Berger, Statistical
    Inference (2002), section 5.5.4.
    """
    if rows < _ROWS_FOR_MOMENTS or not mean > 0 or not math.isfinite(standard_error):
        return None
    factor = math.exp(_Z * standard_error / mean)
    return mean / factor, mean * factor


def of_r2(r2: float, standard_error: float, rows: float) -> Interval | None:
    """Return the interval of R2 from that of 1 - R2, the unexplained variance, so that it stays below 1."""
    left = of_mean_square(1 - r2, standard_error, rows)
    return left and (1 - left[1], 1 - left[0])


def of_clusters(value: float, left_out: npt.NDArray[np.float64] | None, metric: str) -> Interval | None:
    """Return the interval of a score by the delete-one-group jackknife, on a scale that keeps its bounds valid.

    The scale is the logit for shares, and the logarithm for errors and 1 - R2. A share without variation, such as 1,
    gets the score interval with one row per group.

    Args:
      left_out: score without each group, float64 [groups].
    """
    if left_out is None or len(left_out) < _GROUPS_FOR_JACKKNIFE:
        return None
    to, back = _SCALES.get(metric, _SCALES["share"])
    groups = len(left_out)
    with np.errstate(divide="ignore", invalid="ignore"):
        middle, points = float(to(np.float64(value))), to(left_out)
        spread = math.sqrt((groups - 1) / groups * float(((points - points.mean()) ** 2).sum()))
    half = _t(groups - 1) * spread
    if not math.isfinite(middle) or not math.isfinite(half) or not half:
        return of_share(value, groups) if metric not in _SCALES and 0 <= value <= 1 else None
    low, high = sorted((float(back(middle - half)), float(back(middle + half))))
    return low, high


def _t(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's t for at least 4 degrees of freedom.

    Abramowitz, Stegun (1964), Handbook of Mathematical Functions, 26.7.5; within 0.002 of the exact value.
    """
    z = _Z
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / degrees**power for power, term in enumerate(terms, 1))


_SCALES: Mapping[str, tuple[Callable[[Any], Any], Callable[[float], float]]] = {
    "share": (lambda x: np.log(x) - np.log1p(-x), lambda x: 1 / (1 + math.exp(-x))),
    "r2": (lambda x: np.log1p(-x), lambda x: 1 - math.exp(x)),
    **dict.fromkeys(("mse", "rmse", "mae"), (np.log, math.exp)),
}
