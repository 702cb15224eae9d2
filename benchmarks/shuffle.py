"""Growth of ingest's shuffle with the number of blocks: opened files, and the cost of a gigabyte of records.

    python benchmarks/shuffle.py --plot docs/shuffle.svg

The benchmark ingests a generated table in small blocks, eight per task as for a CSV. It counts how often spills and
regrouped files are opened; each open reads one range of the file. The cost is that of all steps after reading and
spilling the rows, in this process. 10,000 blocks take some minutes and 2 GB of disk.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
import matplotlib as mpl
import numpy as np
import pyarrow as pa
from clock import Cost, Stopwatch
from harness import Result, Side, as_json, report
from matplotlib import pyplot as plt

from infeed.components.dataset import files
from infeed.components.dataset.manifest import Source
from infeed.components.dataset.options import IngestOptions, ShardOptions
from infeed.components.dataset.splits import Buckets
from infeed.components.example_gen import ingest
from infeed.components.example_gen.inputs import BadRows, OpenedSource, Task

BLOCKS = (100, 300, 1_000, 3_000, 10_000)
BLOCKS_A_TASK, BLOCKS_A_SHARD = 8, 7
ROW_BYTES = 256
SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.binary())])


@click.command()
@click.option("--most-blocks", default=BLOCKS[-1], show_default=True)
@click.option("--block-kb", default=64, show_default=True, help="Size of a block in kilobytes.")
@click.option("--plot", type=click.Path(dir_okay=False), help="SVG or PNG file to draw the opens into.")
@as_json
def main(most_blocks: int, block_kb: int, plot: str | None, as_json: bool) -> None:
    """Count the files that the shuffle opens."""
    opens: dict[int, int] = {}
    report(measured([blocks for blocks in BLOCKS if blocks <= most_blocks], block_kb << 10, opens), as_json)
    if plot:
        draw(opens, plot)


def measured(sizes: Iterable[int], block_bytes: int, opens: dict[int, int]) -> Iterator[Result]:
    """Compare each size with the smallest. Fill `opens`: number of blocks -> opens."""
    smallest: Side | None = None
    for blocks in sizes:
        with tempfile.TemporaryDirectory() as folder, counting() as counts:
            cost, size = shuffle(Path(folder), blocks, block_bytes)
        opens[blocks] = counts["opens"]
        costs = [cost / (size / 1e9)]
        side = Side.of(f"{blocks:,} blocks, {size / 1e6:,.0f} MB, {counts['opens']:,} opens", costs, also=dict(counts))
        smallest = smallest or side
        yield Result("shuffle", "a gigabyte of records, turns not alternating", side, smallest, 1)


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Count how often temporary files are opened."""
    counts, real = Counter[str](), files.open_input

    def open_input(path: str, **how: Any) -> Any:
        counts["opens"] += path.endswith(".records")
        return real(path, **how)

    files.open_input = open_input
    try:
        yield counts
    finally:
        files.open_input = real


def shuffle(folder: Path, blocks: int, block_bytes: int) -> tuple[Cost, int]:
    """Return the cost of all steps after the first, and the bytes of the records."""
    tasks = tuple(
        Task(order, range(first, min(first + BLOCKS_A_TASK, blocks)))
        for order, first in enumerate(range(0, blocks, BLOCKS_A_TASK))
    )
    source = OpenedSource(Source("table", "", 0, 0), SCHEMA, tasks, partial(read, rows=block_bytes // ROW_BYTES))
    options = IngestOptions(
        shards=ShardOptions(count=max(1, blocks // BLOCKS_A_SHARD)), compression="none", statistics=False
    )
    job = ingest.Job.of(source, root=str(folder), splits=("train",), buckets=Buckets((("train", 1),)), options=options)
    watches: list[Stopwatch] = []

    def timed_map(function: Callable[[Any], Any], items: Iterable[Any], /) -> Iterator[Any]:
        yield from map(function, items)
        watches.append(Stopwatch())  # the first watch starts at the end of the first step

    manifest = ingest.ingest(tasks, job, map_fn=timed_map)
    return watches[0].cost, manifest.splits["train"].bytes


def read(blocks: range, rows: int, *, bad_rows: BadRows) -> Iterator[pa.RecordBatch]:
    for block in blocks:
        noise = np.random.default_rng(block).bytes(rows * ROW_BYTES)
        texts = [noise[start : start + ROW_BYTES] for start in range(0, len(noise), ROW_BYTES)]
        yield pa.RecordBatch.from_arrays([pa.array(range(rows), pa.int64()), pa.array(texts)], schema=SCHEMA)


def draw(opens: dict[int, int], path: str) -> None:
    """Draw the opens, and the number of shards times blocks for comparison."""
    mpl.rcParams.update({"svg.hashsalt": "shuffle", "font.size": 9})
    figure, axes = plt.subplots(figsize=(5.5, 3.6), layout="constrained")
    blocks = list(opens)
    axes.plot(blocks, [one * (one // BLOCKS_A_SHARD) for one in blocks], ":", color="#888888", label="shards x blocks")
    axes.plot(blocks, [2 * one for one in blocks], "--", color="#888888", label="2 a block")
    axes.plot(blocks, list(opens.values()), color="#2a62b5", marker="o", ms=3, label="opens")
    axes.set(xscale="log", yscale="log", xlabel="blocks", ylabel="files opened by the shuffle")
    axes.grid(color="#dddddd", lw=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None, facecolor="white")


if __name__ == "__main__":
    main()
