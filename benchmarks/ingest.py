"""CSV to TFRecords: ours beside TFX's CsvExampleGen, in one process, turn by turn.

    python benchmarks/ingest.py --rows 200000 --columns 20

Prints one JSON line a figure: the median over all turns of wall and CPU seconds for each contender, then how many
times faster than TFX's component each of ours was, and the size of what each wrote.
"""

from __future__ import annotations

import csv
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from infeed.components.dataset import files
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import Buckets
from infeed.components.example_gen import CsvExampleGen, ingest, inputs
from infeed.components.example_gen.sources.csv import CsvOptions

BUCKETS = Buckets((("train", 2), ("eval", 1)))
ZLIB_6 = IngestOptions(level=6)  # the level that TFX's own writer uses


@dataclass(frozen=True)
class Turn:
    """What one run took, in seconds, and wrote, in bytes."""

    wall: float
    cpu: float
    written: int


@click.command()
@click.option("--rows", default=20_000, show_default=True, help="Rows of the table.")
@click.option("--columns", default=20, show_default=True, help="Columns: whole numbers, numbers, text, in turn.")
@click.option("--turns", default=3, show_default=True, help="Turns of each contender; medians are printed.")
def main(rows: int, columns: int, turns: int) -> None:
    """Measures CSV ingestion against TFX's CsvExampleGen."""
    with tempfile.TemporaryDirectory() as folder:
        table, small = Path(folder, "table"), Path(folder, "small")
        write_table(table, rows, columns)
        write_table(small, 100, columns)
        contenders = make_contenders(Path(folder, "out"))
        for run in contenders.values():
            measure(run, small)  # imports and other first-time costs
        took = take_turns(contenders, table, turns)
    report(took, rows, columns)


def write_table(folder: Path, rows: int, columns: int) -> None:
    """A CSV of three kinds of columns with one cell in fifty empty."""
    folder.mkdir()
    random = np.random.default_rng(0)
    makers: list[Callable[[], list[str]]] = [
        lambda: random.integers(0, 10 ** random.integers(1, 12), rows).astype(str).tolist(),
        lambda: [f"{value:.6g}" for value in random.normal(0, 100, rows)],
        lambda: [f"label {value}" for value in random.integers(0, 1_000, rows)],
    ]
    table = [makers[column % len(makers)]() for column in range(columns)]
    for cells in table:
        for row in random.integers(0, rows, rows // 50):
            cells[row] = ""
    with open(folder / "table.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(f"column_{column}" for column in range(columns))
        writer.writerows(zip(*table, strict=True))


def make_contenders(out: Path) -> dict[str, Callable[[Path], Path]]:
    """Name -> a function from the folder of a table to the folder of its dataset."""
    from tfx.components import CsvExampleGen as Theirs

    def component(make: Callable[[str], object]) -> Callable[[Path], Path]:
        return lambda table: execute(make(str(table)), out)

    return {
        "tfx": component(Theirs),
        "infeed": component(CsvExampleGen),
        "infeed zlib 6": component(lambda table: CsvExampleGen(table, options=ZLIB_6)),
        "infeed without Beam": lambda table: ingest_alone(table, out),
    }


def execute(component: object, out: Path) -> Path:
    """Runs a component's executor as an orchestrator would."""
    from tfx.types import standard_artifacts

    artifact = standard_artifacts.Examples()
    artifact.uri = str(out)
    executor = component.executor_spec.executor_class()  # type: ignore[attr-defined]
    executor.Do({}, {"examples": [artifact]}, component.exec_properties)  # type: ignore[attr-defined]
    return out


def ingest_alone(table: Path, out: Path) -> Path:
    """The same steps without Beam."""
    options = IngestOptions()
    opened = inputs.open_csv(str(table), {None: "*"}, options, CsvOptions())
    job = ingest.Job.of(opened, root=str(out), splits=BUCKETS.names, buckets=BUCKETS, options=options)
    ingest.ingest(opened.tasks, job)
    return out


def measure(run: Callable[[Path], Path], table: Path) -> Turn:
    """One run, its output weighed and removed."""
    wall, cpu = time.perf_counter(), time.process_time()
    out = run(table)
    took = time.perf_counter() - wall, time.process_time() - cpu
    written = sum(file.size for file in files.list_files(str(out), depth=1) if "Split-" in file.path)
    shutil.rmtree(out)
    return Turn(*took, written)


def take_turns(contenders: dict[str, Callable[[Path], Path]], table: Path, turns: int) -> dict[str, Turn]:
    """The median of each contender; turns alternate, so that a busy machine is busy for all."""
    took: dict[str, list[Turn]] = {name: [] for name in contenders}
    for _ in range(turns):
        for name, run in contenders.items():
            took[name].append(measure(run, table))
    return {
        name: Turn(
            statistics.median(turn.wall for turn in all_turns),
            statistics.median(turn.cpu for turn in all_turns),
            all_turns[0].written,
        )
        for name, all_turns in took.items()
    }


def report(took: dict[str, Turn], rows: int, columns: int) -> None:
    """One JSON line a figure."""

    def line(contender: str, figure: str, value: float) -> None:
        fields = {"benchmark": "ingest csv", "rows": rows, "columns": columns, "contender": contender}
        click.echo(json.dumps({**fields, "figure": figure, "value": round(value, 3)}))

    theirs = took["tfx"]
    for name, turn in took.items():
        line(name, "wall seconds", turn.wall)
        line(name, "CPU seconds", turn.cpu)
        line(name, "bytes written", turn.written)
        if name != "tfx":
            line(name, "times faster than tfx, wall", theirs.wall / turn.wall)
            line(name, "times faster than tfx, CPU", theirs.cpu / turn.cpu)


if __name__ == "__main__":
    main()
