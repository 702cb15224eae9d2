"""Ingestion: ours and TFX's, in turns in one process.

    python benchmarks/ingest.py --rows 200000 --columns 20
    python benchmarks/ingest.py --format parquet --rows 200000
    python benchmarks/ingest.py --format png --rows 20000
    python benchmarks/ingest.py --format sql --rows 200000

The benchmark compares CPU and wall seconds of ours with those of TFX's component, and reports the bytes that each
writes. TFX has no component for images, so the other side is a component that reads them one by one, as in TFX's guide
to custom executors. TFX has none for databases either, so the benchmark compares SQLite by ADBC with SQLAlchemy.
"""

from __future__ import annotations

import csv
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from clock import Cost, Stopwatch, timed
from harness import Result, Side, as_json, interleave, missing, report
from PIL import Image
from pyarrow import csv as arrow_csv
from pyarrow import parquet as pq

from infeed.components import CsvExampleGen, ImageExampleGen, ParquetExampleGen
from infeed.components.dataset import files
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import Buckets
from infeed.components.example_gen import ingest
from infeed.components.example_gen.formats import open_patterns
from infeed.components.example_gen.inputs import OpenedSource
from infeed.components.example_gen.sources.sql_reader import SqlOptions, open_sql

BUCKETS = Buckets((("train", 2), ("eval", 1)))
ZLIB_6 = IngestOptions(level=6)  # compression level of TFX's own writer


@dataclass(frozen=True)
class Contender:
    """A function (folder of the input, folder of the dataset) that ingests, and the module that it needs."""

    run: Callable[[Path], Path]
    needs: str = "tfx"


@dataclass(frozen=True)
class Turn:
    """Cost of one run, and the bytes that it wrote."""

    cost: Cost
    written: int


@click.command()
@click.option(
    "--format", "form", default="csv", type=click.Choice(["csv", "parquet", "sql", "png", "jpeg"]), show_default=True
)
@click.option("--rows", default=20_000, show_default=True, help="Rows of the table, or images.")
@click.option("--columns", default=20, show_default=True, help="Columns: integers, floats and text in turn.")
@click.option("--turns", default=3, show_default=True, help="Turns of each contender. The table shows medians.")
@as_json
def main(form: str, rows: int, columns: int, turns: int, as_json: bool) -> None:
    """Measure ingestion against TFX's."""
    with tempfile.TemporaryDirectory() as folder:
        data, small = Path(folder, "data"), Path(folder, "small")
        contenders = make_contenders(form, Path(folder, "out"))
        for where, size in ((data, rows), (small, 100)):
            TABLES[form](where, size, columns) if form in TABLES else write_images(where, size, form)
        present = {name: one.run for name, one in contenders.items() if not missing(one.needs)}
        for run in present.values():
            measure(run, small)  # pay for imports and other first-time costs before measuring
        took = interleave({name: partial(measure, run, data) for name, run in present.items()}, turns)
    sides = [side(name, one, took.get(name, [])) for name, one in contenders.items()]
    case = f"{rows:,} rows x {columns} columns" if form in TABLES else f"{rows:,} images"
    report((Result(f"ingest {form}", case, ours, sides[0], turns) for ours in sides[1:]), as_json)


def side(name: str, contender: Contender, turns: list[Turn]) -> Side:
    """Return the side of a contender, with its measurements or the reason why there are none."""
    if not turns:
        return Side(name, absent=missing(contender.needs))
    return Side.of(name, (turn.cost for turn in turns), also={"bytes written": turns[0].written})


def write_table(folder: Path, rows: int, columns: int) -> None:
    """Write a CSV with three kinds of columns. One cell in fifty is empty."""
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
    """Write the same table as Parquet, with types and nulls."""
    write_table(folder, rows, columns)
    nulls = arrow_csv.ConvertOptions(strings_can_be_null=True)
    table = arrow_csv.read_csv(folder / "table.csv", convert_options=nulls)
    (folder / "table.csv").unlink()
    pq.write_table(table, folder / "table.parquet", row_group_size=100_000)


def write_sqlite(folder: Path, rows: int, columns: int) -> None:
    """Write the same table into a database, with types and nulls."""
    write_table(folder, rows, columns)
    table = arrow_csv.read_csv(folder / "table.csv", convert_options=arrow_csv.ConvertOptions(strings_can_be_null=True))
    with sqlite3.connect(folder / "table.db") as database:
        database.execute(f"CREATE TABLE t ({', '.join(table.column_names)})")
        places = ", ".join("?" * len(table.column_names))
        database.executemany(f"INSERT INTO t VALUES ({places})", zip(*table.to_pydict().values(), strict=True))


