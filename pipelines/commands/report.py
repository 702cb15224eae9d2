"""`infeed report`: report whether a training waited for its input, without TFX."""

from __future__ import annotations

import json

import click
from rich.table import Column, Table

from infeed.components.base.units import percent
from infeed.components.dataset import files
from infeed.components.input_report.report import Report
from infeed.components.input_report.side_by_side import ReportPair
from infeed.pipelines.console.exit_codes import Command
from infeed.pipelines.console.paths import InputFolder, OutputFile
from infeed.pipelines.console.terminal import Terminal, echo, show_facts


@click.command(
    name="report",
    cls=Command,
    examples=(
        "infeed report model-run",
        "infeed report model-run --dataset data --html report.html",
        "infeed report before after --html both.html",
    ),
)
@click.argument("run", type=InputFolder())
@click.argument("other", type=InputFolder(), required=False)
@click.option("--dataset", type=InputFolder(), help="Dataset of the training, to judge its shards.", metavar="DIR")
@click.option("--html", type=OutputFile(), help="Also write an HTML page.", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def command(run: str, other: str | None, dataset: str | None, html: str | None, as_json: bool) -> None:
    """Report whether the training in the folder RUN waited for its input, and what to change.

    RUN is the run folder of `infeed train`, or a ModelRun artifact. With a folder OTHER, show both trainings side by
    side.
    """
    if other:
        _show_both((run, other), dataset, html, as_json)
        return
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


def _show_both(runs: tuple[str, str], dataset: str | None, html: str | None, as_json: bool) -> None:
    pair = ReportPair(*(Report.of(run, [dataset] if dataset else []) for run in runs))
    if html:
        files.write_bytes(html, pair.to_html(runs).encode())
    if as_json:
        echo(json.dumps({run: json.loads(one.to_json()) for run, one in zip(runs, pair.reports, strict=True)}))
        return
    table = Table("", *(Column(run, overflow="fold") for run in runs), box=None, header_style="bold", pad_edge=False)
    for row in [*pair.rows(), *((f"{name}, µs an example", *costs) for name, *costs in pair.stages())]:
        table.add_row(*row)
    console = Terminal(highlight=False, markup=False)
    console.print(table)
    if html:
        show_facts(console, [("page", html)])
