"""Plots of the model report, as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from infeed.components.base.drawing import COMPUTED, INK, LINE, MUTED, OUTSIDE, WAITED, new_axes, to_svg
from infeed.components.base.units import significant
from infeed.components.evaluation.model_report.collected import Curve
from infeed.components.evaluation.model_report.importance import Importance
from infeed.components.evaluation.pairs import Array

_POINTS = 1_000  # maximum points of a scatter plot
_STEPS = 300  # maximum points of a curve
_RESIDUAL_BARS = 40
_TAIL = 0.005  # share at each end that the histogram of residuals cuts off
_SHOWN = 20  # columns
_DASHED = (0, (5, 3))
_SQUARE = 4.6  # inches


def roc(curves: Mapping[str, Curve], baseline: Curve | None, threshold: float | None) -> str:
    """Plot the ROC curves and the threshold in use."""
    figure, axes = new_axes(_SQUARE)
    axes.plot([0, 1], [0, 1], color=LINE, linewidth=1.2)
    for curve, style in _styled(curves, baseline):
        axes.plot(*_thinned(np.append(0, curve.alarms), np.append(0, curve.found)), **style)
    if threshold is not None:
        found, alarms, _ = next(iter(curves.values())).at(threshold)
        _mark(axes, threshold, (alarms, found), (12, -16))
    axes.set(xlabel="false positive rate", ylabel="true positive rate (recall)", xlim=(-0.01, 1.01), ylim=(0, 1.03))
    _legend(axes, curves, "lower right")
    return to_svg(figure, "roc")


def precision_recall(curves: Mapping[str, Curve], baseline: Curve | None, threshold: float | None) -> str:
    """Plot precision by recall, and the threshold in use."""
    figure, axes = new_axes(_SQUARE)
    for curve, style in _styled(curves, baseline):
        axes.plot(*_thinned(np.append(0, curve.found), np.append(curve.precision[0], curve.precision)), **style)
    if threshold is not None:
        curve = next(iter(curves.values()))
        share = curve.positives / (curve.positives + curve.negatives)
        axes.axhline(share, color=LINE, linewidth=1.2)
        found, _, precision = curve.at(threshold)
        if not math.isnan(precision):
            _mark(axes, threshold, (found, precision), (-12 if found > 0.5 else 12, -20))
    axes.set(xlabel="recall", ylabel="precision", xlim=(-0.01, 1.01), ylim=(0, 1.03))
    _legend(axes, curves, "lower left")
    return to_svg(figure, "precision_recall")


def _mark(axes: Any, threshold: float, point: tuple[float, float], shift: tuple[int, int]) -> None:
    """Mark the threshold in use, with its text on the side of the shift, in points."""
    axes.plot(*([one] for one in point), marker="o", markersize=9, color=WAITED, linestyle="")
    style = {"textcoords": "offset points", "color": INK, "ha": "left" if shift[0] > 0 else "right"}
    axes.annotate(f"threshold {threshold:g}", point, shift, **style)


def _styled(curves: Mapping[str, Curve], baseline: Curve | None) -> list[tuple[Curve, dict[str, Any]]]:
    """Return the curves with styles. Several curves differ in color and dashes, and have names."""
    if len(curves) == 1:
        weak = {"color": MUTED, "linewidth": 1.5, "linestyle": _DASHED}
        strong = {"color": COMPUTED, "linewidth": 2.2}
        return [*([(baseline, weak)] if baseline else []), *((curve, strong) for curve in curves.values())]
    styles = [(color, dash) for dash in ("-", _DASHED) for color in (COMPUTED, WAITED, OUTSIDE)]
    return [
        (curve, {"color": color, "linestyle": dash, "linewidth": 1.6, "label": _short(name)})
        for (name, curve), (color, dash) in zip(curves.items(), styles, strict=False)
    ]


def _legend(axes: Any, curves: Mapping[str, Curve], place: str) -> None:
    if len(curves) > 1:
        axes.legend(loc=place, frameon=False, labelcolor=INK, fontsize=11)


def _short(name: str, most: int = 24) -> str:
    return (name if len(name) <= most else f"{name[: most - 1]}…").replace("$", r"\$")  # `$` begins a formula


def _in_numbers(axes: Any) -> None:
    """Format the ticks of both axes with thousands separators, few enough for a phone."""
    _few_ticks(axes)
    axes.yaxis.set_major_formatter(lambda value, _: significant(value))


def _few_ticks(axes: Any) -> None:
    axes.locator_params(axis="x", nbins=4)
    axes.xaxis.set_major_formatter(lambda value, _: significant(value))


def _thinned(across: Array, up: Array) -> tuple[Array, Array]:
    """Return at most a few hundred points of a curve, including its ends."""
    places = np.unique(np.linspace(0, len(across) - 1, _STEPS).round().astype(int))
    return across[places], up[places]


def reliability(bins: Array, baseline: Array | None) -> str:
    """Plot accuracy by confidence, with 95 % intervals, above the number of rows per bin."""
    figure, axes = new_axes(_SQUARE)
    axes.plot([0, 1], [0, 1], color=LINE, linewidth=1.2)
    if baseline is not None:
        _, sure, share, _ = _filled(baseline)
        axes.plot(sure, share, color=MUTED, linewidth=1.5, linestyle=_DASHED)
    rows, sure, share, spread = _filled(bins)
    axes.errorbar(sure, share, spread, color=COMPUTED, linewidth=2, marker="o", markersize=6, elinewidth=1.2)
    weight = rows / rows.max(initial=1)
    axes.bar(sure, 0.15 * weight, width=0.04, color=OUTSIDE, alpha=0.5)
    axes.set(xlabel="predicted probability", ylabel="share of correct rows", xlim=(-0.02, 1.02), ylim=(0, 1.03))
    return to_svg(figure, "reliability")


def _filled(bins: Array) -> tuple[Array, Array, Array, Array]:
    """Return rows, mean confidence, accuracy, and half of its 95 % interval, for bins with rows."""
    from infeed.components.evaluation import intervals

    rows, sure, right = bins[bins[:, 0] > 0].T
    share = right / rows
    bounds = [intervals.of_share(s, n) or (s, s) for s, n in zip(share.tolist(), rows.tolist(), strict=True)]
    spread = [(s - low, high - s) for s, (low, high) in zip(share.tolist(), bounds, strict=True)]
    return rows, sure / rows, share, np.clip(np.array(spread).T, 0, 1)


def predicted_by_label(labels: Array, predictions: Array) -> str:
    """Plot the predictions of sampled rows by their labels. For a perfect model, all points are on the line."""
    figure, axes = new_axes(_SQUARE)
    ends = [min(labels.min(), predictions.min()), max(labels.max(), predictions.max())]
    axes.plot(ends, ends, color=INK, linewidth=1.2, linestyle=_DASHED)
    _points(axes, labels, predictions)
    axes.set(xlabel="label", ylabel="prediction")
    _in_numbers(axes)
    return to_svg(figure, "predicted_by_label")


def residuals_by_prediction(labels: Array, predictions: Array) -> str:
    """Plot the errors of sampled rows by their predictions."""
    figure, axes = new_axes(_SQUARE)
    axes.axhline(0, color=INK, linewidth=1.2, linestyle=_DASHED)
    _points(axes, predictions, predictions - labels)
    axes.set(xlabel="prediction", ylabel="prediction minus label")
    _in_numbers(axes)
    return to_svg(figure, "residuals_by_prediction")


def _points(axes: Any, across: Array, up: Array) -> None:
    style = {"linestyle": "", "marker": "o", "markersize": 4, "markeredgewidth": 0, "color": COMPUTED, "alpha": 0.5}
    axes.plot(across[:_POINTS], up[:_POINTS], **style)


def residuals(errors: Array) -> str:
    """Plot the histogram of the errors of sampled rows, without the extremes."""
    figure, axes = new_axes()
    low, high = np.quantile(errors, [_TAIL, 1 - _TAIL])
    edges = np.linspace(low, high if high > low else low + 1, _RESIDUAL_BARS + 1)
    counts, _ = np.histogram(errors, edges)
    axes.bar(edges[:-1], counts, width=np.diff(edges) * 0.9, align="edge", color=COMPUTED)
    axes.axvline(0, color=INK, linewidth=1.2, linestyle=_DASHED)
    axes.set(xlabel="prediction minus label", ylabel="rows")
    _in_numbers(axes)
    return to_svg(figure, "residuals")


def importance(found: Sequence[Importance]) -> str:
    """Plot the rise of the loss for each column, largest first, with two standard deviations."""
    shown = list(found)[:_SHOWN][::-1]
    figure, axes = new_axes(0.8 + 0.32 * len(shown))
    places = range(len(shown))
    spread = [2 * one.deviation for one in shown]
    axes.barh(places, [one.mean for one in shown], xerr=spread, color=COMPUTED, height=0.6, ecolor=INK)
    axes.set_yticks(list(places), [_short(one.column) for one in shown])
    axes.tick_params(axis="y", labelcolor=INK)
    axes.grid(axis="y", visible=False)
    axes.axvline(0, color=LINE, linewidth=1.2)
    axes.set_xlabel("rise of the loss")
    _few_ticks(axes)
    return to_svg(figure, "importance")
