"""`infeed clean`: remove the outputs of old runs."""

from __future__ import annotations

import dataclasses
import json

import click

from infeed.components.base.units import counted, size
from infeed.pipelines.commands.options import root_option
from infeed.pipelines.console.exit_codes import Command
from infeed.pipelines.console.terminal import echo
from infeed.pipelines.local.cleaning import clean, plan_cleaning
from infeed.pipelines.local.history import find_root, only_process


@click.command(name="clean", cls=Command, examples=("infeed clean --dry-run", "infeed clean --root runs/taxi --keep 3"))
@root_option
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Number of newest runs to keep.",
    metavar="N",
)
@click.option("--dry-run", is_flag=True, help="List what would be removed, and remove nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def command(root: str | None, keep: int, dry_run: bool, as_json: bool) -> None:
    """Remove the outputs of old runs from a root.

    The newest runs stay, and so does everything that the cache, the latest blessed model and the latest pushed model
    need. Pushed models themselves, logs and checkpoints are never removed.
    """
    root = find_root(root)
    with only_process(root):
        plan = plan_cleaning(root, keep)
        if not dry_run:
            clean(plan)
    if as_json:
        plain = dataclasses.asdict(plan) | {"runs": [run.number for run in plan.runs], "removed": not dry_run}
        echo(json.dumps(plain, indent=1))
    elif not plan.places and not plan.runs:
        echo("nothing to remove")
    else:
        listed = [f"  artifacts/{place}" for place in plan.places] if dry_run else []
        numbers = ", ".join(str(run.number) for run in reversed(plan.runs))
        what = f"{counted(len(plan.places), 'output folder')}{f', runs {numbers}' if numbers else ''}"
        echo("\n".join([*listed, f"{'would free' if dry_run else 'freed'} {size(plan.bytes)}: {what}"]))
