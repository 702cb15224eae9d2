"""`infeed doctor`: check versions and extras, and suggest a fix for each problem."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence

import click
from rich.table import Table
from rich.text import Text

from infeed.pipelines.cluster.doctor import Finding, Level, image_findings, machine_findings
from infeed.pipelines.cluster.job.compiled import CompiledJob
from infeed.pipelines.console.exit_codes import EXIT_FAILED, Command
from infeed.pipelines.console.paths import InputPath
from infeed.pipelines.console.terminal import Terminal

# The word shows the level. Icon and color only support it.
_LOOKS = {Level.OK: ("✓", "green"), Level.WARNING: ("!", "bold yellow"), Level.PROBLEM: ("✗", "bold red")}


@click.command(name="doctor", cls=Command, examples=("infeed doctor", "infeed doctor taxi.yaml"))
@click.argument("job", type=InputPath(), required=False, metavar="[JOB]")
@click.option("--image", help="Image to compare with the local packages.  [default: the images of JOB]", metavar="NAME")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON, and nothing else.")
def command(job: str | None, image: str | None, as_json: bool) -> None:
    """Check the versions of the packages that pipelines need, and which extras are missing.

    If JOB, a compiled pipeline, is given, its images are compared with the packages that are installed here. The exit
    code is 1 if there is a problem, and 0 if there are only warnings.
    """
    console = Terminal(highlight=False)
    images = (image,) if image else CompiledJob.read(job).images if job else ()
    waiting = console.status("checking") if console.is_interactive and not as_json else contextlib.nullcontext()
    with waiting:
        findings = [*machine_findings(), *(finding for image in images for finding in image_findings(image))]
    problems = {finding.purpose for finding in findings if finding.level is Level.PROBLEM}
    if as_json:
        console.out(json.dumps([{**vars(finding), "level": finding.level.value} for finding in findings], indent=1))
    else:
        console.print(_table(findings))
        if problems:
            console.print(Text(f"\nproblems for: {', '.join(sorted(problems))}", style="bold red"))
        else:
            console.print(Text("\nno problems found", style="green"))
    sys.exit(EXIT_FAILED if problems else 0)


def _table(findings: Sequence[Finding]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("purpose", style="dim", no_wrap=True)
    table.add_column("name", overflow="fold")
    table.add_column("level", no_wrap=True)
    table.add_column("found", overflow="fold")
    before = None
    for finding in findings:
        sign, style = _LOOKS[finding.level]
        found = Text.assemble(finding.found, (f"\n{finding.do}" if finding.do else "", "bold"))
        heading = finding.purpose if finding.purpose != before else ""
        table.add_row(heading, finding.name, Text(f"{sign} {finding.level.value}", style=style), found)
        before = finding.purpose
    return table
