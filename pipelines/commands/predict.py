"""`infeed predict`: predict for images, rows of tables, or examples with a pushed model."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, get_args

import click
import numpy as np
from rich.console import Console

from infeed.components.base.errors import InfeedError
from infeed.components.base.units import counted, percent
from infeed.components.evaluation.predictions.layout import OutputFormat, PredictOptions
from infeed.pipelines.commands.options import source_options
from infeed.pipelines.console.exit_codes import EXIT_FAILED, Command, importing
from infeed.pipelines.console.paths import InputPath, OutputPath
from infeed.pipelines.console.terminal import Terminal, quiet
from infeed.pipelines.predict.inputs import are_datasets
from infeed.pipelines.predict.output import Columns, check_output, suffix_of

_MOST_VALUES = 5  # maximum values of a mask in the text output

if TYPE_CHECKING:
    from infeed.pipelines.predict.predict import Prediction


def written_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for writing predictions to a command, which receives the dict `written`."""

    @click.option(
        "--output",
        type=OutputPath(),
        help="Write the predictions to this file (.csv, .parquet, .jsonl) or, for datasets, to this folder.",
        metavar="PATH",
    )
    @click.option("--overwrite", is_flag=True, help="Replace the output file if it exists.")
    @click.option(
        "--keys", help="Columns that identify a row, for example id,day. They are written first.", metavar="COLUMNS"
    )
    @click.option("--columns", help="Other columns to write.  [default: all columns of a table]", metavar="COLUMNS")
    @click.option(
        "--format",
        "output_format",
        type=click.Choice(get_args(OutputFormat)),
        help="Format of the files written for datasets.  [default: parquet]",
    )
    @click.option("--signature", help="Signature of the model to call.  [default: serving_default]", metavar="NAME")
    @click.option("--splits", help="Splits of the datasets, for example eval,test.  [default: all]", metavar="SPLITS")
    @click.option("--batch-size", type=click.IntRange(min=1), help="Maximum rows in a batch.  [default: 1024]")
    @click.option(
        "--workers",
        type=click.IntRange(min=1),
        help="Number of worker processes for datasets.  [default: by input size]",
        metavar="N",
    )
    @wraps(command)
    def with_options(*, output: str | None, **given: Any) -> Any:
        chosen = {field.name: given.pop(field.name, None) for field in dataclasses.fields(PredictOptions)}
        written = {name: value for name, value in chosen.items() if value is not None}
        written |= {"workers": workers} if (workers := given.pop("workers")) else {}
        if (written or given["overwrite"]) and not output:
            flag = f"--{next(iter(written), 'overwrite').removeprefix('output_').replace('_', '-')}"
            raise InfeedError(f"{flag} is given without --output", where="infeed predict", do="add --output PATH")
        return command(output=output, written=written, **given)

    return with_options


@click.command(
    name="predict",
    cls=Command,
    examples=(
        "infeed predict runs/image/serving photos/",
        "infeed predict runs/tabular rides.csv --delimiter ';' --json",
        "infeed predict runs/tabular/serving data/rides --output predicted --keys ride_id",
    ),
)
@click.argument("model", type=InputPath(), metavar="MODEL")
@click.argument("inputs", nargs=-1, required=True, type=InputPath(), metavar="INPUT...")
@source_options
@written_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per prediction.")
def command(
    model: str,
    inputs: tuple[str, ...],
    source_options: dict[str, Any],
    output: str | None,
    overwrite: bool,
    written: dict[str, Any],
    as_json: bool,
) -> None:
    """Predict with a pushed MODEL for images, tables or datasets: files, or folders of files.

    MODEL is the folder of a run, of its pushed models, or of one model. Tables may have any format that infeed run
    reads. Datasets are folders of TFRecords in Split-* folders. If an input has no prediction, stderr (with --json,
    the field "error") shows the file, the row and the reason. Other inputs are still predicted, and the exit code is
    1.
    --output writes the predictions next to the columns of the table or the paths of the images. For datasets, it
    writes one file per shard.
    """
    # `quiet` redirects stderr, and the reasons of missing predictions must reach the user.
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as stderr, quiet(os.devnull) as console:
        complaints = Terminal(file=stderr, soft_wrap=True, highlight=False, markup=False)
        if output and (suffix_of(output) or not are_datasets(inputs)):
            refused = _write_table(model, inputs, source_options, output, overwrite, written, complaints, console)
            sys.exit(EXIT_FAILED if refused else 0)
        if output:
            with importing():
                from infeed.pipelines.predict.predict import write

            workers = written.pop("workers", None)
            lists: dict[str, Any] = {
                name: tuple(written[name].split(",")) for name in ("keys", "columns", "splits") if name in written
            }
            for path in write(model, inputs, output, PredictOptions(**(written | lists)), workers):
                console.out(path, highlight=False)
            return
        with importing():
            from infeed.pipelines.predict.predict import predict as predictions

        refused = 0
        for prediction in predictions(model, inputs, source_options):
            refused += prediction.error is not None
            if as_json:
                console.out(json.dumps(dataclasses.asdict(prediction)), highlight=False)
                continue
            _remark(complaints, prediction)
            if prediction.error is None:
                console.out(f"{prediction.input}  {_answer(prediction.value, prediction.probability)}", highlight=False)
    sys.exit(EXIT_FAILED if refused else 0)


