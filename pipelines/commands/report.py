"""`infeed report`: report whether a training waited for its input, without TFX."""

from __future__ import annotations

import click

from infeed.components.base.units import percent
from infeed.components.dataset import files
from infeed.components.input_report.report import Report
from infeed.pipelines.console.exit_codes import Command
from infeed.pipelines.console.paths import InputFolder, OutputFile
from infeed.pipelines.console.terminal import Terminal, echo, show_facts


@click.command(
    name="report",
    cls=Command,
    examples=(
        "infeed report model-run",
        "infeed report model-run --dataset data --html report.html",
    ),
)
@click.argument("run", type=InputFolder())
@click.option("--dataset", type=InputFolder(), help="Dataset of the training, to judge its shards.", metavar="DIR")
@click.option("--html", type=OutputFile(), help="Also write an HTML page.", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def command(run: str, dataset: str | None, html: str | None, as_json: bool) -> None:
    """Report whether the training in the folder RUN waited for its input, and recommend changes.

    RUN is the run folder of `infeed train`, or a ModelRun artifact.
    """
    report = Report.of(run, [dataset] if dataset else [])
    if html:
        files.write_bytes(html, report.to_html().encode())
    if as_json:
        echo(report.to_json())
        return
    verdict = report.verdict
    facts = [("verdict", verdict.kind), ("waited for input", percent(verdict.judged_wait_fraction))]
    facts += [("", advice) for advice in verdict.advice]
    show_facts(Terminal(), [*facts, *([("page", html)] if html else [])])
