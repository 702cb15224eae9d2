"""`infeed evaluate`: measure and bless a model, without TFX."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import Any

import click

from infeed.components.evaluation.model_report.options import HTML
from infeed.components.evaluation.predictions.raw_columns import check_dataset
from infeed.components.evaluation.predictions.saved_model import model_folder
from infeed.pipelines.commands.asking import config_of
from infeed.pipelines.commands.options import project_options
from infeed.pipelines.commands.run_summary import blessing_lines, score_lines
from infeed.pipelines.console.exit_codes import EXIT_NOT_BLESSED, Command, importing
from infeed.pipelines.console.nodes import show_step
from infeed.pipelines.console.paths import InputFolder, OutputFolder
from infeed.pipelines.console.terminal import in_lines, with_log
from infeed.pipelines.steps.folders import check_new


@click.command(
    name="evaluate",
    cls=Command,
    examples=(
        "infeed evaluate taxi/config.yaml --dataset data --model model --output evaluation",
        "infeed evaluate taxi/config.yaml --dataset data --model model --baseline serving --output evaluation",
    ),
)
@project_options
@click.option("--dataset", required=True, type=InputFolder(), help="Dataset of infeed ingest.", metavar="DIR")
@click.option("--model", required=True, type=InputFolder(), help="Output of infeed train.", metavar="DIR")
@click.option("--output", required=True, type=OutputFolder(), help="Folder of metrics and blessing.", metavar="DIR")
@click.option(
    "--baseline",
    type=InputFolder(),
    help="Model to compare with, or a serving folder with its versions.",
    metavar="DIR",
)
@click.option("--allow-unblessed", is_flag=True, help="Exit with 0 even if the model is not blessed.")
@click.option("--overwrite", is_flag=True, help="Replace the evaluation at OUTPUT.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else.")
def command(
    project: str,
    dataset: str,
    model: str,
    output: str,
    baseline: str | None,
    allow_unblessed: bool,
    overwrite: bool,
    as_json: bool,
    **overrides: Any,
) -> None:
    """Evaluate a model with the metrics and the blessing of PROJECT, without TFX.

    The exit code is 3 if the model is not good enough to be blessed.
    """
    check_new(output, overwrite)
    for is_baseline, path in ((False, model), (True, baseline)):
        if path:  # before TensorFlow, which takes seconds to import
            check_dataset(model_folder(path), dataset, is_baseline=is_baseline)
    config = config_of(project, overrides, may_ask=not as_json)
    with with_log(os.devnull) as console:
        with show_step(console, "Evaluator", silent=as_json):
            with importing():
                from infeed.pipelines.local.scores import read_scores, reasons
                from infeed.pipelines.steps.evaluate import evaluate

            blessed = evaluate(config, dataset, model, output, baseline, overwrite)
        scores, why = read_scores(output, config), reasons(output, config.blessing)
        if as_json:
            found = {"blessed": blessed, "reasons": why, "evaluation": output, **dataclasses.asdict(scores)}
            console.out(json.dumps(found), highlight=False)
        else:
            files = [("evaluation", output), ("how good it is", os.path.join(output, HTML))]
            lines = [*score_lines(scores), *blessing_lines(blessed, why), *files]
            console.print(in_lines(lines), soft_wrap=True)
    sys.exit(0 if blessed or allow_unblessed else EXIT_NOT_BLESSED)
