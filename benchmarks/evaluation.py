"""Evaluation: our Evaluator and TFX's, on the same model and dataset, in one process.

    python benchmarks/evaluation.py --rows 33000

The model is a cheap formula over all columns, so that the evaluators dominate the time. Both write the same metrics: of
all rows, and in a second case also of ten slices. `--baseline` compares the model with a second one. The time starts
after the imports and ends when all files are on disk.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
from clock import Cost, Stopwatch
from harness import Result, Side, as_json, interleave, missing, report

from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.records import frame_records, write_records

# Metrics of the tabular template for two classes.
_METRICS: Sequence[Mapping[str, Any]] = (
    {
        "metrics": [
            {"class_name": "SparseCategoricalAccuracy", "threshold": {"value_threshold": {"lower_bound": 0.3}}},
            {"class_name": "ExampleCount"},
        ]
    },
    {"metrics": [{"class_name": "AUC"}], "binarize": {"class_ids": {"values": [1]}}},
)
_SLICE = "column_2"


@click.command()
@click.option("--rows", default=33_000, show_default=True)
@click.option("--columns", default=20, show_default=True, help="Columns: integers, floats and text in turn.")
@click.option("--turns", default=3, show_default=True, help="Turns of each contender. The table shows medians.")
@click.option("--baseline", is_flag=True, help="Compare with a second model.")
@as_json
def main(rows: int, columns: int, turns: int, baseline: bool, as_json: bool) -> None:
    """Measure evaluation."""
    with tempfile.TemporaryDirectory() as folder:
        report(results(Path(folder), rows, columns, turns, baseline), as_json)


def results(folder: Path, rows: int, columns: int, turns: int, baseline: bool) -> Iterator[Result]:
    """Yield the results for all rows, and for ten slices."""
    case = f"{rows:,} rows x {columns} columns{', with a baseline' if baseline else ''}"
    if absent := missing("tfx"):
        yield Result("Evaluator", case, Side("infeed", absent=absent), None, 0)
        return
    batch = table(rows, columns)
    write_examples(folder / "examples", batch)
    models = [write_model(folder / name, batch) for name in ("model", "baseline")[: 1 + baseline]]
    for slices in ((), (_SLICE,)):
        contenders = {
            name: partial(evaluate, module, folder, models, slices)
            for name, module in (("tfx", "tfx.components"), ("infeed", "infeed.components.evaluation.component"))
        }
        for run in contenders.values():
            run()  # pay first-time costs before measuring
        took = interleave(contenders, turns)
        theirs, ours = (Side.of(name, costs) for name, costs in took.items())
        yield Result("Evaluator", f"{case}, {'10 slices' if slices else 'all rows'}", ours, theirs, turns)


def table(rows: int, columns: int, seed: int = 0) -> pa.RecordBatch:
    """Return integers, floats and text in turn, and a label of two classes that depends on them weakly."""
    random = np.random.default_rng(seed)
    made: dict[str, Any] = {}
    for column in range(columns):
        kind = column % 3
        numbers = random.integers(0, 10, rows) if kind != 1 else random.normal(size=rows).astype(np.float32)
        made[f"column_{column}"] = [f"label {number}" for number in numbers] if kind == 2 else numbers
    label = (made["column_1"] + random.normal(size=rows) > 0).astype(np.int64)
    return pa.RecordBatch.from_pydict({**made, "label": label})


def write_examples(
    folder: Path, batch: pa.RecordBatch, split: str = "Split-eval", file: str = "data_tfrecord-00000-of-00001.gz"
) -> None:
    """Write one file of a split."""
    (folder / split).mkdir(parents=True, exist_ok=True)
    path = str(folder / split / file)
    write_records(path, [frame_records(encode_examples(batch))], gzip_level=1)


def write_model(folder: Path, batch: pa.RecordBatch) -> Path:
    """Write a SavedModel with the same signatures as the template's model."""
    import tensorflow as tf

    kinds = {"int64": tf.int64, "float": tf.float32, "string": tf.string}
    spec = {field.name: tf.io.FixedLenFeature([1], kinds[str(field.type)]) for field in batch.schema}
    model, signature = tf.Module(), [tf.TensorSpec([None], tf.string, name="examples")]

    def features(examples: Any) -> dict[str, Any]:
        parsed = tf.io.parse_example(examples, spec)
        hashed = {
            name: tf.strings.to_hash_bucket_fast(x, 10) if x.dtype == tf.string else x for name, x in parsed.items()
        }
        return {name: tf.cast(x, tf.float32) for name, x in hashed.items() if name != "label"} | {
            "label": parsed["label"]
        }

    @tf.function(input_signature=signature)
    def serving_default(examples: Any) -> dict[str, Any]:
        inputs = features(examples)
        score = 2 * inputs["column_1"] + 1e-3 * tf.add_n([x for name, x in inputs.items() if name != "label"])
        return {"probabilities": tf.nn.softmax(tf.concat([tf.zeros_like(score), score], axis=1))}

    model.serving_default, model.transform_features = serving_default, tf.function(features, input_signature=signature)
    signatures = {"serving_default": model.serving_default, "transform_features": model.transform_features}
    tf.saved_model.save(model, str(folder / "Format-Serving"), signatures=signatures)
    return folder


