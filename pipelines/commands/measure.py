"""`infeed measure`: measure the input pipeline of a dataset or of a user's tf.data pipeline, stage by stage."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import click
from rich.table import Table

from infeed.components.base.errors import InfeedError, naming_extras
from infeed.components.base.units import size
from infeed.components.dataset import files
from infeed.components.dataset.input_profile import pipeline_rate
from infeed.components.feed.options import FeedOptions, MapFunction, MapKind
from infeed.pipelines.console.exit_codes import Command
from infeed.pipelines.console.paths import InputPath
from infeed.pipelines.console.terminal import Terminal, echo, quiet
from infeed.pipelines.local.measure import (
    WINDOW,
    Measurement,
    SplitOnDisk,
    load_function,
    measure_files,
    measure_function,
    step_rate,
)

if TYPE_CHECKING:
    from infeed.components.dataset.input_profile import StageCost


@click.command(
    name="measure",
    cls=Command,
    examples=(
        "infeed measure mine.py:make_dataset",
        "infeed measure data --batch-size 256 --against tfx",
        "infeed measure data --model mine.py:make_model --label price",
    ),
)
@click.argument("dataset", type=InputPath(), metavar="DATASET")
@click.option("--split", metavar="NAME", help="Split to read.  [default: the first]")
@click.option(
    "--batch-size", type=click.IntRange(min=1), default=128, show_default=True, help="Number of examples in a batch."
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    default=20.0,
    show_default=True,
    help="Duration of the measurement in seconds.",
)
@click.option(
    "--tier",
    type=click.Choice(["columns", "disk", "stream"]),
    default="stream",
    show_default=True,
    help="Tier in which the feed keeps the split.",
)
@click.option("--map-examples", metavar="FUNCTION", help="Function to call on each example: mine.py:function.")
@click.option("--map-batches", metavar="FUNCTION", help="Function to call on each batch: mine.py:function.")
@click.option(
    "--map-kind",
    type=click.Choice(get_args(MapKind)),
    default="tensorflow",
    show_default=True,
    help="Kind of these functions.",
)
@click.option(
    "--against",
    type=click.Choice(["naive", "tfx"]),
    help="Also measure another reader of the same files: the loop of most tutorials, or TFX's own.",
)
@click.option(
    "--model",
    type=InputPath(),
    metavar="MODEL",
    help="Compiled Keras model to train on a batch, which shows whether the input or the training step is slower: "
    "a .keras file or a function, mine.py:make_model.",
)
@click.option("--label", metavar="NAME", help="Label feature of the model.")
@click.option("--json", "as_json", is_flag=True, help="Print the measurement as JSON.")
def command(
    dataset: str,
    split: str | None,
    batch_size: int,
    seconds: float,
    against: str | None,
    model: str | None,
    label: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Measure the input pipeline of a dataset: its rate, and the cost of each stage.

    DATASET is a dataset of `infeed ingest`, a TFX Examples artifact, a folder of TFRecord files, one file, or a
    function that returns a tf.data.Dataset: `mine.py:make_dataset` or `package.module:make_dataset`.
    """
    options = _options(batch_size, given)
    if label and not model:
        raise InfeedError("--label requires --model", where="--label", do="add --model, or leave out the option")
    # `quiet` redirects stderr, where the user waits for a sign of life.
    with os.fdopen(os.dup(2), "w") as stderr, quiet(os.devnull), naming_extras():
        step = step_rate(model, label) if model else None
        if ":" in dataset and "://" not in dataset and not files.exists(dataset):
            if against:
                raise InfeedError("a function has no files", where="--against", do="leave out the option")
            measure = partial(measure_function, dataset, load_function(dataset))
        else:
            measure = partial(measure_files, SplitOnDisk.open(dataset, split), options, against)
        print(f"measuring for about {seconds:g} s", file=stderr, flush=True)
        found = measure(seconds=seconds, step=step)
    _show(found, as_json)


def _options(batch_size: int, given: dict[str, Any]) -> FeedOptions:
    maps: dict[str, Any] = {
        name: MapFunction(given[name], given["map_kind"]) for name in ("map_examples", "map_batches") if given[name]
    }
    streams = given["tier"] == "stream"
    return FeedOptions(
        batch_size,
        tier=given["tier"],
        cache_records=False if streams else None,  # each turn measures an epoch with reading
        shuffle_records=WINDOW if streams else None,
        **maps,
    )


def _show(found: Measurement, as_json: bool) -> None:
    stages, rate = found.measured.stages, pipeline_rate(found.measured.stages)
    if as_json:
        told = {"plan": found.described, "examples_per_second": rate, "bound_by": found.bound_by}
        told |= {"verdict": found.verdict, "step_examples_per_second": found.step}
        told |= {"stages": list(map(dataclasses.asdict, stages)), "trials": list(map(dataclasses.asdict, found.trials))}
        name, other = found.rival or ("", 0.0)
        rival = {"name": name, "examples_per_second": other, "times": rate / other} if found.rival else None
        echo(json.dumps({**told, "against": rival}))
        return
    console = Terminal(highlight=False, markup=False)
    console.print(found.described, soft_wrap=True)
    console.print(_table(stages))
    console.print(found.verdict, soft_wrap=True)
    if found.rival:
        name, other = found.rival
        ratio = f"this pipeline is {rate / other:.1f} times as fast"
        console.print(f"The reader of {name} makes {other:,.0f} examples per second; {ratio}.", soft_wrap=True)


def _table(stages: Sequence[StageCost]) -> Table:
    table = Table("stage", box=None, header_style="bold", pad_edge=False)
    for name in ("µs/example", "±", "CPU s/1,000", "examples/s", "output", "memory"):
        table.add_column(name, justify="right")
    for one in stages:
        cost = "within noise" if one.hidden else f"{one.microseconds:,.2f}"
        rate, output = f"{one.examples_per_second:,.0f}", size(one.bytes_per_example)
        memory = "unknown" if one.memory_bytes is None else size(one.memory_bytes)
        table.add_row(one.label, cost, f"{one.spread:,.2f}", f"{one.cpu_seconds:.4f}", rate, output, memory)
    return table
