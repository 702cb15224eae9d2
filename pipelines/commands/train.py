"""`infeed train`: train a model on a dataset, without TFX."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import click

from infeed.components.base.errors import InfeedError
from infeed.components.trainer.versions import newest_version
from infeed.pipelines.commands.asking import config_of
from infeed.pipelines.commands.options import project_options
from infeed.pipelines.console.exit_codes import Command, importing
from infeed.pipelines.console.nodes import show_step
from infeed.pipelines.console.paths import InputFolder, OutputFolder, ServingFolder
from infeed.pipelines.console.terminal import show_facts, verbose_option, with_log
from infeed.pipelines.steps.folders import check_new


@click.command(
    name="train",
    cls=Command,
    examples=(
        "infeed train taxi/config.yaml --dataset data --graph graph --output model",
        "infeed train taxi/config.yaml --dataset data --graph graph --output model --epochs 3",
    ),
)
@project_options
@click.option("--dataset", required=True, type=InputFolder(), help="Dataset of infeed ingest.", metavar="DIR")
@click.option("--graph", required=True, type=InputFolder(), help="Output of infeed transform.", metavar="DIR")
@click.option("--output", required=True, type=OutputFolder(), help="Folder of the SavedModel.", metavar="DIR")
@click.option(
    "--run",
    type=OutputFolder(),
    help="Folder of measurements, TensorBoard logs and checkpoints.  [default: OUTPUT-run]",
    metavar="DIR",
)
@click.option("--base-model", type=InputFolder(), help="Model whose weights are the start of training.", metavar="DIR")
@click.option(
    "--warm-start",
    type=ServingFolder(),
    help="Serving folder, or a version in it, whose newest model is the start of training. It may be empty.",
    metavar="DIR",
)
@click.option("--checkpoints", type=OutputFolder(), help="Folder of the checkpoints.  [default: in RUN]", metavar="DIR")
@click.option("--overwrite", is_flag=True, help="Replace the model at OUTPUT.")
@verbose_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else.")
def command(
    project: str,
    dataset: str,
    graph: str,
    output: str,
    run: str | None,
    base_model: str | None,
    warm_start: str | None,
    checkpoints: str | None,
    overwrite: bool,
    verbose: bool,
    as_json: bool,
    **overrides: Any,
) -> None:
    """Train the model of PROJECT on a dataset, without TFX.

    If training is killed, repeat the command to resume it.
    """
    check_new(output, overwrite)
    if base_model and warm_start:
        raise InfeedError("--base-model and --warm-start are both set", where="infeed train", do="use only one of them")
    config = config_of(project, overrides, may_ask=not as_json)
    if checkpoints:
        config = dataclasses.replace(config, train=dataclasses.replace(config.train, checkpoint_dir=checkpoints))
    run = run or f"{output.rstrip('/')}-run"
    log = f"{run}/train.log"
    # An empty serving folder starts from random weights, as in the first run of a schedule.
    place = base_model or (warm_start and newest_version(warm_start))
    with with_log(log, verbose) as console:
        with show_step(console, "Trainer", log, silent=as_json, plain=verbose):
            with importing():
                from infeed.pipelines.steps.train import local_model, train

            with local_model(place) as start:
                train(config, dataset, graph, output, run, start, overwrite)
        if as_json:
            console.out(json.dumps({"model": output, "run": run, "base_model": place}), highlight=False)
        else:
            show_facts(console, [("model", output), ("run", run), ("started from", place or "random weights")])