TABLES = {"csv": write_table, "parquet": write_parquet, "sql": write_sqlite}


def write_images(folder: Path, count: int, form: str) -> None:
    """Write small color photographs, 32 x 32, in ten class folders."""
    random = np.random.default_rng(0)
    for number in range(count):
        where = folder / str(number % 10)
        where.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(random.integers(0, 256, (8, 8, 3), np.uint8))
        coarse.resize((32, 32), Image.Resampling.BICUBIC).save(where / f"{number:06d}.{form}")


def make_contenders(form: str, out: Path) -> dict[str, Contender]:
    """Return the contenders by name, the other side first."""

    def component(make: Callable[..., object], **options: object) -> Contender:
        return Contender(lambda data: execute(make(str(data), **options), out))

    def alone(kind: str, pattern: str = "*") -> Contender:
        return Contender(
            lambda data: ingest_alone(open_patterns(kind, str(data), {None: pattern}, IngestOptions(), {}), out)
        )

    tables: dict[str, Any] = {"csv": (tfx_csv, CsvExampleGen), "parquet": (tfx_parquet, ParquetExampleGen)}
    if form in tables:
        theirs, ours = tables[form]
        return {
            "tfx": component(theirs),
            "infeed": component(ours),
            "infeed zlib 6": component(ours, options=ZLIB_6),
            "infeed without Beam": alone(form),
        }
    if form == "sql":
        drivers = {"sqlite": "sqlalchemy", "sqlite+adbc": "adbc_driver_sqlite"}
        return {name: Contender(partial(ingest_sqlite, driver=name, out=out), needs) for name, needs in drivers.items()}
    return {
        "tfx": component(tfx_images),
        "infeed": component(ImageExampleGen),
        "infeed without Beam": alone("images", "*/*"),
    }


def tfx_csv(data: str) -> object:
    from tfx.components import CsvExampleGen

    return CsvExampleGen(data)


def tfx_parquet(data: str) -> object:
    from tfx.components import FileBasedExampleGen
    from tfx.components.example_gen.custom_executors import parquet_executor
    from tfx.dsl.components.base import executor_spec

    spec = executor_spec.BeamExecutorSpec(parquet_executor.Executor)
    return FileBasedExampleGen(data, custom_executor_spec=spec)


def tfx_images(data: str) -> object:
    from per_image import PerImageExampleGen

    return PerImageExampleGen(data)


def execute(component: object, out: Path) -> Path:
    """Run a component's executor as an orchestrator does."""
    from tfx.types import standard_artifacts

    artifact = standard_artifacts.Examples()
    artifact.uri = str(out)
    executor = component.executor_spec.executor_class()  # type: ignore[attr-defined]
    executor.Do({}, {"examples": [artifact]}, component.exec_properties)  # type: ignore[attr-defined]
    return out


def ingest_alone(opened: OpenedSource, out: Path, options: IngestOptions | None = None) -> Path:
    """Ingest a source without Beam."""
    options = options or IngestOptions()
    job = ingest.Job.of(opened, root=str(out), splits=BUCKETS.names, buckets=BUCKETS, options=options)
    ingest.ingest(opened.tasks, job)
    return out


def ingest_sqlite(data: Path, driver: str, out: Path) -> Path:
    """Ingest a database table without Beam."""
    os.environ["BENCHMARK_DB"] = f"{driver}:///{data}/table.db"
    return ingest_alone(open_sql({None: "t"}, IngestOptions(), SqlOptions("BENCHMARK_DB")), out)


def in_turns(runs: Mapping[str, Callable[[Path, Path], None]], folder: Path, turns: int) -> dict[str, Side]:
    """Measure the runs on `data` in turns. A run on `small` first pays for imports and other first-time costs."""

    def measured(run: Callable[[Path, Path], None], data: Path) -> Cost:
        cost = timed(partial(run, data, folder / "out"))
        shutil.rmtree(folder / "out")
        return cost

    for run in runs.values():
        measured(run, folder / "small")
    took = interleave({name: partial(measured, run, folder / "data") for name, run in runs.items()}, turns)
    return {name: Side.of(name, costs) for name, costs in took.items()}


def measure(run: Callable[[Path], Path], data: Path) -> Turn:
    """Measure one run, and the size of its output, which is then removed."""
    watch = Stopwatch()
    out = run(data)
    cost = watch.cost
    written = sum(file.size for file in files.list_files(str(out), depth=1) if "Split-" in file.path)
    shutil.rmtree(out)
    return Turn(cost, written)


if __name__ == "__main__":
    main()
