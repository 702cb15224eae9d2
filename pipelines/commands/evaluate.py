"""`infeed evaluate`: measure and bless a model, without TFX."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import Any

import click

from infeed.components.base.units import counted
from infeed.components.dataset.manifest import Manifest
from infeed.components.evaluation.model_report.options import HTML
from infeed.components.evaluation.predictor import check_dataset, model_folder
from infeed.pipelines.commands.asking import config_of
from infeed.pipelines.commands.options import project_options
from infeed.pipelines.commands.run_summary import blessing_lines, other_lines, score_lines
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.console.exit_codes import EXIT_NOT_BLESSED, Command, importing
from infeed.pipelines.console.nodes import show_step
from infeed.pipelines.console.paths import InputFolder, InputPath, OutputFolder
from infeed.pipelines.console.terminal import in_lines, with_log
from infeed.pipelines.predict.inputs import are_datasets, check_exist, tables_of
from infeed.pipelines.steps.folders import check_new


@click.command(
    name="evaluate",
    cls=Command,
    examples=(
        "infeed evaluate taxi/config.yaml --dataset data --model model --output evaluation",
        "infeed evaluate taxi/config.yaml --dataset data --model model --baseline serving --output evaluation",
        "infeed evaluate taxi/config.yaml --dataset june.csv --model runs/taxi --output evaluation",
    ),
)
@project_options
@click.option(
    "--dataset",
    required=True,
    type=InputPath(),
    help="Dataset of infeed ingest, or tables to read as in training.",
    metavar="PATH",
)
@click.option("--model", required=True, type=InputFolder(), help="Output of infeed train.", metavar="DIR")
@click.option("--output", required=True, type=OutputFolder(), help="Folder of metrics and blessing.", metavar="DIR")
@click.option(
    "--baseline",
    type=InputFolder(),
    help="Model to compare with, or a serving folder with versions.",
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

    Tables are read with the types and options of the training files. Rows without a label are excluded. The exit code
    is 3 if the model is not good enough to be blessed.
    """
    check_new(output, overwrite)
    for is_baseline, path in ((False, model), (True, baseline)):
        if path:  # before the import of TensorFlow, which takes seconds
            check_dataset(model_folder(path), dataset, is_baseline=is_baseline)
    check_exist([dataset])
    is_table = not are_datasets([dataset])
    if is_table:
        tables_of(dataset)  # an error if the folder has none
    config = config_of(project, overrides, may_ask=not as_json)
    with with_log(os.devnull) as console, ExitStack() as until_end:
        with show_step(console, "Evaluator", silent=as_json):
            with importing():
                from infeed.pipelines.local.outcome import read_scores, reasons
                from infeed.pipelines.predict.labeled import write_labeled
                from infeed.pipelines.steps.evaluate import evaluate

            rows = None
            if is_table:
                # The evaluation reads datasets, so a table becomes one for the time of this command.
                place = until_end.enter_context(TemporaryDirectory(prefix="infeed-evaluate-"))
                rows, dataset = write_labeled(model, dataset, config, place), place
            blessed = evaluate(config, dataset, model, output, baseline, overwrite)
            if rows and rows.rejected.file:
                shutil.copy(os.path.join(dataset, rows.rejected.file), output)
        (scores, others), why = read_scores(output, config), reasons(output, config.blessing)
        counts = {} if rows is None else {"rejected": rows.rejected.rows, "left_out": rows.filtered}
        if as_json:
            found = {"blessed": blessed, "reasons": why, "evaluation": output, **counts, **dataclasses.asdict(scores)}
            found |= {"others": [dataclasses.asdict(one) for one in others]} if others else {}
            console.out(json.dumps(found), highlight=False)
        else:
            page = os.path.join(output, HTML)
            files = [("evaluation", output), *([("how good it is", page)] if os.path.exists(page) else [])]
            told = [*score_lines(scores, config.blessing.output), *other_lines(others)]
            lines = [*told, *_rows_lines(rows, config), *blessing_lines(blessed, why), *files]
            console.print(in_lines(lines), soft_wrap=True)
    sys.exit(0 if blessed or allow_unblessed else EXIT_NOT_BLESSED)


def _rows_lines(rows: Manifest | None, config: PipelineConfig) -> Iterator[tuple[str, ...]]:
    """Yield the number of rows of a table that are not scored, and why."""
    if rows and rows.filtered:
        why = "without a label" + (f", or not {config.ingest.filter}" if config.ingest.filter else "")
        yield "left out", f"{counted(rows.filtered, 'row')} {why}"
    if rows and rows.rejected.rows:
        yield "bad rows", f"{counted(rows.rejected.rows, 'row')} rejected, in rejected.jsonl beside the metrics"