def evaluate(module: str, folder: Path, models: Sequence[Path], slices: Sequence[str]) -> Cost:
    """Run an Evaluator's executor as an orchestrator does, and return its cost."""
    import importlib

    component = importlib.import_module(module).Evaluator
    shutil.rmtree(folder / "out", ignore_errors=True)
    inputs, outputs = artifacts(folder, models, folder / "out")
    eval_config = config(slices)
    watch = Stopwatch()
    made = component(**channels(inputs), eval_config=eval_config)
    made.executor_spec.executor_class().Do(inputs, outputs, dict(made.exec_properties))
    cost = watch.cost
    assert (folder / "out" / "blessing" / "BLESSED").exists(), f"{module} has not blessed the model"
    return cost


def config(slices: Sequence[str]) -> Any:
    import tensorflow_model_analysis as tfma
    from google.protobuf import json_format

    spec = {"label_key": "label", "prediction_key": "probabilities", "signature_name": "serving_default"}
    specs = [{**spec, "preprocessing_function_names": ["transform_features"]}]
    slicing = [{}, *({"feature_keys": [name]} for name in slices)]
    given = {"model_specs": specs, "metrics_specs": list(_METRICS), "slicing_specs": slicing}
    return json_format.ParseDict(given, tfma.EvalConfig())


def artifacts(folder: Path, models: Sequence[Path], out: Path) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Return the input and output artifacts of an Evaluator, as an orchestrator passes them."""
    from tfx.types import artifact_utils, standard_artifacts

    examples = standard_artifacts.Examples()
    examples.uri, examples.split_names = str(folder / "examples"), artifact_utils.encode_split_names(["eval"])
    inputs: dict[str, list[Any]] = {"examples": [examples]}
    for name, path in zip(("model", "baseline_model"), models, strict=False):
        inputs[name] = [standard_artifacts.Model()]
        inputs[name][0].uri = str(path)
    outputs: dict[str, list[Any]] = {
        "evaluation": [standard_artifacts.ModelEvaluation()],
        "blessing": [standard_artifacts.ModelBlessing()],
    }
    for name, (artifact,) in outputs.items():
        artifact.uri = str(out / name)
        Path(artifact.uri).mkdir(parents=True)
    return inputs, outputs


def channels(inputs: Mapping[str, list[Any]]) -> dict[str, Any]:
    from tfx.types import channel_utils

    return {name: channel_utils.as_channel(found) for name, found in inputs.items()}


if __name__ == "__main__":
    main()
