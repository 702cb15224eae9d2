"""The plots, as SVG text that takes its colours and its font from the page around it."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from infeed.components.input_report.profile import Ceiling, Epoch
from infeed.components.input_report.words import number, percent, seconds

if TYPE_CHECKING:  # importing matplotlib takes most of a second, so only drawing does it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# matplotlib wants fixed colours and the page has a light and a dark set: each stand-in becomes a CSS variable.
INK, MUTED, WAITED, COMPUTED, LINE = "#010101", "#020202", "#030303", "#040404", "#050505"
_VARIABLES = {INK: "--ink", MUTED: "--muted", WAITED: "--waited", COMPUTED: "--computed", LINE: "--line"}
# Two figures on a page would repeat these; the ids that the drawing refers to have no underscore.
_GROUP_ID = re.compile(r' id="[\w.]+_\d+"')
_NO_METADATA: dict[str, str | None] = {"Date": None, "Creator": None, "Format": None, "Type": None}

# Small enough that text stays legible where a phone shows the figure at four fifths of its size.
WIDTH_INCHES, HEIGHT_INCHES = 6.4, 3.6
ONE_BAR_HEIGHT_INCHES = 1.5
MOST_BARS = 40  # beyond this, bars are thinner than the gaps between them; an area shows the same
# A first epoch that towers over the rest would flatten them: the axis ends here and the number is written instead.
TOWERS_FROM = 2.5


def waiting(epochs: Sequence[Epoch]) -> str:
    """SVG of the seconds computed and waited: a bar an epoch, an area for many, one lying bar for a single epoch."""
    figure, axes = _axes(ONE_BAR_HEIGHT_INCHES if len(epochs) == 1 else HEIGHT_INCHES)
    if len(epochs) == 1:
        _one_bar(axes, epochs[0])
    else:
        _stack(axes, epochs)
        _cut_off_towering_first(axes, epochs)
        _epoch_axis(axes, len(epochs))
        axes.set_ylabel("seconds")
    return _svg(figure)


def throughput(epochs: Sequence[Epoch], ceiling: Ceiling | None) -> str:
    """SVG of the examples a second in each epoch, under the line of what training reaches on constant data."""
    figure, axes = _axes(HEIGHT_INCHES)
    rates = [epoch.examples_per_second for epoch in epochs]
    marker = "o" if len(epochs) <= MOST_BARS else ""
    axes.plot(_numbers(epochs), rates, color=COMPUTED, linewidth=2, marker=marker, markersize=5)
    top = max(rates)
    if ceiling is not None:
        top = max(top, ceiling.examples_per_second)  # the label stays clear of rates that reach the line
        axes.axhline(ceiling.examples_per_second, color=INK, linewidth=1.2, linestyle=(0, (5, 3)))
        label = f"on constant data: {number(ceiling.examples_per_second)}"
        axes.text(1, top * 1.03, label, transform=axes.get_yaxis_transform(), ha="right", color=INK, size=12)
    axes.set_ylim(0, top * 1.15)
    axes.set_ylabel("examples a second")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    _epoch_axis(axes, len(epochs))
    return _svg(figure)


def _axes(height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(LINE)
    axes.tick_params(colors=MUTED, length=0, labelsize=12)
    axes.xaxis.label.set(color=MUTED, size=12)
    axes.yaxis.label.set(color=MUTED, size=12)
    axes.set_axisbelow(True)
    axes.locator_params(axis="y", nbins=6)
    axes.grid(axis="y", color=LINE, linewidth=0.8)
    return figure, axes


def _numbers(epochs: Sequence[Epoch]) -> list[int]:
    """Epochs as people count them, from 1."""
    return [epoch.epoch + 1 for epoch in epochs]


def _one_bar(axes: Axes, epoch: Epoch) -> None:
    computed, waited = epoch.computing_seconds, epoch.wait_seconds
    axes.barh([0], [computed], color=COMPUTED, height=0.6)
    axes.barh([0], [waited], left=[computed], color=WAITED, height=0.6)
    axes.set_yticks([])
    axes.set_xlim(0, epoch.seconds)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("seconds")


def _stack(axes: Axes, epochs: Sequence[Epoch]) -> None:
    numbers = _numbers(epochs)
    computed = [epoch.computing_seconds for epoch in epochs]
    if len(epochs) > MOST_BARS:
        total = [epoch.seconds for epoch in epochs]
        axes.fill_between(numbers, 0, computed, color=COMPUTED, step="mid", linewidth=0)
        axes.fill_between(numbers, computed, total, color=WAITED, step="mid", linewidth=0)
        return
    axes.bar(numbers, computed, color=COMPUTED, width=0.6)
    axes.bar(numbers, [epoch.wait_seconds for epoch in epochs], bottom=computed, color=WAITED, width=0.6)


def _cut_off_towering_first(axes: Axes, epochs: Sequence[Epoch]) -> None:
    first, later = epochs[0], max(epoch.seconds for epoch in epochs[1:])
    axes.set_ylim(0, 1.15 * max(first.seconds, later))
    if first.seconds > TOWERS_FROM * later:
        axes.set_ylim(0, 0.75 * TOWERS_FROM * later)
        waited = percent(first.wait_seconds / first.seconds)
        title = f"↑ epoch 1 took {seconds(first.seconds)}, {waited} of it waiting"
        axes.set_title(title, color=MUTED, size=12, loc="left")


def _epoch_axis(axes: Axes, count: int) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(0.4, count + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    axes.set_xlabel("epoch")


def _svg(figure: Figure) -> str:
    """The figure as an <svg> element. Text stays text: it can be searched and read out, and takes the page's font."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "infeed"}):  # the same ids in every run
        figure.savefig(buffer, format="svg", transparent=True, metadata=_NO_METADATA)
    text = buffer.getvalue()
    text = _GROUP_ID.sub("", text[text.index("<svg") :])
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    return text
