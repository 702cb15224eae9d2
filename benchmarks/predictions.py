"""Predictions of a whole split: our BulkInferrer and TFX's, in turns in one process.

    python benchmarks/predictions.py --rows 30000 --columns 20

The model parses tf.Examples and feeds their numeric columns to two dense layers. Its outputs are the class and the
probabilities. `tfx` is TFX's component as in its guides. Ours writes the same protos, and also Parquet with two columns
of the examples as keys. Our ingest writes the Examples. After a small run of each contender, the time starts after the
imports and ends when all files are on disk.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from harness import Result, Side, as_json, missing, report
from ingest import BUCKETS, in_turns, ingest_alone, write_table

from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.sources.csv_files import open_csv

_HIDDEN, _CLASSES = 64, 10
_KEYS = ("column_0", "column_2")  # an integer and text
Run = Callable[[Path, Path], None]  # (folder of the data, folder of the outputs)


@click.command()
@click.option("--rows", default=30_000, show_default=True, help="Rows of the table.")
@click.option("--columns", default=20, show_default=True, help="Columns: integers, floats and text in turn.")
@click.option("--turns", default=3, show_default=True, help="Turns of each contender. The table shows medians.")
@as_json
def main(rows: int, columns: int, turns: int, as_json: bool) -> None:
    """Measure BulkInferrer against TFX's."""
    report(results(rows, columns, turns), as_json)


def results(rows: int, columns: int, turns: int) -> Iterator[Result]:
    case = f"{rows:,} rows x {columns} columns"
    if absent := missing("tfx"):
        yield Result("predictions", case, Side("infeed parquet", absent=absent), None, 0)
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, size in (("small", 100), ("data", rows)):
            write_data(Path(folder, name), size, columns)
        sides = in_turns(contenders(), Path(folder), turns)
    for ours in (name for name in sides if name.startswith("infeed")):
        yield Result("predictions", case, sides[ours], sides["tfx"], turns)


def write_data(folder: Path, rows: int, columns: int) -> None:
    """Write Examples of a table with column statistics, and a model for them."""
    folder.mkdir()
    write_table(folder / "table", rows, columns)
    ingest_alone(open_csv(str(folder / "table"), {None: "*"}, IngestOptions()), folder / "examples")
    save_model(folder / "model" / "Format-Serving", [f"column_{column}" for column in range(1, columns, 3)])


def save_model(folder: Path, numbers: list[str]) -> None:
    """Save a model that takes tf.Examples and uses the columns `numbers`."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    module = tf.Module()
    module.first = tf.Variable(random.normal(size=(len(numbers), _HIDDEN)), dtype=tf.float32)
    module.second = tf.Variable(random.normal(size=(_HIDDEN, _CLASSES)), dtype=tf.float32)
    names = tf.constant([f"class {number}" for number in range(_CLASSES)])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "examples")], autograph=False)
    def serve(examples: Any) -> Mapping[str, Any]:
        parsed = tf.io.parse_example(examples, {name: tf.io.FixedLenFeature([1], tf.float32, 0.0) for name in numbers})
        hidden = tf.nn.relu(tf.concat([parsed[name] for name in numbers], 1) @ module.first)
        probabilities = tf.nn.softmax(hidden @ module.second)
        return {"probabilities": probabilities, "class": tf.gather(names, tf.argmax(probabilities, 1))[:, tf.newaxis]}

    tf.saved_model.save(module, str(folder), {"serving_default": serve})


def contenders() -> dict[str, Run]:
    import tfx.components

    from infeed.components import BulkInferrer

    return {
        "tfx": partial(run_component, tfx.components.BulkInferrer),
        "infeed prediction_log": partial(run_component, BulkInferrer),
        "infeed parquet": partial(run_component, BulkInferrer, keys=_KEYS),
    }


def run_component(kind: Any, data: Path, out: Path, **options: Any) -> None:
    """Run a component's executor as an orchestrator does, on one machine."""
    from tfx.types import channel_utils, standard_artifacts

    from infeed.components.engine.beam_runner import local_runner

    inputs = {"examples": [standard_artifacts.Examples()], "model": [standard_artifacts.Model()]}
    for name, (artifact,) in inputs.items():
        artifact.uri = str(data / name)
    inputs["examples"][0].split_names = json.dumps(BUCKETS.names)
    component = kind(**{name: channel_utils.as_channel(artifacts) for name, artifacts in inputs.items()}, **options)
    output = standard_artifacts.InferenceResult()
    output.uri = str(out)
    with local_runner():
        component.executor_spec.executor_class().Do(inputs, {"inference_result": [output]}, component.exec_properties)


if __name__ == "__main__":
    main()
