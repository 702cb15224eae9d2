"""Whole jobs on wide tables: `infeed run` with a thousand columns, and with a narrow table of as many cells.

    python benchmarks/wide.py --turns 3
    python benchmarks/wide.py --columns 10000 --rows 1000

Of ten columns, eight hold floats, one holds integers, and one holds one of six words. Each turn is a new process that
trains for two epochs and pushes the model.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from clock import Cost, Stopwatch
from harness import Result, Side, as_json, interleave, missing, report
from pyarrow import csv

from infeed.pipelines.console.exit_codes import EXIT_NOT_BLESSED

NARROW = 20  # columns of the narrow table
_WORDS = np.array(["red", "green", "blue", "cyan", "black", "white"])


@click.command()
@click.option("--columns", default=1_000, show_default=True, help="Columns of the wide table, a multiple of 10.")
@click.option("--rows", default=4_000, show_default=True, help="Rows of the wide table.")
@click.option("--turns", default=1, show_default=True, help="Turns of each side. The table shows medians.")
@as_json
def main(columns: int, rows: int, turns: int, as_json: bool) -> None:
    """Measure whole jobs on a wide table and on a narrow table with as many cells."""
    report(results(columns, rows, turns), as_json)


def results(columns: int, rows: int, turns: int) -> Iterator[Result]:
    shapes = {"wide": (rows, columns), "narrow": (rows * columns // NARROW, NARROW)}
    if absent := missing("tfx"):
        yield Result("wide", "", Side("infeed", absent=absent), None, 0)
        return
    with tempfile.TemporaryDirectory() as folder:
        places = {name: Path(folder, name) for name in shapes}
        for name, place in places.items():
            write_table(place, *shapes[name])
        took = interleave({name: partial(run_job, place) for name, place in places.items()}, turns)
    wide, narrow = (Side.of(f"{shapes[name][0]:,} x {shapes[name][1]:,}", costs) for name, costs in took.items())
    yield Result("wide", "rows x columns, a whole job", wide, narrow, turns)


def write_table(folder: Path, rows: int, columns: int) -> None:
    """Write numbers, words, and a label that depends on two numbers and a word."""
    draw, tenth = np.random.default_rng(0), columns // 10
    numbers = draw.normal(size=(rows, 8 * tenth)).round(4)
    words = draw.integers(0, len(_WORDS), (rows, tenth))
    score = numbers[:, 0] + numbers[:, 1] + (words[:, 0] == 0) + draw.normal(0, 0.3, rows)
    table: dict[str, npt.NDArray[Any]] = {f"number_{place}": numbers[:, place] for place in range(8 * tenth)}
    table |= {f"count_{place}": draw.integers(0, 1_000, rows) for place in range(tenth)}
    table |= {f"word_{place}": _WORDS[words[:, place]] for place in range(tenth)}
    folder.mkdir()
    csv.write_csv(pa.table({**table, "label": np.where(score > 0.2, "yes", "no")}), folder / "table.csv")


def run_job(folder: Path) -> Cost:
    """Run `infeed run` in a new process, and return its cost."""
    start = "from infeed.pipelines.cli import main; main()"
    command = ["-c", start, "run", "tabular", "--data", str(folder / "table.csv"), "--label", "label"]
    with tempfile.TemporaryDirectory() as root:
        watch = Stopwatch()
        done = subprocess.run([sys.executable, *command, "--epochs", "2", "--root", root], capture_output=True)
        if done.returncode != EXIT_NOT_BLESSED:  # few rows teach a model little, and cost the same
            done.check_returncode()
        return watch.cost


if __name__ == "__main__":
    main()
