"""`infeed rehearse`: execute a compiled job on this machine, and print the time of each step."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any, get_args

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from infeed.components.base.units import short_path, stopwatch
from infeed.pipelines.cluster.job.compiled import CompiledJob, Target
from infeed.pipelines.cluster.rehearse.executor_io import Kfp
from infeed.pipelines.cluster.rehearse.launch import Faults, last_lines
from infeed.pipelines.cluster.rehearse.rehearsal import PathMapping, Rehearsal, RehearseOptions, rehearse
from infeed.pipelines.console.exit_codes import EXIT_FAILED, Command, interruptible
from infeed.pipelines.console.nodes import RunReport, format_state, show_nodes
from infeed.pipelines.console.paths import InputFolder, InputPath, MappedFolder, OutputFolder
from infeed.pipelines.console.terminal import Terminal, command_line, in_lines


@click.command(
    name="rehearse",
    cls=Command,
    examples=(
        "infeed rehearse taxi.yaml --project taxi --map gs://bucket=bucket",
        "infeed rehearse taxi.yaml --fail Trainer:2",
    ),
)
@click.argument("job", type=InputPath(), metavar="JOB")
@click.option("--root", type=OutputFolder(), help="Folder for all outputs.  [default: rehearsals/NAME]", metavar="DIR")
@click.option(
    "--project",
    type=InputFolder(),
    default=".",
    help="Folder of the project files.  [default: the current folder]",
    metavar="DIR",
)
@click.option(
    "--target",
    type=click.Choice(get_args(Target)),
    help="Platform to imitate. kubeflow runs no drivers and no resolvers.  [default: the platform of JOB]",
)
@click.option(
    "--kfp",
    type=click.Choice(get_args(Kfp)),
    default="2.17",
    show_default=True,
    help="Version of Kubeflow Pipelines whose messages the steps receive.",
)
@click.option("--image", help="Run the steps inside this container image.", metavar="NAME")
@click.option(
    "--set",
    "--parameter",
    "parameters",
    multiple=True,
    help="Runtime parameter of the job. May be repeated.",
    metavar="NAME=VALUE",
)
@click.option(
    "--map",
    "maps",
    type=MappedFolder(),
    multiple=True,
    help="Use a local folder instead of a bucket. May be repeated.",
    metavar="gs://BUCKET=DIR",
)
@click.option("--fail", multiple=True, help="Kill the first N attempts of this step (default: 1).", metavar="NODE[:N]")
@click.option(
    "--leave",
    multiple=True,
    help="Kill the first attempt of this step, and keep its outputs for the next attempt.",
    metavar="NODE",
)
@click.option(
    "--workers",
    type=int,
    help="Maximum number of steps to run at the same time.  [default: by the cores and the memory of this machine]",
    metavar="N",
)
@click.option("--no-cache", is_flag=True, help="Run every step, and ignore cached results of earlier rehearsals.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else.")
def command(
    job: str,
    root: str | None,
    maps: tuple[str, ...],
    fail: tuple[str, ...],
    leave: tuple[str, ...],
    no_cache: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Execute the container commands of a compiled JOB on this machine, without a cluster."""
    compiled = CompiledJob.read(job)
    options = RehearseOptions(
        root or os.path.join("rehearsals", compiled.name),
        maps=tuple(map(PathMapping.parse, maps)),
        faults=Faults.parse(fail, leave),
        use_cache=not no_cache,
        **given,  # options with the same names
    )
    with interruptible("the running steps were stopped. The next rehearsal takes finished steps from the cache"):
        succeeded = _rehearse(compiled, options, Terminal(), as_json)
    sys.exit(0 if succeeded else EXIT_FAILED)


def _rehearse(job: CompiledJob, options: RehearseOptions, console: Console, as_json: bool) -> bool:
    logs = Path(options.root) / "logs"
    with show_nodes(
        console, logs, label="logs", loading="reading the job", transient=True, silent=as_json
    ) as on_change:
        rehearsal = rehearse(job, options, on_change)
    if as_json:
        result = {
            "succeeded": rehearsal.report.succeeded,
            **dataclasses.asdict(rehearsal),
            "logs": str(logs / rehearsal.name),
        }
        console.out(json.dumps(result, indent=1), highlight=False)
        return rehearsal.report.succeeded
    console.print(times(rehearsal.report))
    root, succeeded = Path(options.root), rehearsal.report.succeeded
    end = summary(rehearsal, root) if succeeded else failure(rehearsal, root, options.image)
    console.print(end, soft_wrap=True, highlight=False)
    return succeeded


def times(report: RunReport) -> Table:
    """Return a table of the steps with their times and shares of the total time."""
    total = sum(node.seconds for node in report.nodes)
    table = Table(box=None, pad_edge=False, show_footer=True, header_style="dim", footer_style="dim")
    table.add_column("step", footer="total", overflow="fold")
    table.add_column("state", no_wrap=True)
    table.add_column("time", footer=stopwatch(report.seconds), justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("", style="dim", overflow="fold")
    for node in report.nodes:
        spent = [stopwatch(node.seconds), f"{node.seconds / total:.0%}"] if node.seconds else ["", ""]
        table.add_row(node.name, format_state(node.state), *spent, node.note)
    return table


def summary(rehearsal: Rehearsal, root: Path) -> Text:
    """Summarize a rehearsal: blessing and pushed model of a TFX pipeline, artifacts and logs."""
    lines = []
    for artifacts in rehearsal.outputs.values():
        for artifact in (artifact for found in artifacts.values() for artifact in found):
            if artifact.title == "tfx.ModelBlessing" and "blessed" in artifact.metadata:
                lines.append(("blessed", "yes" if artifact.metadata["blessed"] else "no"))
            if artifact.title == "tfx.PushedModel" and artifact.metadata.get("pushed"):
                lines.append(("pushed to", short_path(artifact.metadata["pushed_destination"])))
    lines += [("artifacts", short_path(rehearsal.artifacts)), ("logs", short_path(root / "logs" / rehearsal.name))]
    return Text("\n") + in_lines(dict(lines).items(), width=12)


def failure(rehearsal: Rehearsal, root: Path, image: str | None) -> Text:
    """Describe the failed step: its error, the end of its log, and the next steps for the user."""
    failed = rehearsal.report.failed
    assert failed is not None, "this requires a failed rehearsal"
    log = root / "logs" / rehearsal.name / f"{failed.name}.log"
    end = [(f"  {line}\n", "dim") for line in last_lines(log)]
    script = log.with_suffix(".sh")
    again_by_hand = f"repeat the step by hand: {command_line(short_path(script), program='sh')}"
    where = [f"log: {short_path(log)}", *([again_by_hand] if script.exists() else [])]
    look = [f"compare the image with this machine: {command_line('doctor', '--image', image)}"] if image else []
    again = "the next rehearsal takes the finished steps from the cache, if the job enables caching"
    words = "\n".join([*where, *look, again])
    return Text.assemble("\n", (f"{failed.name} failed", "bold red"), f"\n{failed.error}\n\n", *end, words)
