"""`infeed runs`: list the runs of a root, or compare two."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from infeed.components.base.errors import InfeedError
from infeed.components.base.units import percent, seconds
from infeed.components.evaluation.model_report.scores import LABELS, with_interval
from infeed.pipelines.commands.options import root_option
from infeed.pipelines.console.exit_codes import Command
from infeed.pipelines.console.terminal import Terminal, echo
from infeed.pipelines.local.history import PastRun, find_root, find_roots, is_running, read_runs

_STYLES = {"pushed": "green", "running": "bold yellow", "not blessed": "bold red"}
_NONE, _DIGITS = "-", 8
_COLUMNS = ("run", "started", "took", "status", "score", "rows", "data", "waited")
_FEWEST, _WIDEST = 5, 1_000  # columns that every table has, and characters to measure it in


@click.command(name="runs", cls=Command, examples=("infeed runs", "infeed runs --root runs/taxi 3 4"))
@click.argument("numbers", nargs=-1, type=int, metavar="[A B]")
@root_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def command(numbers: tuple[int, ...], root: str | None, as_json: bool) -> None:
    """List the runs of a root with time, status, score and data, or compare the runs A and B.

    Without --root, the command lists the runs of all roots in runs/. A run that finds nothing changed since the last
    one adds no entry.
    """
    if len(numbers) not in (0, 2):
        raise click.UsageError("name two runs to compare, or none to list all")
    if numbers:
        _compare(find_root(root), *numbers, as_json=as_json)
        return
    found = {one: _with_status(one) for one in find_roots(root)}
    if as_json:
        listed = [run.as_json() | {"status": words, "root": one} for one, runs in found.items() for run, words in runs]
        echo(json.dumps(listed, indent=1))
        return
    for one, runs in found.items():
        if len(found) > 1:
            echo(f"{one}:")
        if runs:
            _show(Terminal(highlight=False), runs)
        else:
            echo(f"no run is recorded in {one}: earlier versions of infeed kept no history")


def _with_status(root: str) -> list[tuple[PastRun, str]]:
    runs, running = read_runs(root), is_running(root)
    return [(run, "running" if running and run is runs[0] and not run.ended else run.status) for run in runs]


def _compare(root: str, one: int, other: int, *, as_json: bool) -> None:
    by_number = {run.number: run for run in read_runs(root)}
    for number in (one, other):
        if number not in by_number:
            known = ", ".join(map(str, by_number)) or "none yet"
            raise InfeedError(f"there is no run {number}", where=root, do=f"name two of the runs: {known}")
    first, second = by_number[one], by_number[other]
    rows = list(_differences(first, second))
    if as_json:
        echo(json.dumps([{"what": what, str(one): a, str(other): b} for what, a, b in rows], indent=1))
    else:
        Terminal(highlight=False).print(_side_by_side(first, second, rows))


def _show(terminal: Terminal, runs: Sequence[tuple[PastRun, str]]) -> None:
    """Print a table. A narrow terminal has fewer columns, so that no score is cut in two."""
    wide = terminal.options.update(max_width=_WIDEST)
    for columns in range(len(_COLUMNS), _FEWEST - 1, -1):
        table = _table(runs, _COLUMNS[:columns])
        if terminal.measure(table, options=wide).maximum <= terminal.width:
            break
    terminal.print(table)


def _table(runs: Sequence[tuple[PastRun, str]], columns: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold", justify="right" if name in ("run", "rows", "waited") else "left")
    for run, words in runs:
        style = _STYLES.get(words, "bold red" if words.endswith("failed") else "")
        rows = f"{sum(run.rows.values()):,}" if run.rows else _NONE
        took = seconds(run.seconds) if run.ended else _NONE
        score = next((f"{name} {value}" for name, value in _scores(run)), _NONE)
        data = run.fingerprint[:_DIGITS] or _NONE
        cells = (str(run.number), _time(run), took, Text(words, style), score, rows, data, _waited(run))
        table.add_row(*cells[: len(columns)])
    return table


def _time(run: PastRun) -> str:
    return datetime.fromisoformat(run.run_id).isoformat(sep=" ", timespec="minutes")


def _scores(run: PastRun) -> Iterator[tuple[str, str]]:
    if run.outcome:
        for name, value in run.outcome.metrics.items():
            yield LABELS.get(name, name), with_interval(name, value, run.outcome.intervals.get(name))


def _waited(run: PastRun) -> str:
    return percent(run.outcome.wait_fraction) if run.outcome else _NONE


def _differences(*runs: PastRun) -> Iterator[tuple[str, str, str]]:
    """Yield what two runs scored, read and took, and the settings that differ between them."""
    facts = [dict(_facts(run)) for run in runs]
    settings = [{name: json.dumps(value) for name, value in _flat(run.config)} for run in runs]
    changed = {name for name in {*settings[0], *settings[1]} if settings[0].get(name) != settings[1].get(name)}
    for name in (*dict.fromkeys([*facts[0], *facts[1]]), *sorted(changed)):
        before, after = (
            of_run.get(name, given.get(name, _NONE)) for of_run, given in zip(facts, settings, strict=True)
        )
        yield name, before, after


def _facts(run: PastRun) -> Iterator[tuple[str, str]]:
    yield from {"started": _time(run), "status": run.status, "fingerprint of the data": run.fingerprint}.items()
    yield from ((f"{split} rows", f"{rows:,}") for split, rows in run.rows.items())
    yield from _scores(run)
    yield "waited for input", _waited(run)
    yield from ((node.name, f"{seconds(node.seconds)}, {node.state.value}") for node in run.nodes)


def _flat(config: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each setting with its path, such as `train.feed.batch_size` or `features[2].column`."""
    if isinstance(config, Mapping) and config:
        for key, value in config.items():
            yield from _flat(value, f"{name}.{key}" if name else key)
    elif isinstance(config, list | tuple) and config:
        for position, value in enumerate(config):
            yield from _flat(value, f"{name}[{position}]")
    else:
        yield name, config


def _side_by_side(first: PastRun, second: PastRun, rows: list[tuple[str, str, str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", f"run {first.number}", f"run {second.number}"):
        table.add_column(name, overflow="fold")
    for what, before, after in rows:
        table.add_row(what, before, Text(after, "" if before == after else "bold"))
    return table
