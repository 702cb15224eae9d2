"""The report: `report.html` for people and `report.json` for programs, with the same content.

Plots are inline SVG with the colors and the font of the page.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infeed.components.base.drawing import (
    COMPUTED,
    INK,
    LINE,
    MUTED,
    OUTSIDE,
    WAITED,
    new_axes,
    notebook_frame,
    render,
    to_svg,
)
from infeed.components.base.units import counted, number, percent, points, seconds, size
from infeed.components.dataset import files, names
from infeed.components.dataset.input_profile import (
    INPUT_PROFILE,
    Ceiling,
    EpochProfile,
    InputProfile,
    pace_setter,
    read_profile,
)
from infeed.components.dataset.manifest import Manifest, Split
from infeed.components.input_report.stages import of_training, stage_plot, step_of
from infeed.components.input_report.verdict import TOLD_FROM, Verdict, bands, judge, throughput

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMAT = 1
MOST_WORKERS = 8  # maximum number of workers that the report lists one by one
MOST_BARS = 40  # above this number, bars are thinner than their gaps, so the plot becomes an area
# If the first epoch takes this many times the others, its bar is cut off and the title shows the number.
TOWERS_FROM = 2.5
MOST_EPOCHS = 30  # maximum number of epochs that the timeline marks
# Bars above this multiple of the slow ones are cut off, for example the first, which includes tracing.
STEP_TOWERS_FROM = 3.0


@dataclass(frozen=True)
class Report:
    """Content of a report."""

    profile: InputProfile
    verdict: Verdict
    max_wait_fraction: float | None = None  # limit of the blessing
    split: Split | None = None  # training split from its manifest
    inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)  # URI of each input of the component, by name

    @classmethod
    def of(
        cls,
        run: str,
        datasets: Sequence[str] = (),
        max_wait_fraction: float | None = None,
        inputs: Mapping[str, str] | None = None,
    ) -> Report:
        """Judge the measurements in the folder `run` of a training. `datasets` may include its training dataset."""
        profile = read_profile(files.join(run, INPUT_PROFILE))
        manifests = (Manifest.read(uri) for uri in datasets if files.exists(files.join(uri, names.MANIFEST)))
        splits = (split for manifest in manifests for split in manifest.splits.values())
        # Training may have read other examples, such as a transformed copy.
        split = next((split for split in splits if split.bytes == profile.bytes), None)
        verdict = judge(profile, max_wait_fraction=max_wait_fraction, split=split)
        return cls(profile, verdict, max_wait_fraction, split, inputs or {})

    def write(self, root: str) -> None:
        """Write both files into the folder `root`, each atomically by a rename."""
        files.write_bytes(files.join(root, "report.json"), self.to_json().encode())
        files.write_bytes(files.join(root, "report.html"), self.to_html().encode())

    def to_json(self) -> str:
        """Return JSON: {"format": 1, "verdict": {...}, "epochs": [...], "ceiling": ..., "plan": {...}, ...}."""
        profile = self.profile.to_dict()
        epochs = [
            {**dataclasses.asdict(epoch), "wait_fraction": self.profile.wait_fraction([epoch])}
            for epoch in self.profile.epochs
        ]
        verdict = {**dataclasses.asdict(self.verdict), "max_wait_fraction": self.max_wait_fraction}
        shards = len(self.split.shards) if self.split else None
        whole = {"format": FORMAT, "verdict": verdict, **profile, "epochs": epochs, "shards": shards}
        return json.dumps({**whole, "inputs": dict(self.inputs)}, indent=1)

    def to_html(self) -> str:
        """Return a self-contained HTML page, without scripts or network access."""
        epochs = self.profile.epochs
        return render(
            "infeed.components.input_report",
            "report.html.j2",
            profile=self.profile,
            verdict=self.verdict,
            points=points(self.verdict.wait_uncertainty),
            max_wait_fraction=self.max_wait_fraction,
            inputs=self.inputs,
            facts=list(self._facts()),
            waiting=waiting(self.profile),
            bands=bands(self.profile),
            slowest=step_of(pace_setter(self.profile.stages)),
            steps=step_plot(self.profile),
            of_stages=of_training(self.profile),
            stages=stage_plot(self.profile) if self.profile.stages else "",
            # The list of facts already shows the rate of a single epoch.
            throughput=throughput_plot(epochs, self.profile.ceiling) if len(epochs) > 1 else None,
        )

    def _repr_html_(self) -> str:
        return notebook_frame(self.to_html())

    def _facts(self) -> Iterator[tuple[str, str]]:
        profile, verdict = self.profile, self.verdict
        yield "Examples a second", number(throughput(profile.steady_epochs))
        yield "On constant data", number(profile.ceiling.examples_per_second) if profile.ceiling else "not measured"
        if profile.floor_seconds:
            yield "Handing over a batch", f"{1e6 * profile.floor_seconds:,.0f} µs a step, not counted as waiting"
        if profile.workers_waited:
            yield "Waited, by worker", _shares(profile)
        if verdict.wait_fraction_after_first is not None:
            yield "Waited in the first epoch", percent(profile.wait_fraction(profile.epochs[:1]))
            yield "Waited in all epochs", percent(verdict.wait_fraction)
        if verdict.outside_fraction >= TOLD_FROM:
            yield "Between calls: callbacks, Python", percent(verdict.outside_fraction)
        if verdict.slowed_fraction >= TOLD_FROM:
            yield "Steps slower than on constant data", percent(verdict.slowed_fraction)
        if verdict.bottleneck:
            yield "Bottleneck", verdict.bottleneck
        yield "Trained", f"{counted(len(profile.epochs), 'epoch')} of {counted(profile.steps_per_epoch, 'step')}"
        yield "Batch", counted(profile.batch_size, "record")
        yield "Strategy", f"{profile.strategy}, {counted(profile.replicas, 'replica')}"
        if profile.hosts > 1:
            yield "Hosts", f"{profile.hosts}"
        shards = f" in {counted(len(self.split.shards), 'shard')}" if self.split else ""
        yield "Training split", f"{size(profile.bytes)}{shards}"
        if profile.peak_memory_bytes is not None:
            yield "Peak memory", size(profile.peak_memory_bytes)

    def custom_properties(self) -> dict[str, str | float | int]:
        """Return the custom properties of the artifact; `blessed` only with a limit."""
        verdict = self.verdict
        properties: dict[str, Any] = {"verdict": verdict.kind, "wait_fraction": verdict.judged_wait_fraction}
        properties |= {"wait_uncertainty": verdict.wait_uncertainty, "bottleneck": verdict.bottleneck or ""}
        return properties if verdict.blessed is None else {**properties, "blessed": int(verdict.blessed)}


def _shares(profile: InputProfile) -> str:
    """List the wait of each worker, as a share. For many workers, list only the least and the largest."""
    lasted = sum(epoch.seconds for epoch in profile.steady_epochs)
    shares = [waited / lasted for waited in profile.workers_waited]
    if len(shares) <= MOST_WORKERS:
        return ", ".join(map(percent, shares))
    most, least = shares.index(max(shares)), shares.index(min(shares))
    return f"{percent(shares[least])} (worker {least}) to {percent(shares[most])} (worker {most})"


def waiting(profile: InputProfile) -> str:
    """Plot the seconds of each epoch as SVG: bars, an area for many epochs, or a horizontal bar for a single epoch."""
    epochs = profile.epochs
    outside, waits = [epoch.outside_seconds for epoch in epochs], [profile.waited(epoch) for epoch in epochs]
    computed = [max(0.0, one.seconds - wait - one.outside_seconds) for one, wait in zip(epochs, waits, strict=True)]
    parts = ((COMPUTED, computed), (OUTSIDE, outside), (WAITED, waits))  # offsets from the axis
    if len(epochs) > 1:
        return _stacked(epochs, parts)
    figure, axes = new_axes(1.5)
    left = 0.0
    for color, (part,) in parts:
        axes.barh([0], [part], left=[left], color=color, height=0.6)
        left += part
    axes.set_yticks([])
    axes.set_xlim(0, epochs[0].seconds)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("seconds")
    return to_svg(figure)


def throughput_plot(epochs: Sequence[EpochProfile], ceiling: Ceiling | None) -> str:
    """Plot the examples per second of each epoch as SVG, with a line for the rate on constant data."""
    figure, axes = new_axes()
    rates = [epoch.examples_per_second for epoch in epochs]
    marker = "o" if len(epochs) <= MOST_BARS else ""
    axes.plot([epoch.epoch + 1 for epoch in epochs], rates, color=COMPUTED, linewidth=2, marker=marker, markersize=5)
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
    return to_svg(figure)


def _stacked(epochs: Sequence[EpochProfile], parts: Sequence[tuple[str, Sequence[float]]]) -> str:
    figure, axes = new_axes()
    numbers, bottom = [epoch.epoch + 1 for epoch in epochs], [0.0] * len(epochs)
    for color, heights in parts:
        top = [low + height for low, height in zip(bottom, heights, strict=True)]
        if len(epochs) > MOST_BARS:
            axes.fill_between(numbers, bottom, top, color=color, step="mid", linewidth=0)
        else:
            axes.bar(numbers, heights, bottom=bottom, color=color, width=0.6)
        bottom = top
    first, *others = (epoch.seconds for epoch in epochs)
    later = max(others)
    axes.set_ylim(0, 1.15 * max(first, later))
    if first > TOWERS_FROM * later:  # it traces graphs and fills caches, and would flatten all other bars
        axes.set_ylim(0, 0.75 * TOWERS_FROM * later)
        title = f"↑ epoch {numbers[0]} took {seconds(first)}, {percent(parts[-1][1][0] / first)} of it waiting"
        axes.set_title(title, color=MUTED, size=12, loc="left")
    _epoch_axis(axes, len(epochs))
    axes.set_ylabel("seconds")
    return to_svg(figure)


def step_plot(profile: InputProfile) -> str:
    """Plot the time of a step over the training as SVG, with a line for the step alone. Empty without a timeline."""
    timeline = profile.timeline
    if not timeline or len(timeline.steps) < 3:  # fewer parts are not worth a plot
        return ""
    edges = [0, *itertools.accumulate(timeline.steps)]
    parts = list(zip(timeline.steps, timeline.seconds, timeline.wait_seconds, strict=True))
    took = [1e3 * lasted / steps for steps, lasted, _ in parts]
    waits = [1e3 * max(0.0, min(waited, lasted) / steps - profile.floor_seconds) for steps, lasted, waited in parts]
    computed = [whole - waited for whole, waited in zip(took, waits, strict=True)]
    figure, axes = new_axes()
    axes.stairs(computed, edges, fill=True, color=COMPUTED, linewidth=0)
    axes.stairs(took, edges, baseline=computed, fill=True, color=WAITED, linewidth=0)
    # The scale follows the ninth of ten parts, because a stall in the slowest would hide all others.
    usual = sorted(took)[int(0.9 * (len(took) - 1))]
    top = max(took) if max(took) <= STEP_TOWERS_FROM * usual else STEP_TOWERS_FROM / 2 * usual
    if top < max(took):
        slowest = took.index(max(took))
        words = f"↑ steps {edges[slowest] + 1:,} to {edges[slowest + 1]:,} took {seconds(max(took) / 1e3)} each"
        axes.set_title(words, color=MUTED, size=12, loc="left")
    if profile.ceiling:
        alone = 1e3 * profile.batch_size / profile.ceiling.examples_per_second
        axes.axhline(alone, color=INK, linewidth=1.2, linestyle=(0, (5, 3)))
        top = max(top, alone)
    if len(profile.epochs) <= MOST_EPOCHS:
        for begin in itertools.accumulate(epoch.steps for epoch in profile.epochs[:-1]):
            axes.axvline(begin, color=LINE, linewidth=0.8)
    axes.set_xlim(0, edges[-1])
    axes.set_ylim(0, 1.1 * top)
    axes.set_ylabel("ms a step")
    axes.set_xlabel("step")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    return to_svg(figure, "steps")


def _epoch_axis(axes: Axes, count: int) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(0.4, count + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    axes.set_xlabel("epoch")