def _write_table(
    model: str,
    inputs: tuple[str, ...],
    source_options: dict[str, Any],
    output: str,
    overwrite: bool,
    written: dict[str, Any],
    complaints: Console,
    console: Console,
) -> int:
    """Write the predictions to one file. Return the number of inputs without a prediction."""
    if unknown := next((name for name in written if name not in ("keys", "columns")), None):
        flag = f"--{unknown.removeprefix('output_').replace('_', '-')}"
        raise InfeedError(f"{flag} is for datasets", where=f"--output {output}", do="leave it out")
    columns = Columns(
        keys=tuple(written["keys"].split(",")) if "keys" in written else (),
        others=tuple(written["columns"].split(",")) if "columns" in written else None,
    )
    check_output(output, overwrite)
    with importing():
        from infeed.pipelines.predict.predict import write_table

    done = write_table(model, inputs, source_options, columns, output, overwrite, partial(_remark, complaints))
    notes = [f"{counted(done.rows, 'row')}"]
    notes += [f"{done.without_answer:,} without an answer"] if done.without_answer else []
    notes += [f"{counted(done.left_out, 'line')} left out"] if done.left_out else []
    console.out(f"wrote {output}: {', '.join(notes)}", highlight=False)
    return done.without_answer + done.left_out


def _remark(complaints: Console, prediction: Prediction) -> None:
    for kind, words in (("error", prediction.error), ("note", prediction.note)):
        if words is not None:
            complaints.print(f"{kind}: {prediction.input}: {words}")


def _answer(value: Any, probability: Any) -> str:
    """Return a prediction with its probability, of several classes with those of each, and by output."""
    if isinstance(value, dict):
        return "  ".join(f"{name}: {_answer(one, probability[name])}" for name, one in value.items())
    if isinstance(probability, list):
        return f"[{', '.join(map(_answer, value, probability))}]"
    return _in_words(value) + ("" if probability is None else f"  {probability:.1%}")


def _in_words(value: Any) -> str:
    """Describe nested values, such as the pixels of an image: their shape, and the most frequent values."""
    if not (isinstance(value, list) and value and isinstance(value[0], list)):
        return f"[{', '.join(map(_shortest, value))}]" if isinstance(value, list) else _shortest(value)
    array = np.array(value)
    values, counts = np.unique(array, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:_MOST_VALUES]
    shares = [f"{values[place]} in {percent(counts[place] / array.size)}" for place in order]
    more = [f"{len(values) - len(order):,} more"] if len(values) > len(order) else []
    return f"{' x '.join(map(str, array.shape))}: {', '.join([*shares, *more])}"


def _shortest(value: Any) -> str:
    """Return a value as text. Numbers of 32 bits omit the digits of their conversion to 64 bits."""
    is_short = isinstance(value, float) and np.float32(value) == value
    return str(np.float32(value) if is_short else value)
