"""Growth of the feed's cost with rows, batch size and shards, for each tier.

    python benchmarks/growth.py --plot docs/growth.svg

The benchmark compares CPU and wall seconds of a row at each size with those at the smallest size, and plots the CPU
seconds. The table has two integers and two floats per row, in gzip-compressed TFRecords. Each tier is measured in
epochs after its first. The first epoch of `columns` and `disk`, which decodes all rows, is measured separately. It
includes the half second in which TensorFlow builds its graphs. Sizes and tiers do not alternate, because the largest
fills the memory. The benchmark takes about ten minutes, 4 GB of memory and 2 GB of disk.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import matplotlib as mpl
import numpy as np
import pyarrow as pa
import tensorflow as tf
from clock import Cost, Stopwatch, settle
from feed import Specs, Table, consume, first, one_turn, ours
from harness import Result, Side, as_json, report
from matplotlib import pyplot as plt

from infeed.components.dataset import names, records
from infeed.components.dataset.encode import encode_examples
from infeed.components.feed.shards import shard_files

ROWS, BATCH, SHARDS = 200_000, 1024, 4  # values of the sizes that do not grow
BLOCK = 100_000  # rows that are encoded at once
SPECS: Specs = {"whole": tf.io.FixedLenFeature([2], tf.int64), "fraction": tf.io.FixedLenFeature([2], tf.float32)}
Costs = dict[int, Side]  # side by size
TITLES = {"rows": "rows of the table", "batch": "rows of a batch", "shards": "shards of the table"}


@dataclass(frozen=True)
class Case:
    """One measurement: the size that grows, and all three sizes."""

    grows: str
    rows: int = ROWS
    batch: int = BATCH
    shards: int = SHARDS

    @property
    def at(self) -> int:
        """Value of the size that grows."""
        return int(getattr(self, self.grows))


@click.command()
@click.option("--grows", type=click.Choice(list(TITLES)), default=list(TITLES), show_default=True, multiple=True)
@click.option("--most-rows", default=10_000_000, show_default=True, help="Rows of the largest table.")
@click.option("--turns", default=3, show_default=True, help="Measured epochs. The table shows their median.")
@click.option("--plot", type=click.Path(dir_okay=False), help="SVG or PNG file to draw into.")
@as_json
def main(grows: tuple[str, ...], most_rows: int, turns: int, plot: str | None, as_json: bool) -> None:
    """Measure how the cost of the feed grows."""
    figures: dict[str, dict[str, Costs]] = {}
    report(measured([case for case in cases(most_rows) if case.grows in grows], turns, figures), as_json)
    if plot:
        draw(figures, plot)


def measured(chosen: list[Case], turns: int, figures: dict[str, dict[str, Costs]]) -> Iterator[Result]:
    """Compare each size with the smallest. Fill `figures`: growing size -> tier -> size -> cost of a row."""
    for case in chosen:
        with tempfile.TemporaryDirectory() as folder:
            write_table(Path(folder), case.rows, case.shards)
            table = Table(folder, SPECS, case.rows, case.batch, shard_files([f"{folder}/Split-train/*"]))
            for tier, costs in take_turns(table, turns):
                known = figures.setdefault(case.grows, {}).setdefault(tier, {})
                known[case.at] = Side.of(f"{tier} at {case.at:,}", costs)
                smallest = next(iter(known.values()))
                if smallest is not known[case.at]:
                    yield Result(
                        "growth",
                        f"{TITLES[case.grows]}, a row, turns not alternating",
                        known[case.at],
                        smallest,
                        len(costs),
                    )


def cases(most_rows: int) -> Iterator[Case]:
    yield from (Case("rows", rows=10**power, shards=16) for power in range(4, 8) if 10**power <= most_rows)
    yield from (Case("batch", batch=batch) for batch in (32, 128, 512, 2048, 8192))
    yield from (Case("shards", shards=shards) for shards in (1, 4, 16, 64, 200))


def write_table(folder: Path, rows: int, shards: int) -> None:
    random = np.random.default_rng(0)
    for shard in range(shards):
        path = f"{folder}/Split-train/{names.shard_name(shard, shards, gzip=True)}"
        records.write_records(path, blocks(random, rows // shards), gzip_level=1)


def blocks(random: np.random.Generator, rows: int) -> Iterator[pa.LargeBinaryArray]:
    for begin in range(0, rows, BLOCK):
        count = min(BLOCK, rows - begin)
        whole = pa.FixedSizeListArray.from_arrays(pa.array(random.integers(0, 10_000, 2 * count)), 2)
        fraction = pa.FixedSizeListArray.from_arrays(pa.array(random.normal(size=2 * count).astype(np.float32)), 2)
        batch = pa.RecordBatch.from_arrays([whole, fraction], ["whole", "fraction"])
        yield records.frame_records(encode_examples(batch))


def take_turns(table: Table, turns: int) -> Iterator[tuple[str, list[Cost]]]:
    """Yield (name, cost of a row in each turn) for each tier."""
    steps = table.rows // table.batch_size
    rows = steps * table.batch_size
    tiers: dict[str, dict[str, object]] = {
        "stream": {"cache_records": False},
        "columns": {},
        "disk": {"cache_dir": f"{table.folder}/cache"},
    }
    for tier, options in tiers.items():
        watch = Stopwatch()
        epoch = consume(ours(table, tier=tier, **options))
        epoch(steps)
        wall = watch.wall
        settle()
        if tier != "stream":
            yield first(tier), [Cost(wall, watch.cpu) / rows]
        yield tier, [one_turn(epoch, steps) / rows for _ in range(turns)]


def draw(figures: dict[str, dict[str, Costs]], path: str) -> None:
    """Draw a panel for each size that grows."""
    mpl.rcParams.update({"svg.hashsalt": "growth", "font.size": 9})
    figure, panels = plt.subplots(1, len(figures), figsize=(11, 3.6), sharey=True, layout="constrained")
    for panel, (grows, tiers) in zip(np.atleast_1d(panels), figures.items(), strict=True):
        for tier, costs in tiers.items():
            name, is_first = tier.split(",")[0], "," in tier
            color = {"stream": "#b5482a", "columns": "#2a62b5", "disk": "#3b8a4f"}[name]
            microseconds = [1e6 * (cost.cpu or 0.0) for cost in costs.values()]
            style = ":" if is_first else "-"
            panel.plot(list(costs), microseconds, style, color=color, marker="o", ms=3, label=tier)
        panel.set(xscale="log", yscale="log", xlabel=TITLES[grows])
        panel.grid(color="#dddddd", lw=0.5)
        panel.spines[["top", "right"]].set_visible(False)
    first = np.atleast_1d(panels)[0]
    first.set_ylabel("microseconds of CPU a row")
    figure.legend(*first.get_legend_handles_labels(), loc="outside upper center", ncols=5, frameon=False)
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None, facecolor="white")


if __name__ == "__main__":
    main()
