"""`infeed transform`: write the transform graph of a dataset, without TFX."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from infeed.pipelines.commands.asking import config_of
from infeed.pipelines.commands.options import project_options
from infeed.pipelines.console.exit_codes import Command, importing
from infeed.pipelines.console.nodes import show_step
from infeed.pipelines.console.paths import InputFolder, OutputFolder
from infeed.pipelines.console.terminal import show_facts, with_log
from infeed.pipelines.steps.folders import check_new


@click.command(
    name="transform",
    cls=Command,
    examples=(
        "infeed transform taxi/config.yaml --dataset data --output graph",
        "infeed transform taxi/config.yaml --dataset data --output graph --rows transformed",
    ),
)
@project_options
@click.option("--dataset", required=True, type=InputFolder(), help="Dataset of infeed ingest.", metavar="DIR")
@click.option("--output", required=True, type=OutputFolder(), help="Folder of the transform graph.", metavar="DIR")
@click.option("--rows", type=OutputFolder(), help="Also write the transformed rows of the dataset.", metavar="DIR")
@click.option("--overwrite", is_flag=True, help="Replace the outputs if they exist.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else.")
def command(
    project: str, dataset: str, output: str, rows: str | None, overwrite: bool, as_json: bool, **overrides: Any
) -> None:
    """Write the transform graph of a dataset with the features of PROJECT, without TFX.

    `infeed inspect` shows the rows that --rows writes.
    """
    check_new(output, overwrite)
    config = config_of(project, overrides, may_ask=not as_json)
    with with_log(os.devnull) as console:
        with show_step(console, "Transform", silent=as_json):
            with importing():
                from infeed.pipelines.steps.train import transform

            transform(config, dataset, output, rows, overwrite)
        if as_json:
            console.out(json.dumps({"graph": output, "rows": rows}), highlight=False)
        else:
            show_facts(console, [("graph", output), *([("rows", rows)] if rows else [])])
