"""Two trainings side by side: what they waited, how fast they were, and what each stage cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from infeed.components.base.drawing import render
from infeed.components.base.units import number, percent, seconds, size
from infeed.components.dataset.input_profile import StageCost
from infeed.components.input_report.report import Report
from infeed.components.input_report.verdict import throughput


@dataclass(frozen=True)
class ReportPair:
    """Two reports, for example of a training before and after a change."""

    before: Report
    after: Report

    @property
    def reports(self) -> tuple[Report, Report]:
        return self.before, self.after

    def rows(self) -> list[tuple[str, str, str]]:
        """Return (name, text of the first, text of the second); empty texts where a training lacks a number."""
        return _joined([dict(_facts(one)) for one in self.reports])

    def stages(self) -> list[tuple[str, str, str]]:
        """Return (stage, cost in the first, cost in the second) in microseconds an example."""
        return _joined([{stage.name: _cost(stage) for stage in one.profile.stages} for one in self.reports])

    def to_html(self, titles: Sequence[str]) -> str:
        """Return a self-contained HTML page. `titles` names both trainings."""
        return render("infeed.components.input_report", "side_by_side.html.j2", pair=self, titles=titles)


def _joined(sides: Sequence[Mapping[str, str]]) -> list[tuple[str, str, str]]:
    before, after = sides
    return [(name, before.get(name, ""), after.get(name, "")) for name in {**before, **after}]


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    profile, verdict = report.profile, report.verdict
    yield "Verdict", verdict.kind
    yield "Waited for input", f"{percent(verdict.judged_wait_fraction)} ± {percent(verdict.wait_uncertainty)}"
    yield "Between calls", percent(verdict.outside_fraction)
    yield "Examples a second", number(throughput(profile.steady_epochs))
    if profile.ceiling:
        yield "On constant data", number(profile.ceiling.examples_per_second)
    if verdict.bottleneck:
        yield "Sets the pace", verdict.bottleneck
    yield "First epoch", seconds(profile.epochs[0].seconds)
    yield "Epoch", seconds(sum(epoch.seconds for epoch in profile.steady_epochs) / len(profile.steady_epochs))
    yield "Batch", f"{profile.batch_size:,} records"
    yield "Tier", profile.plan.tier
    yield "Strategy", f"{profile.strategy}, {profile.replicas}"
    yield "Training split", size(profile.bytes)
    yield "Peak memory", size(profile.peak_memory_bytes) if profile.peak_memory_bytes else "unknown"


def _cost(stage: StageCost) -> str:
    cost = "within noise" if stage.hidden else f"{stage.microseconds:.2f} ± {stage.spread:.2f}"
    return f"{cost}, once" if stage.once else cost
