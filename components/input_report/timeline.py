"""Plot the time of the steps of a training, and how much of it was waiting for input."""

from __future__ import annotations

import itertools

from infeed.components.dataset.input_profile import InputProfile
from infeed.components.drawing import COMPUTED, INK, LINE, MUTED, WAITED, new_axes, to_svg
from infeed.components.units import seconds

_FEWEST_PARTS = 3
_MOST_EPOCHS = 30  # whose beginnings the plot marks
_TOWERS_FROM = 3.0  # slower parts than this multiple of the slow ones are cut off, such as the first, which traces


def step_plot(profile: InputProfile) -> str:
    """Plot the time of a step over the training as SVG, with a line for the step alone; empty without a timeline."""
    timeline = profile.timeline
    if not timeline or len(timeline.steps) < _FEWEST_PARTS:
        return ""
    edges = [0, *itertools.accumulate(timeline.steps)]
    parts = list(zip(timeline.steps, timeline.seconds, timeline.wait_seconds, strict=True))
    took = [1e3 * lasted / steps for steps, lasted, _ in parts]
    waits = [1e3 * max(0.0, min(waited, lasted) / steps - profile.floor_seconds) for steps, lasted, waited in parts]
    computed = [whole - waited for whole, waited in zip(took, waits, strict=True)]
    figure, axes = new_axes()
    axes.stairs(computed, edges, fill=True, color=COMPUTED, linewidth=0)
    axes.stairs(took, edges, baseline=computed, fill=True, color=WAITED, linewidth=0)
    usual = sorted(took)[int(0.9 * (len(took) - 1))]
    top = max(took) if max(took) <= _TOWERS_FROM * usual else _TOWERS_FROM / 2 * usual
    if top < max(took):
        slowest = took.index(max(took))
        words = f"↑ steps {edges[slowest] + 1:,} to {edges[slowest + 1]:,} took {seconds(max(took) / 1e3)} each"
        axes.set_title(words, color=MUTED, size=12, loc="left")
    if profile.ceiling:
        alone = 1e3 * profile.batch_size / profile.ceiling.examples_per_second
        axes.axhline(alone, color=INK, linewidth=1.2, linestyle=(0, (5, 3)))
        top = max(top, alone)
    if len(profile.epochs) <= _MOST_EPOCHS:
        for begin in itertools.accumulate(epoch.steps for epoch in profile.epochs[:-1]):
            axes.axvline(begin, color=LINE, linewidth=0.8)
    axes.set_xlim(0, edges[-1])
    axes.set_ylim(0, 1.1 * top)
    axes.set_ylabel("ms a step")
    axes.set_xlabel("step")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    return to_svg(figure, "steps")
