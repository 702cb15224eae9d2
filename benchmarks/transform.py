"""Transform: declared features and an equivalent preprocessing_fn, ours and TFX's, in one process.

    python benchmarks/transform.py --rows 600
    python benchmarks/transform.py --rows 100000 --columns 20
    python benchmarks/transform.py --rows 100000 --columns 20 --materialize

The features are numbers scaled to mean 0 and deviation 1, and vocabularies of text. `tfx` is TFX's component as in its
guides, with a module file. `tfx lean` gets the function by name, and writes neither statistics nor a cache. `infeed
function` is our Transform with this function, and `infeed features` with declared features. Our ingest writes the
Examples with column statistics; `infeed features, read` does not use them. The time starts after the imports and ends
when all artifacts are on disk.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click
from harness import Result, Side, as_json, missing, report
from ingest import BUCKETS, in_turns, ingest_alone, write_table

from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.sources.csv_files import open_csv
from infeed.components.transform.feature import Feature
from infeed.components.transform.kinds.encode import Vocabulary
from infeed.components.transform.kinds.scale import ZScore

_TYPES = ("INT", "FLOAT", "BYTES")  # types of the columns of `write_table`, in turn
_LEAN: dict[str, Any] = {"disable_statistics": True, "disable_analyzer_cache": True}
Run = Callable[[Path, Path], None]  # (folder of the Examples, folder of the outputs)


def preprocessing_fn(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Preprocess the columns as TFX's guides do."""
    import tensorflow as tf
    import tensorflow_transform as tft

    def dense(column: Any) -> Any:
        empty = "" if column.dtype == tf.string else 0
        shape = [column.dense_shape[0], 1]
        return tf.sparse.to_dense(tf.SparseTensor(column.indices, column.values, shape), empty)

    outputs = {}
    for name, column in inputs.items():
        if column.dtype == tf.string:
            outputs[name] = tft.compute_and_apply_vocabulary(dense(column), vocab_filename=name, num_oov_buckets=1)
        else:
            outputs[name] = tft.scale_to_z_score(dense(column))
    return outputs


@click.command()
@click.option("--rows", default=600, show_default=True, help="Rows of the table. Two thirds are analyzed.")
@click.option("--columns", default=20, show_default=True, help="Columns: integers, floats and text in turn.")
@click.option("--turns", default=3, show_default=True, help="Turns of each contender. The table shows medians.")
@click.option("--materialize", is_flag=True, help="Also write transformed examples.")
@as_json
def main(rows: int, columns: int, turns: int, materialize: bool, as_json: bool) -> None:
    """Measure Transform against TFX's."""
    report(results(rows, columns, turns, materialize), as_json)


def results(rows: int, columns: int, turns: int, materialize: bool) -> Iterator[Result]:
    """Yield a result for each pair of ours and TFX's."""
    case = f"{rows:,} rows x {columns} columns{', materialized' if materialize else ''}"
    if absent := missing("tfx"):
        yield Result("transform", case, Side("infeed features", absent=absent), None, 0)
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, size in (("small", 100), ("data", rows)):
            write_examples(Path(folder, name), size, columns)
        sides = in_turns(contenders(columns, materialize), Path(folder), turns)
    for ours in (name for name in sides if name.startswith("infeed")):
        for other in ("tfx", "tfx lean"):
            yield Result("transform", case, sides[ours], sides[other], turns)


def write_examples(folder: Path, rows: int, columns: int) -> None:
    """Write Examples of a table with column statistics, their schema, and the function as a module."""
    folder.mkdir()
    write_table(folder / "table", rows, columns)
    ingest_alone(open_csv(str(folder / "table"), {None: "*"}, IngestOptions()), folder / "examples")
    shutil.copytree(folder / "examples", folder / "read")
    for statistics in (folder / "read").glob("statistics*"):
        statistics.unlink()
    shutil.copy(__file__, folder / "transforming.py")
    write_schema(folder / "schema", columns)


def write_schema(folder: Path, columns: int) -> None:
    """Write a schema with one value per row."""
    folder.mkdir()
    features = (
        f'feature {{ name: "{name}" type: {kind} presence {{ min_count: 1 }} value_count {{ min: 1 max: 1 }} }}\n'
        for name, kind in named(columns)
    )
    (folder / "schema.pbtxt").write_text("".join(features))


def named(columns: int) -> list[tuple[str, str]]:
    """Return (name, type) of each column."""
    return [(f"column_{number}", _TYPES[number % len(_TYPES)]) for number in range(columns)]


def contenders(columns: int, materialize: bool) -> dict[str, Run]:
    """Return the contenders by name. Each creates a new component."""
    from tfx.components import Transform as TfxTransform

    from infeed.components import Transform

    features: list[Feature] = [Vocabulary(name) if kind == "BYTES" else ZScore(name) for name, kind in named(columns)]

    def execute(
        kind: Any, data: Path, out: Path, examples: str = "examples", module: bool = False, **options: Any
    ) -> None:
        if module:
            options["module_file"] = str(data / "transforming.py")
        run_component(kind, data / examples, data / "schema", out, materialize=materialize, **options)

    by_name: dict[str, Any] = {"preprocessing_fn": "transform.preprocessing_fn"}  # this file as a module
    return {
        "tfx": partial(execute, TfxTransform, module=True),
        "tfx lean": partial(execute, TfxTransform, **by_name, **_LEAN),
        "infeed features": partial(execute, Transform, features=features),
        "infeed features, read": partial(execute, Transform, features=features, examples="read"),
        "infeed function": partial(execute, Transform, **by_name, **_LEAN),
    }


def run_component(
    kind: Any, examples: Path, schema: Path, out: Path, *, workers: int | None = None, **options: Any
) -> None:
    """Run a component's executor as an orchestrator does, including the wheel of a module file."""
    from tfx.orchestration.pipeline import Pipeline
    from tfx.types import artifact_utils, channel_utils, standard_artifacts

    inputs = {"examples": [standard_artifacts.Examples()], "schema": [standard_artifacts.Schema()]}
    inputs["examples"][0].uri, inputs["schema"][0].uri = str(examples), str(schema)
    inputs["examples"][0].split_names = artifact_utils.encode_split_names(list(BUCKETS.names))
    component = kind(**{name: channel_utils.as_channel(artifacts) for name, artifacts in inputs.items()}, **options)
    Pipeline("benchmark", str(out / "root"), components=[component])  # builds the wheels
    outputs = {name: [channel.type()] for name, channel in component.outputs.items()}
    for name, (artifact,) in outputs.items():
        artifact.uri = str(out / name)
    executor = component.executor_spec.executor_class
    beam = [f"--direct_num_workers={workers}"] if workers else []
    context = executor.Context(beam_pipeline_args=beam, tmp_dir=str(out / "tmp"), unique_id="1")
    executor(context).Do(inputs, outputs, component.exec_properties)


if __name__ == "__main__":
    main()
