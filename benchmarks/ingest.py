"""Ingestion: ours beside TFX's, in one process, turn by turn.

    python benchmarks/ingest.py --rows 200000 --columns 20
    python benchmarks/ingest.py --format parquet --rows 200000
    python benchmarks/ingest.py --format png --rows 20000
    python benchmarks/ingest.py --format sql --rows 200000

Prints one JSON line a figure: the median over all turns of wall and CPU seconds for each contender, then how many
times faster than the first, TFX's component, each other was, and the size of what each wrote. TFX has no component for
images: there its contender is one that takes them one by one, as its guide to custom executors shows. It has none for
databases either: there SQLite by ADBC stands beside SQLite by SQLAlchemy.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import numpy as np
from PIL import Image
from pyarrow import csv as arrow_csv
from pyarrow import parquet as pq

from infeed.components.dataset import files
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import Buckets
from infeed.components.example_gen import CsvExampleGen, ImageExampleGen, ParquetExampleGen, ingest
from infeed.components.example_gen.sources.csv import open_csv
from infeed.components.example_gen.sources.images import open_images
from infeed.components.example_gen.sources.parquet import open_parquet
from infeed.components.example_gen.sources.sql import SqlOptions, open_sql

BUCKETS = Buckets((("train", 2), ("eval", 1)))
ZLIB_6 = IngestOptions(level=6)  # the level that TFX's own writer uses


@dataclass(frozen=True)
class Turn:
    """What one run took, in seconds, and wrote, in bytes."""

    wall: float
    cpu: float
    written: int


@click.command()
@click.option(
    "--format", "form", default="csv", type=click.Choice(["csv", "parquet", "sql", "png", "jpeg"]), show_default=True
)
@click.option("--rows", default=20_000, show_default=True, help="Rows of the table, or images.")
@click.option("--columns", default=20, show_default=True, help="Columns: whole numbers, numbers, text, in turn.")
@click.option("--turns", default=3, show_default=True, help="Turns of each contender; medians are printed.")
def main(form: str, rows: int, columns: int, turns: int) -> None:
    """Measures ingestion against TFX's."""
    with tempfile.TemporaryDirectory() as folder:
        data, small = Path(folder, "data"), Path(folder, "small")
        contenders = make_contenders(form, Path(folder, "out"))
        for where, size in ((data, rows), (small, 100)):
            TABLES[form](where, size, columns) if form in TABLES else write_images(where, size, form)
        for run in contenders.values():
            measure(run, small)  # imports and other first-time costs
        took = take_turns(contenders, data, turns)
    report(took, f"ingest {form}", rows, columns if form in TABLES else 1)


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


def write_parquet(folder: Path, rows: int, columns: int) -> None:
    """The same table with its types; an empty cell is a null."""
    write_table(folder, rows, columns)
    nulls = arrow_csv.ConvertOptions(strings_can_be_null=True)
    table = arrow_csv.read_csv(folder / "table.csv", convert_options=nulls)
    (folder / "table.csv").unlink()
    pq.write_table(table, folder / "table.parquet", row_group_size=100_000)


def write_sqlite(folder: Path, rows: int, columns: int) -> None:
    """The same table in a database; an empty cell is a null."""
    write_table(folder, rows, columns)
    table = arrow_csv.read_csv(folder / "table.csv", convert_options=arrow_csv.ConvertOptions(strings_can_be_null=True))
    with sqlite3.connect(folder / "table.db") as database:
        database.execute(f"CREATE TABLE t ({', '.join(table.column_names)})")
        places = ", ".join("?" * len(table.column_names))
        database.executemany(f"INSERT INTO t VALUES ({places})", zip(*table.to_pydict().values(), strict=True))


TABLES = {"csv": write_table, "parquet": write_parquet, "sql": write_sqlite}


def write_images(folder: Path, count: int, form: str) -> None:
    """Photographs in miniature, 32 x 32 in colour, in ten class folders."""
    random = np.random.default_rng(0)
    for number in range(count):
        where = folder / str(number % 10)
        where.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(random.integers(0, 256, (8, 8, 3), np.uint8))
        coarse.resize((32, 32), Image.Resampling.BICUBIC).save(where / f"{number:06d}.{form}")


