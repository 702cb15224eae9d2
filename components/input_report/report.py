"""Writes the report: `report.html` for people, `report.json` for programs. Both say the same."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infeed.components.dataset import files
from infeed.components.dataset.manifest import Split
from infeed.components.input_report import figures, words
from infeed.components.input_report.profile import InputProfile
from infeed.components.input_report.verdict import Verdict, throughput, wait_fraction

REPORT_HTML = "report.html"
REPORT_JSON = "report.json"
FORMAT = 1


@dataclass(frozen=True)
class Report:
    """Everything a report is made from.

    Attributes:
      profile: what the Trainer measured.
      verdict: what follows from it.
      max_wait_fraction: the limit that the blessing goes by, or None.
      split: the training split from its manifest, or None.
      inputs: where each input of the component lies, by its name; for tracing a report back.
    """

    profile: InputProfile
    verdict: Verdict
    max_wait_fraction: float | None = None
    split: Split | None = None
    inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def write(self, root: str) -> None:
        """Writes both files into the folder `root`, each under a temporary name first."""
        files.write_bytes(files.join(root, REPORT_JSON), self.to_json().encode())
        files.write_bytes(files.join(root, REPORT_HTML), self.to_html().encode())

    def to_json(self) -> str:
        """The report as JSON: {"format": 1, "verdict": {...}, "epochs": [...], "ceiling": ..., "plan": {...}, ...}."""
        profile = dataclasses.asdict(self.profile)
        epochs = [
            {**dataclasses.asdict(epoch), "wait_fraction": wait_fraction([epoch])} for epoch in self.profile.epochs
        ]
        verdict = {**dataclasses.asdict(self.verdict), "max_wait_fraction": self.max_wait_fraction}
        shards = len(self.split.shards) if self.split else None
        whole = {"format": FORMAT, "verdict": verdict, **profile, "epochs": epochs, "shards": shards}
        return json.dumps({**whole, "inputs": dict(self.inputs)}, indent=1)

    def to_html(self) -> str:
        """The report as one HTML page that needs nothing else: no script, no network."""
        import jinja2

        loader = jinja2.PackageLoader("infeed.components.input_report", package_path="")
        environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
        environment.filters |= {"percent": words.percent, "seconds": words.seconds, "number": words.number}
        environment.filters |= {"size": words.size, "counted": words.counted}
        template = environment.get_template("report.html.j2")
        return template.render(
            profile=self.profile,
            verdict=self.verdict,
            max_wait_fraction=self.max_wait_fraction,
            inputs=self.inputs,
            facts=list(self._facts()),
            wait_fraction=wait_fraction,
            waiting=figures.waiting(self.profile.epochs),
            throughput=self._throughput_figure(),
        )

    def _throughput_figure(self) -> str | None:
        """One epoch is one number, which stands among the facts."""
        several = len(self.profile.epochs) > 1
        return figures.throughput(self.profile.epochs, self.profile.ceiling) if several else None

    def _facts(self) -> Iterator[tuple[str, str]]:
        profile, verdict = self.profile, self.verdict
        yield "Examples a second", words.number(throughput(profile.steady_epochs))
        yield (
            "On constant data",
            words.number(profile.ceiling.examples_per_second) if profile.ceiling else "not measured",
        )
        if verdict.wait_fraction_after_first is not None:
            yield "Waited in the first epoch", words.percent(wait_fraction(profile.epochs[:1]))
            yield "Waited in all epochs", words.percent(verdict.wait_fraction)
        if verdict.bottleneck:
            yield "Sets the pace", verdict.bottleneck
        yield (
            "Trained",
            f"{words.counted(len(profile.epochs), 'epoch')} of {words.counted(profile.steps_per_epoch, 'step')}",
        )
        yield "Batch", words.counted(profile.batch_size, "record")
        yield "Strategy", f"{profile.strategy}, {words.counted(profile.replicas, 'replica')}"
        if profile.hosts > 1:
            yield "Hosts", f"{profile.hosts}"
        shards = f" in {words.counted(len(self.split.shards), 'shard')}" if self.split else ""
        yield "Training split", f"{words.size(profile.bytes)}{shards}"
        if profile.peak_memory_bytes is not None:
            yield "Peak memory", words.size(profile.peak_memory_bytes)

    def custom_properties(self) -> dict[str, str | float | int]:
        """What a pipeline records of the report: `verdict`, `wait_fraction`, and `blessed` (1 or 0) under a limit."""
        verdict = self.verdict
        properties: dict[str, Any] = {"verdict": verdict.kind, "wait_fraction": verdict.judged_wait_fraction}
        return properties if verdict.blessed is None else {**properties, "blessed": int(verdict.blessed)}
