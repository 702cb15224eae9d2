"""Gain of several processes: steps that read the data, on one process and on several.

    python benchmarks/scale.py --rows 1000000 --processes 2

A step is an executor as an orchestrator calls it, or the function of a command. Each turn is a new process. The time
starts after the imports and ends when all files are on disk. CPU seconds include the imports of the workers, which
shows the cost of too many processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import click
import evaluation
import transform
from clock import Cost, timed
from harness import Result, Side, as_json, interleave, report
from ingest import write_table

STEPS = ("ingest", "statistics", "transform", "evaluate", "predict")
FILES = 8  # files of a split that are read as a whole, not in ranges


@click.command()
@click.option("--rows", default=1_000_000, show_default=True)
@click.option("--columns", default=20, show_default=True, help="Columns: integers, floats and text in turn.")
@click.option("--processes", default=2, show_default=True, help="Number of processes to compare with one.")
@click.option("--turns", default=3, show_default=True, help="Turns of each contender. The table shows medians.")
@click.option(
    "--step",
    "steps",
    multiple=True,
    type=click.Choice(STEPS),
    default=STEPS,
    help="Step to measure. Repeat the option for several steps.",
)
@click.option("--one-turn", nargs=2, type=(click.Choice(STEPS), int), help="Run one step once, and print its cost.")
@click.option("--folder", type=click.Path(path_type=Path), help="Folder of the data for --one-turn.")
@as_json
def main(
    rows: int,
    columns: int,
    processes: int,
    turns: int,
    steps: tuple[str, ...],
    one_turn: tuple[str, int] | None,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Measure steps on one process and on several."""
    if one_turn and folder:
        print(json.dumps(vars(take_turn(*one_turn, folder, columns))))
        return
    with tempfile.TemporaryDirectory() as made:
        report(results(Path(made), rows, columns, processes, turns, steps), as_json)


def results(
    folder: Path, rows: int, columns: int, processes: int, turns: int, steps: tuple[str, ...]
) -> Iterator[Result]:
    write_data(folder, rows, columns)
    for step in steps:
        contenders = {
            f"{count} processes" if count > 1 else "1 process": partial(in_a_process, step, count, folder, columns)
            for count in (processes, 1)
        }
        took = interleave(contenders, turns)
        several, one = (Side.of(name, costs) for name, costs in took.items())
        yield Result(step, f"{rows:,} rows x {columns} columns", several, one, turns)


def write_data(folder: Path, rows: int, columns: int) -> None:
    """Write a table, the same rows as TFRecords in several files without statistics, and a model for them."""
    write_table(folder / "table", rows, columns)
    for seed in range(2 * FILES):  # files must differ, because equal files share cached statistics
        batch = evaluation.table(rows // FILES, columns, seed)
        split, number = ("Split-eval", "Split-train")[seed // FILES], seed % FILES
        evaluation.write_examples(folder / "examples", batch, split, f"data_tfrecord-{number:05d}-of-{FILES:05d}.gz")
    evaluation.write_model(folder / "model", evaluation.table(rows // FILES, columns))


def in_a_process(step: str, processes: int, folder: Path, columns: int) -> Cost:
    """Run one turn in a new process, with an empty cache of statistics."""
    command = [sys.executable, __file__, "--one-turn", step, str(processes), "--folder", str(folder)]
    command += ["--columns", str(columns)]
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "HOME": home}
        done = subprocess.run(
            command, env=env, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def take_turn(step: str, processes: int, folder: Path, columns: int) -> Cost:
    """Run a step in this process and in its workers, and return the cost."""
    run: Callable[[], object] = {
        "ingest": ingest,
        "statistics": statistics,
        "transform": transformed,
        "evaluate": evaluated,
        "predict": predicted,
    }[step](processes, folder, Path(tempfile.mkdtemp(dir=folder)), columns)
    return timed(run)


def ingest(processes: int, folder: Path, out: Path, columns: int) -> Callable[[], object]:
    from infeed.components.example_gen.local import ingest

    return partial(ingest, folder / "table", out / "dataset", format="csv", workers=processes)


def statistics(processes: int, folder: Path, out: Path, columns: int) -> Callable[[], object]:
    from infeed.components.base import machine
    from infeed.components.dataset.statistics.table_statistics import tables_of
    from infeed.components.engine.choice import ChosenMap

    places = [(str(folder / "examples"), split) for split in ("train", "eval")]
    each = ChosenMap("describes", machine.STATISTICS_BYTES, processes=processes)
    return partial(tables_of, places, str(out), each)


def transformed(processes: int, folder: Path, out: Path, columns: int) -> Callable[[], object]:
    from infeed.components import Transform
    from infeed.components.transform.kinds.encode import Vocabulary
    from infeed.components.transform.kinds.scale import ZScore

    kinds = transform.named(columns)
    transform.write_schema(out / "schema", columns)
    features = [Vocabulary(name) if kind == "BYTES" else ZScore(name) for name, kind in kinds]
    return partial(
        transform.run_component,
        Transform,
        folder / "examples",
        out / "schema",
        out,
        features=features,
        materialize=True,
        workers=processes,
    )


def evaluated(processes: int, folder: Path, out: Path, columns: int) -> Callable[[], object]:
    from infeed.components.evaluation.component import Evaluator

    inputs, outputs = evaluation.artifacts(folder, [folder / "model"], out)
    made = Evaluator(**evaluation.channels(inputs), eval_config=evaluation.config(()))
    kind = made.executor_spec.executor_class
    context = kind.Context(
        beam_pipeline_args=[f"--direct_num_workers={processes}"], tmp_dir=str(out / "tmp"), unique_id="1"
    )
    return partial(kind(context).Do, inputs, outputs, dict(made.exec_properties))


def predicted(processes: int, folder: Path, out: Path, columns: int) -> Callable[[], object]:
    from infeed.components.evaluation.predictions.predict import write_predictions

    model = str(folder / "model" / "Format-Serving")
    return partial(write_predictions, str(folder / "examples"), model, str(out / "predictions"), processes=processes)


if __name__ == "__main__":
    main()
