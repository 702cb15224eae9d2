"""`infeed runs`: list the runs of a root."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

import click
from rich.table import Table
from rich.text import Text

from infeed.components.base.units import percent, seconds
from infeed.components.evaluation.model_report.scores import LABELS, with_interval
from infeed.pipelines.console.exit_codes import Command
from infeed.pipelines.console.paths import InputFolder
from infeed.pipelines.console.terminal import Terminal, echo
from infeed.pipelines.local.outcome import PastRun, find_roots, read_runs

_STYLES = {"pushed": "green", "running": "bold yellow", "not blessed": "bold red"}
_NONE = "-"
_COLUMNS = ("started", "took", "status", "score", "rows", "waited")
_FEWEST, _WIDEST = 4, 1_000  # minimum columns of a table, and the width in which to measure it


@click.command(name="runs", cls=Command, examples=("infeed runs", "infeed runs --root runs/taxi --json"))
@click.option("--root", type=InputFolder(), help="Root of the runs.  [default: all folders in runs/]", metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def command(root: str | None, as_json: bool) -> None:
    """List the runs of a root with time, status, score and rows, newest first.

    The command reads ML Metadata.
    """
    found = {one: read_runs(one) for one in find_roots(root)}
    if as_json:
        echo(json.dumps([run.as_json() | {"root": one} for one, runs in found.items() for run in runs], indent=1))
        return
    for one, runs in found.items():
        if len(found) > 1:
            echo(f"{one}:")
        _show(Terminal(highlight=False), runs)


def _show(terminal: Terminal, runs: Sequence[PastRun]) -> None:
    """Print a table. On a narrow terminal, drop columns so that no score is truncated."""
    wide = terminal.options.update(max_width=_WIDEST)
    for columns in range(len(_COLUMNS), _FEWEST - 1, -1):
        table = _table(runs, _COLUMNS[:columns])
        if terminal.measure(table, options=wide).maximum <= terminal.width:
            break
    terminal.print(table)


def _table(runs: Sequence[PastRun], columns: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold", justify="right" if name in ("rows", "waited") else "left")
    for run in runs:
        style = _STYLES.get(run.status, "bold red" if run.status.endswith("failed") else "")
        rows = f"{sum(run.rows.values()):,}" if run.rows else _NONE
        waited = _NONE if run.wait_fraction is None else percent(run.wait_fraction)
        began = datetime.fromisoformat(run.run_id).isoformat(sep=" ", timespec="minutes")
        cells = (began, seconds(run.seconds), Text(run.status, style), _score(run), rows, waited)
        table.add_row(*cells[: len(columns)])
    return table


def _score(run: PastRun) -> str:
    """Return the metric that decides about the blessing: the first one."""
    if not run.scores:
        return _NONE
    name, value = next(iter(run.scores.metrics.items()))
    return f"{LABELS.get(name, name)} {with_interval(name, value, run.scores.intervals.get(name))}"
