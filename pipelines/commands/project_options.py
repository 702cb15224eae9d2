"""The argument and options that say what a pipeline is made of, shared by the commands that need one."""

from __future__ import annotations

from typing import Any

import click

from infeed.components.trainer.strategy import NAMES
from infeed.pipelines.project import TEMPLATES


def project_options(command: Any) -> Any:
    """Adds them to a command, which gets `project`, `debug`, and the fields of `Overrides` by name."""
    options = [
        click.argument("project", default="image", metavar=f"[{'|'.join(TEMPLATES)}|CONFIG.YAML]"),
        click.option(
            "--data", help="Pictures in class folders, or a table: CSV, JSON Lines, Parquet or Avro.", metavar="PATH"
        ),
        click.option("--delimiter", help="Between the cells of a CSV.  [default: ,]", metavar="SIGN"),
        click.option("--label", help="Column to learn, for a table.", metavar="COLUMN"),
        click.option(
            "--task", type=click.Choice(["classification", "regression"]), help="Told from the label by default."
        ),
        click.option("--root", help="Folder for everything that is written.  [default: runs/NAME]", metavar="DIR"),
        click.option("--epochs", type=click.IntRange(min=1), help="Most epochs to train."),
        click.option("--batch-size", type=click.IntRange(min=1), help="Records in a global batch."),
        click.option("--strategy", help=f"Distribution strategy: {', '.join(NAMES)}.", metavar="NAME"),
        click.option("--debug", is_flag=True, help="Show tracebacks."),
    ]
    for option in reversed(options):
        command = option(command)
    return command
