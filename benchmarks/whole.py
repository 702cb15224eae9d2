"""A whole job from a CSV to a pushed model: as in TFX's guides, the same with lean options, and ours.

    python benchmarks/whole.py --rows 10000
    python benchmarks/whole.py --rows 100000 --turns 3
    python benchmarks/whole.py --rows 10000 --rows 100000 --rows 1000000 --side infeed --plot docs/whole.svg

The table has 20 columns: 13 of numbers, 6 of words, and the label. All sides ingest, compute statistics, infer and
check a schema, transform, train the same network for the same steps, evaluate and push. Ours also reports on its input.
The sides alternate, and each turn is a new process. Seconds include all child processes. Memory is the largest resident
size of one process. The table also shows the cost of each node. Its row `start` has the rest: the interpreter, imports,
compiling the pipeline, and for ours the survey of the data. With several sizes, `--plot` draws the growth of CPU
seconds and memory.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median

import click
import matplotlib as mpl
import numpy as np
from clock import Cost
from harness import Result, Side, as_json, interleave, missing, report
from matplotlib import pyplot as plt

Figures = dict[str, dict[int, Side]]  # side -> rows -> cost of a whole job
JOB = Path(__file__).parent / "whole" / "job.py"
_SIDES = ("tfx", "tfx lean", "infeed")
_START = "start"
_LAST = 2_000  # characters to show of a failed job's output


@dataclass(frozen=True)
class Turn:
    """One job: its cost, peak resident bytes, and the cost of each node."""

    cost: Cost
    memory: int
    nodes: Mapping[str, Cost]


@click.command()
@click.option(
    "--rows",
    default=[10_000],
    show_default=True,
    multiple=True,
    help="Rows of the table. Repeat the option for several sizes.",
)
@click.option("--turns", default=1, show_default=True, help="Turns of each side. The table shows medians.")
@click.option(
    "--side", "sides", type=click.Choice(_SIDES), multiple=True, default=_SIDES, help="Sides to run. Defaults to all."
)
@click.option("--plot", type=click.Path(dir_okay=False), help="SVG or PNG file to draw into.")
@as_json
def main(rows: tuple[int, ...], turns: int, sides: tuple[str, ...], plot: str | None, as_json: bool) -> None:
    """Measure whole jobs."""
    figures: Figures = {}
    report(chain.from_iterable(results(size, turns, sides, figures) for size in rows), as_json)
    if plot:
        draw(figures, plot)


def results(rows: int, turns: int, sides: Sequence[str], figures: Figures) -> Iterator[Result]:
    """Compare ours with each of TFX's, in total and by node. Add the total of each side to `figures`."""
    case = f"{rows:,} rows x 20 columns"
    if absent := missing("tfx"):
        yield Result("whole", case, Side("infeed", absent=absent), None, 0)
        return
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data")
        write_table(data, rows)
        took = interleave({side: partial(run_job, side, data, rows) for side in sides}, turns)
    for side, turned in took.items():
        figures.setdefault(side, {})[rows] = _side(side, turned, None)
    others = [side for side in took if side != "infeed"] or [None]
    for other in others:
        ours = _side("infeed", took.get("infeed", ()), None)
        yield Result("whole", case, ours, _side(other, took[other], None) if other else None, turns)
        # Nodes in the order of execution: those of the other side, then those that only ours has.
        jobs = [*took[other], *took.get("infeed", ())] if other else took["infeed"]
        for node in dict.fromkeys(node for job in jobs for node in job.nodes):
            ours = _side("infeed", took.get("infeed", ()), node)
            yield Result("whole", f"{case}, {node}", ours, _side(other, took[other], node) if other else None, turns)


def _side(name: str, turns: Sequence[Turn], node: str | None) -> Side:
    """Return the total or one node of a side, or the reason why there is none."""
    costs = [turn.cost if node is None else turn.nodes[node] for turn in turns if node is None or node in turn.nodes]
    if not costs:
        return Side(name, absent="no such node" if turns else "did not run")
    memory = None if node else round(median(turn.memory for turn in turns))
    return Side.of(name, costs, memory=memory)


def write_table(folder: Path, rows: int) -> None:
    """Write numbers, words, and a label that depends on two of each. One cell in fifty is empty."""
    draw = np.random.default_rng(0)
    numbers = draw.normal(0, 100, (13, rows))
    words = draw.integers(0, 1_000, (6, rows))
    score = numbers[0] - numbers[1] + (words[0] % 7 - words[1] % 5) * 40 + draw.normal(0, 50, rows)
    columns: dict[str, list[str]] = {f"number_{i}": [f"{v:.6g}" for v in one] for i, one in enumerate(numbers)}
    columns |= {f"word_{i}": [f"word {v}" for v in one] for i, one in enumerate(words)}
    for cells in columns.values():
        for row in draw.integers(0, rows, rows // 50):
            cells[row] = ""
    columns["answer"] = ["yes" if value > 0 else "no" for value in score]
    folder.mkdir()
    with open(folder / "table.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def run_job(side: str, data: Path, rows: int) -> Turn:
    """Run one turn in a new process and folder.

    Raises:
      click.ClickException: the job failed.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "data").symlink_to(data)
        with (folder / "log.txt").open("w") as log:
            began = time.perf_counter()
            command = [sys.executable, str(JOB), side, place, str(rows)]
            job = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
            _, status, usage = os.wait4(job.pid, 0)
            job.returncode = os.waitstatus_to_exitcode(status)
            whole = Cost(time.perf_counter() - began, usage.ru_utime + usage.ru_stime)
        if job.returncode:
            raise click.ClickException(f"{side} failed:\n{(folder / 'log.txt').read_text()[-_LAST:]}")
        lines = (folder / "nodes.jsonl").read_text().splitlines()
    # Our nodes get the names of TFX's nodes.
    nodes = {one["node"]: Cost(one["wall"], one["cpu"]) for one in map(json.loads, lines)}
    within = Cost(sum(node.wall for node in nodes.values()), sum(node.cpu for node in nodes.values()))
    rest = Cost(whole.wall - within.wall, whole.cpu - within.cpu)
    return Turn(whole, usage.ru_maxrss * 1024, {_START: rest, **nodes})


def draw(figures: Figures, path: str) -> None:
    """Draw CPU seconds and memory by rows, with a line for each side."""
    mpl.rcParams.update({"svg.hashsalt": "whole", "font.size": 9})
    figure, (seconds, memory) = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    for (side, sizes), color in zip(figures.items(), ("#2a62b5", "#b5482a", "#3b8a4f"), strict=False):
        style = {"marker": "o", "ms": 3, "label": side, "color": color}
        seconds.plot(list(sizes), [one.cpu for one in sizes.values()], **style)
        memory.plot(list(sizes), [(one.memory or 0) / 1e6 for one in sizes.values()], **style)
    seconds.set(title="CPU seconds of a whole job", ylim=(0, None))
    memory.set(title="MB resident, at most", ylim=(0, None))
    for panel in (seconds, memory):
        panel.set(xscale="log", xlabel="rows x 20 columns")
        panel.grid(color="#dddddd", lw=0.5)
        panel.spines[["top", "right"]].set_visible(False)
    figure.legend(*seconds.get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None, facecolor="white")


if __name__ == "__main__":
    main()
