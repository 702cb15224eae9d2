"""The command `infeed rehearse`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import cast, get_args

import click
from rich.console import Console

from infeed.pipelines.commands.exits import EXIT_FAILED, errors, interruptible
from infeed.pipelines.commands.rehearse_view import failure, summary, times
from infeed.pipelines.deploy.compiled import CompiledJob
from infeed.pipelines.local.live import show_nodes
from infeed.pipelines.rehearse.faults import Faults
from infeed.pipelines.rehearse.locations import Map
from infeed.pipelines.rehearse.platform import Platform
from infeed.pipelines.rehearse.rehearsal import RehearseOptions, rehearse


@click.command(name="rehearse")
@click.argument("job", metavar="JOB")
@click.option("--root", help="Folder for everything that is written.  [default: rehearsals/NAME]", metavar="DIR")
@click.option("--project", default=".", help="Folder of the project's own files.  [default: here]", metavar="DIR")
@click.option(
    "--target",
    type=click.Choice(get_args(Platform)),
    default="vertex",
    help="kubeflow: no drivers, no resolvers, as its backend has it.  [default: vertex]",
)
@click.option("--image", help="Run the steps inside this image, not on this machine.", metavar="NAME")
@click.option("--set", "--parameter", "parameters", multiple=True, help="Runtime parameter.", metavar="NAME=VALUE")
@click.option("--map", "maps", multiple=True, help="Local folder for a place of the job.", metavar="gs://BUCKET=DIR")
@click.option("--fail", multiple=True, help="Kill the first N attempts of a step.", metavar="NODE[:N]")
@click.option("--leave", multiple=True, help="The same, and the next attempt finds what it wrote.", metavar="NODE")
@click.option("--no-cache", is_flag=True, help="Run every step, whatever earlier rehearsals have made.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def rehearse_(
    job: str,
    root: str | None,
    project: str,
    target: str,
    image: str | None,
    parameters: tuple[str, ...],
    maps: tuple[str, ...],
    fail: tuple[str, ...],
    leave: tuple[str, ...],
    no_cache: bool,
    as_json: bool,
    debug: bool,
) -> None:
    """Execute a compiled JOB's own container commands on this machine, without a cluster."""
    with errors(as_json, debug):
        compiled = CompiledJob.read(job)
        options = RehearseOptions(
            root=root or os.path.join("rehearsals", compiled.name),
            project=project,
            image=image,
            parameters=parameters,
            maps=tuple(map(Map.parse, maps)),
            platform=cast(Platform, target),
            faults=Faults.parse(fail, leave),
            use_cache=not no_cache,
        )
        with interruptible("the step was ended, and those before it come from the cache the next time"):
            succeeded = _rehearse(compiled, options, Console(), as_json)
    sys.exit(0 if succeeded else EXIT_FAILED)


def _rehearse(job: CompiledJob, options: RehearseOptions, console: Console, as_json: bool) -> bool:
    logs = Path(options.root) / "logs"
    screen = show_nodes(console, logs, label="logs", loading="reading the job", transient=True)
    with contextlib.nullcontext(lambda nodes: None) if as_json else screen as on_change:
        rehearsal = rehearse(job, options, on_change)
    if as_json:
        told = {
            "succeeded": rehearsal.report.succeeded,
            **dataclasses.asdict(rehearsal),
            "logs": str(logs / rehearsal.name),
        }
        console.out(json.dumps(told, indent=1), highlight=False)
        return rehearsal.report.succeeded
    console.print(times(rehearsal.report))
    root, succeeded = Path(options.root), rehearsal.report.succeeded
    end = summary(rehearsal, root) if succeeded else failure(rehearsal, root, options.image)
    console.print(end, soft_wrap=True, highlight=False)
    return succeeded
