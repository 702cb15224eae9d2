"""Reading one source into Arrow batches: ours beside the format's own library, turn by turn.

    python benchmarks/sources.py --rows 1000000

Ours reads with all checks, in the tasks of ingest, in a child process. The library reads the same rows in order.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
import h5py
import numpy as np
from arro3 import core as arro3
from clock import Cost, Stopwatch
from deltalake import DeltaTable, write_deltalake
from harness import Result, Side, as_json, interleave, report

from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.formats import open_source
from infeed.components.example_gen.inputs import BadRows

_ROWS_AT_A_TIME = 10_000


def write_delta(path: Path, rows: int) -> None:
    """A table of one partition column, two columns of numbers, and one of text."""
    number = np.arange(rows)
    text = arro3.Array([f"row {row % 1_000}" for row in number], arro3.DataType.string())
    columns = {"part": number % 8, "number": number, "root": number**0.5}
    arrays = {name: arro3.Array.from_numpy(values) for name, values in columns.items()}
    write_deltalake(str(path), arro3.Table.from_pydict({**arrays, "text": text}), partition_by=["part"])


def write_hdf5(path: Path, rows: int) -> None:
    """Vectors of 64 floats in compressed chunks, and labels."""
    with h5py.File(path, "w") as file:
        values = np.random.default_rng(0).normal(size=(rows, 64)).astype(np.float32).round(2)
        file.create_dataset("x", data=values, chunks=(1_000, 64), compression="gzip", compression_opts=1)
        file["y"] = np.arange(rows) % 10


def read_delta(path: Path) -> int:
    return sum(batch.num_rows for batch in DeltaTable(str(path)).scan())


def read_hdf5(path: Path) -> int:
    with h5py.File(path) as file:
        starts = range(0, len(file["y"]), _ROWS_AT_A_TIME)
        return sum(
            len(file["x"][at : at + _ROWS_AT_A_TIME]) for at in starts if len(file["y"][at : at + _ROWS_AT_A_TIME])
        )


def read_ours(path: Path, form: str) -> int:
    opened = open_source(str(path), form, IngestOptions(), {})
    return sum(one.num_rows for task in opened.tasks for one in opened.read(task.payload, bad_rows=BadRows()))


Format = tuple[Callable[[Path, int], None], Callable[[Path], int]]  # writes a table, and reads it by its library
FORMATS: dict[str, Format] = {"delta": (write_delta, read_delta), "hdf5": (write_hdf5, read_hdf5)}


def measure(read: Callable[[Path], int], path: Path, rows: int) -> Cost:
    watch = Stopwatch()
    found = read(path)
    assert found == rows, f"{found} rows of {rows}"
    return watch.cost


@click.command()
@click.option("--rows", default=1_000_000, show_default=True, help="Rows of each source.")
@click.option("--turns", default=3, show_default=True, help="Turns of each side, of which the medians are taken.")
@as_json
def main(rows: int, turns: int, as_json: bool) -> None:
    """Measures the reading of sources against that of their own libraries."""
    results = list[Result]()
    with tempfile.TemporaryDirectory() as folder:
        for form, (write, read) in FORMATS.items():
            path = Path(folder, form)
            write(path, rows)
            sides: dict[str, Callable[[Path], int]] = {"infeed": partial(read_ours, form=form), form: read}
            for one in sides.values():
                one(path)  # imports and other first-time costs
            took = interleave({name: partial(measure, one, path, rows) for name, one in sides.items()}, turns)
            ours, theirs = (Side.of(name, took[name]) for name in sides)
            results.append(Result(f"source {form}", f"{rows:,} rows", ours, theirs, turns))
    report(results, as_json)


if __name__ == "__main__":
    main()