def make_contenders(form: str, out: Path) -> dict[str, Callable[[Path], Path]]:
    """Name -> a function from the folder of the input to the folder of its dataset."""

    def component(make: Callable[..., object], **options: object) -> Callable[[Path], Path]:
        return lambda data: execute(make(str(data), **options), out)

    if form == "csv":
        from tfx.components import CsvExampleGen as Theirs

        return {
            "tfx": component(Theirs),
            "infeed": component(CsvExampleGen),
            "infeed zlib 6": component(CsvExampleGen, options=ZLIB_6),
            "infeed without Beam": lambda table: ingest_alone(open_csv(str(table), {None: "*"}, IngestOptions()), out),
        }
    if form == "parquet":
        from tfx.components import FileBasedExampleGen
        from tfx.components.example_gen.custom_executors import parquet_executor
        from tfx.dsl.components.base import executor_spec

        spec = executor_spec.BeamExecutorSpec(parquet_executor.Executor)
        return {
            "tfx": component(FileBasedExampleGen, custom_executor_spec=spec),
            "infeed": component(ParquetExampleGen),
            "infeed zlib 6": component(ParquetExampleGen, options=ZLIB_6),
            "infeed without Beam": lambda table: ingest_alone(
                open_parquet(str(table), {None: "*"}, IngestOptions()), out
            ),
        }
    if form == "sql":
        return {driver: partial(ingest_sqlite, driver=driver, out=out) for driver in ("sqlite", "sqlite+adbc")}
    from per_image import PerImageExampleGen

    return {
        "tfx": component(PerImageExampleGen),
        "infeed": component(ImageExampleGen),
        "infeed without Beam": lambda data: ingest_alone(open_images(str(data), {None: "*/*"}, IngestOptions()), out),
    }


def execute(component: object, out: Path) -> Path:
    """Runs a component's executor as an orchestrator would."""
    from tfx.types import standard_artifacts

    artifact = standard_artifacts.Examples()
    artifact.uri = str(out)
    executor = component.executor_spec.executor_class()  # type: ignore[attr-defined]
    executor.Do({}, {"examples": [artifact]}, component.exec_properties)  # type: ignore[attr-defined]
    return out


def ingest_alone(opened: ingest.Input, out: Path) -> Path:
    """The same steps without Beam."""
    job = ingest.Job.of(opened, root=str(out), splits=BUCKETS.names, buckets=BUCKETS, options=IngestOptions())
    ingest.ingest(opened.tasks, job)
    return out


def ingest_sqlite(data: Path, driver: str, out: Path) -> Path:
    """A table, without Beam."""
    os.environ["BENCHMARK_DB"] = f"{driver}:///{data}/table.db"
    return ingest_alone(open_sql({None: "t"}, IngestOptions(), SqlOptions("BENCHMARK_DB")), out)


def measure(run: Callable[[Path], Path], data: Path) -> Turn:
    """One run, its output weighed and removed."""
    wall, cpu = time.perf_counter(), time.process_time()
    out = run(data)
    took = time.perf_counter() - wall, time.process_time() - cpu
    written = sum(file.size for file in files.list_files(str(out), depth=1) if "Split-" in file.path)
    shutil.rmtree(out)
    return Turn(*took, written)


def take_turns(contenders: dict[str, Callable[[Path], Path]], data: Path, turns: int) -> dict[str, Turn]:
    """The median of each contender; turns alternate, so that a busy machine is busy for all."""
    took: dict[str, list[Turn]] = {name: [] for name in contenders}
    for _ in range(turns):
        for name, run in contenders.items():
            took[name].append(measure(run, data))
    return {
        name: Turn(
            statistics.median(turn.wall for turn in all_turns),
            statistics.median(turn.cpu for turn in all_turns),
            all_turns[0].written,
        )
        for name, all_turns in took.items()
    }


def report(took: dict[str, Turn], benchmark: str, rows: int, columns: int) -> None:
    """One JSON line a figure."""

    def line(contender: str, figure: str, value: float) -> None:
        fields = {"benchmark": benchmark, "rows": rows, "columns": columns, "contender": contender}
        click.echo(json.dumps({**fields, "figure": figure, "value": round(value, 3)}))

    first, theirs = next(iter(took.items()))
    for name, turn in took.items():
        line(name, "wall seconds", turn.wall)
        line(name, "CPU seconds", turn.cpu)
        line(name, "bytes written", turn.written)
        if name != first:
            line(name, f"times faster than {first}, wall", theirs.wall / turn.wall)
            line(name, f"times faster than {first}, CPU", theirs.cpu / turn.cpu)


if __name__ == "__main__":
    main()
