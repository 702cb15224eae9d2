"""Components on a Beam runner: ours and TFX's, on Beam's portable runner with a pool of external workers.

    python benchmarks/runner.py --rows 100000 --columns 20

All components use the same runner as the tests. CPU seconds include the component's process, Beam's job service, and
the workers with their imports, because a runner starts workers for each pipeline. The Examples have no column
statistics, so that every component has to read them.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import click
import evaluation
import scale
import transform
from clock import Cost, Stopwatch, settle
from harness import Result, Side, as_json, interleave, missing, report

COMPONENTS = ("CsvExampleGen", "StatisticsGen", "Transform", "Evaluator", "BulkInferrer")


@click.command()
@click.option("--rows", default=20_000, show_default=True, help="Rows of the table, and of each split of the Examples.")
@click.option("--columns", default=20, show_default=True, help="Columns: integers, floats and text in turn.")
@click.option("--turns", default=3, show_default=True, help="Turns of each contender. The table shows medians.")
@click.option("--component", "names", multiple=True, type=click.Choice(COMPONENTS), default=COMPONENTS)
@as_json
def main(rows: int, columns: int, turns: int, names: Sequence[str], as_json: bool) -> None:
    """Measure components on a Beam runner against TFX's."""
    if absent := missing("tfx"):
        report([Result("runner", f"{rows:,} rows", Side("infeed", absent=absent), None, 0)], as_json)
        return
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from beam_clusters import portable  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as folder, portable(Path(folder)) as options:
        report(results(Path(folder), rows, columns, turns, names, options), as_json)


def results(
    folder: Path, rows: int, columns: int, turns: int, names: Sequence[str], options: Sequence[str]
) -> Iterator[Result]:
    small, data = folder / "small", folder / "data"
    for where, size in ((small, 100 * scale.FILES), (data, rows)):
        write_data(where, size, columns)
    for name in names:
        contenders = {
            module: partial(run, name, module, columns, options) for module in ("tfx.components", "infeed.components")
        }
        for one in contenders.values():
            one(small)  # pay for imports and other first-time costs of this process before measuring
        took = interleave({module: partial(one, data) for module, one in contenders.items()}, turns)
        theirs, ours = (Side.of(module.partition(".")[0], costs) for module, costs in took.items())
        yield Result(name, f"{rows:,} rows x {columns} columns, portable runner", ours, theirs, turns)


def write_data(folder: Path, rows: int, columns: int) -> None:
    """Write the data of `scale.py`, and their schema."""
    folder.mkdir()
    scale.write_data(folder, rows, columns)
    transform.write_schema(folder / "schema", columns)


def run(name: str, module: str, columns: int, options: Sequence[str], data: Path) -> Cost:
    """Run a component's executor as an orchestrator does, and wait until the workers are idle."""
    component, inputs = make(name, module, columns, data)
    outputs = {key: [channel.type()] for key, channel in component.outputs.items()}
    with tempfile.TemporaryDirectory(dir=data) as out, mock.patch.dict(os.environ, HOME=out):  # an empty cache
        for key, (artifact,) in outputs.items():
            artifact.uri = str(Path(out, key))
            Path(artifact.uri).mkdir()
        executor = component.executor_spec.executor_class
        # With an image, TFX builds no package for the workers. Beam's default timeout of a pipeline is a minute.
        beam = [*options, "--sdk_container_image=none", "--job_server_timeout=3600"]
        context = executor.Context(beam_pipeline_args=beam, tmp_dir=str(Path(out, "tmp")), unique_id="1")
        watch = Stopwatch()
        executor(context).Do(inputs, outputs, dict(component.exec_properties))
        wall = watch.wall
        settle()
        return Cost(wall, watch.cpu)


def make(name: str, module: str, columns: int, data: Path) -> tuple[Any, Mapping[str, list[Any]]]:
    """Return a component of TFX or ours, with its inputs."""
    import importlib

    from tfx.types import artifact_utils, channel_utils, standard_artifacts

    kind: Callable[..., Any] = getattr(importlib.import_module(module), name)
    if name == "CsvExampleGen":
        return kind(str(data / "table")), {}
    examples, schema, model = standard_artifacts.Examples(), standard_artifacts.Schema(), standard_artifacts.Model()
    examples.split_names = artifact_utils.encode_split_names(["train", "eval"])
    known = {"examples": examples, "schema": schema, "model": model}
    for key, artifact in known.items():
        artifact.uri = str(data / key)
    arguments: dict[str, dict[str, Any]] = {
        "StatisticsGen": {},
        "Transform": {"preprocessing_fn": "transform.preprocessing_fn", "disable_statistics": True},
        "Evaluator": {"eval_config": evaluation.config(())},
        "BulkInferrer": {},
    }
    needs = {"Transform": ("examples", "schema"), "StatisticsGen": ("examples",)}.get(name, ("examples", "model"))
    inputs = {key: [known[key]] for key in needs}
    given = {key: channel_utils.as_channel(artifacts) for key, artifacts in inputs.items()}
    return kind(**given, **arguments[name]), inputs


if __name__ == "__main__":
    main()
