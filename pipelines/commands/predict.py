"""`infeed predict`."""

from __future__ import annotations

import dataclasses
import json
import os

import click

from infeed.pipelines.commands.exits import errors
from infeed.pipelines.local.logs import quiet


@click.command()
@click.argument("model", metavar="MODEL")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--delimiter", default=",", show_default=True, help="Between the cells of a CSV.", metavar="SIGN")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a prediction.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def predict(model: str, inputs: tuple[str, ...], delimiter: str, as_json: bool, debug: bool) -> None:
    """Ask a pushed MODEL about picture files or the rows of tables: CSV, JSON Lines, Parquet or Avro files."""
    with errors(as_json, debug), quiet(os.devnull) as console:
        from infeed.pipelines.predict import predict as predictions

        for prediction in predictions(model, inputs, delimiter):
            if as_json:
                console.out(json.dumps(dataclasses.asdict(prediction)), highlight=False)
                continue
            sure = "" if prediction.probability is None else f"  {prediction.probability:.1%}"
            console.out(f"{prediction.input}  {prediction.value}{sure}", highlight=False)
