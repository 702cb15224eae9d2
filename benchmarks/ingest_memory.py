"""How much memory ingesting takes, and how even the shards are, on a generated table that is larger than both.

    python benchmarks/ingest_memory.py --megabytes 1000 --run processes

Prints one JSON line: the peak of resident memory of the heaviest process and of all together, in bytes, sampled every
50 ms while `infeed ingest` runs, and the size of the largest shard over that of the smallest.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
from pyarrow import csv

from infeed.components.dataset.manifest import Manifest

RUNS = {"one process": ["--workers", "1"], "processes": ["--workers", "2"], "beam": ["--runner", "direct"]}
INFEED = "from infeed.pipelines.cli import main; main()"
_ROWS = 50_000  # written at a time
_COLUMNS = 20


@click.command()
@click.option("--megabytes", default=100, show_default=True, help="Of CSV.")
@click.option("--run", type=click.Choice(list(RUNS)), default="one process", show_default=True)
@click.option("--keep", type=click.Path(path_type=Path), help="Where the table is kept for other runs.")
def main(megabytes: int, run: str, keep: Path | None) -> None:
    """Measures `infeed ingest`."""
    with tempfile.TemporaryDirectory() as folder:
        table = keep or Path(folder, "table.csv")
        if not table.exists():
            write_table(table, megabytes * 1_000_000)
        command = [sys.executable, "-c", INFEED, "ingest", str(table), f"{folder}/out", *RUNS[run]]
        began = time.perf_counter()
        heaviest, together = watch(command)
        seconds = time.perf_counter() - began
        manifest = Manifest.read(f"{folder}/out")
    figures = {
        "benchmark": "ingest memory",
        "run": run,
        "bytes read": manifest.source.bytes,
        "rows": manifest.rows_read,
        "seconds": round(seconds, 1),
        "peak bytes, heaviest process": heaviest,
        "peak bytes, all processes": together,
        "largest shard over smallest": {name: round(spread(manifest, name), 4) for name in manifest.splits},
    }
    click.echo(json.dumps(figures))


def write_table(path: Path, size: int) -> None:
    """Whole numbers, numbers and text in turn, until the file has `size` bytes."""
    random = np.random.default_rng(0)
    makers = (
        lambda: random.integers(0, 10**9, _ROWS),
        lambda: random.normal(0, 100, _ROWS).round(4),
        lambda: np.char.add("label ", random.integers(0, 1_000, _ROWS).astype(str)),
    )
    with path.open("wb") as file:
        while file.tell() < size:
            table = pa.table({f"column_{number}": makers[number % 3]() for number in range(_COLUMNS)})
            csv.write_csv(table, file, csv.WriteOptions(include_header=file.tell() == 0))


def watch(command: list[str]) -> tuple[int, int]:
    """Runs a command; the peak of resident bytes of one of its processes, and of all together."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    heaviest = together = 0
    while process.poll() is None:
        sizes = [resident(pid) for pid in family(process.pid)]
        heaviest, together = max(heaviest, *sizes, 0), max(together, sum(sizes))
        time.sleep(0.05)
    if process.returncode:
        raise click.ClickException(f"ended with {process.returncode}")
    return heaviest, together


def family(pid: int) -> Iterator[int]:
    """A process and all below it."""
    yield pid
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except FileNotFoundError:
        return
    for child in children:
        yield from family(child)


def resident(pid: int) -> int:
    """Bytes of memory that a process holds; 0 once it has ended."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def spread(manifest: Manifest, split: str) -> float:
    """The largest shard over the smallest."""
    sizes = [shard.bytes for shard in manifest.splits[split].shards]
    return max(sizes) / min(sizes)


if __name__ == "__main__":
    main()
