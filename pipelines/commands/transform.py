"""`infeed transform`: write the transform graph of a dataset, or show what it does to the rows of a project."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from infeed.components.base.errors import InfeedError
from infeed.pipelines.commands.asking import config_of
from infeed.pipelines.commands.options import project_options
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.console.exit_codes import Command, importing
from infeed.pipelines.console.nodes import show_step
from infeed.pipelines.console.paths import InputFolder, OutputFolder
from infeed.pipelines.console.terminal import quiet, show_facts, with_log
from infeed.pipelines.steps.folders import check_new

if TYPE_CHECKING:
    from infeed.components.transform.feature import Feature
    from infeed.pipelines.transform import ShownRow, Why

_LONGEST = 24  # characters of a value
_ITEMS = 4  # shown of a list
_NAMES, _CELLS = 34, 23  # characters: name and kind of a feature, and the two cells of a row


@click.command(
    name="transform",
    cls=Command,
    examples=(
        "infeed transform taxi/config.yaml --dataset data --output graph",
        "infeed transform tabular --show 3",
        "infeed transform taxi/config.yaml --why fare",
    ),
)
@project_options
@click.option("--dataset", type=InputFolder(), help="Dataset of infeed ingest.", metavar="DIR")
@click.option("--output", type=OutputFolder(), help="Write the transform graph of the dataset here.", metavar="DIR")
@click.option("--rows", type=OutputFolder(), help="Also write the transformed rows of the dataset.", metavar="DIR")
@click.option("--overwrite", is_flag=True, help="Replace the outputs if they exist.")
@click.option("--show", type=click.IntRange(1, 100), help="Rows to show.  [default: 5]", metavar="N")
@click.option("--why", "name", help="Explain this feature instead of showing rows.", metavar="FEATURE")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def command(
    project: str,
    dataset: str | None,
    output: str | None,
    rows: str | None,
    overwrite: bool,
    show: int | None,
    name: str | None,
    as_json: bool,
    **overrides: Any,
) -> None:
    """Write the transform graph of a dataset with --dataset and --output, or show rows of a project without a run.

    The table has raw and transformed values side by side. --why explains one feature: its constants, the number of rows
    they are computed from, and the rows that stand out.
    """
    if dataset and output and not (show or name):
        check_new(output, overwrite)
        config = config_of(project, overrides, may_ask=not as_json)
        _write(config, dataset, output, rows, overwrite, as_json)
        return
    if dataset or output or rows or overwrite:
        do = "give both, without --show and --why"
        raise InfeedError("a graph is written with --dataset and --output", where="infeed transform", do=do)
    config = config_of(project, overrides, may_ask=not as_json)
    with quiet(os.devnull) as console:
        with show_step(console, "Transform", transient=True, silent=as_json or not console.is_interactive):
            with importing():
                from infeed.pipelines.transform import Analyzed, explain

            analyzed = Analyzed.of(config)
        if name is not None:
            _print_why(explain(analyzed, name), console, as_json)
        else:
            _show(analyzed.first(show or 5), config.features, console, as_json)


def _write(config: PipelineConfig, dataset: str, output: str, rows: str | None, overwrite: bool, as_json: bool) -> None:
    with with_log(os.devnull) as console:
        with show_step(console, "Transform", silent=as_json):
            with importing():
                from infeed.pipelines.steps.transform import transform

            transform(config, dataset, output, rows, overwrite)
        if as_json:
            console.out(json.dumps({"graph": output, "rows": rows}), highlight=False)
        else:
            show_facts(console, [("graph", output), *([("rows", rows)] if rows else [])])


def _print_why(why: Why, console: Console, as_json: bool) -> None:
    if as_json:
        console.out(json.dumps(dataclasses.asdict(why)), highlight=False)
        return
    console.print(why.feature, style="bold", highlight=False, markup=False, soft_wrap=True)
    show_facts(console, [*why.facts])
    if why.shares:
        table = Table("index", "stands for", box=None, header_style="bold", pad_edge=False)
        table.add_column("count", justify="right")
        table.add_column("share", justify="right")
        for one in why.shares:
            table.add_row(str(one.index), _word(one.of, quoted=False), f"{one.count:,}", f"{one.share:.1%}")
        console.print(table, markup=False)


def _show(rows: Sequence[ShownRow], features: Sequence[Feature], console: Console, as_json: bool) -> None:
    if as_json:
        console.out(json.dumps([dataclasses.asdict(row) for row in rows], default=_json_value), highlight=False)
        return
    beside = max(1, (console.width - _NAMES) // _CELLS)
    for start in range(0, len(rows), beside):
        console.print(_side_by_side(rows[start : start + beside], features), markup=False)


def _side_by_side(rows: Sequence[ShownRow], features: Sequence[Feature]) -> Table:
    """Return a table with a line per feature, and for each row the raw and the transformed values."""
    table = Table("feature", "made by", box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_column(f"row {row.number:,}", justify="right")
        table.add_column("becomes", style="cyan", justify="right")
    for feature in features:
        cells = []
        for row in rows:
            cells += [", ".join(_word(row.raw[name]) for name in feature.inputs)]
            cells += [_word(row.transformed[feature.output_name])]
        others = "" if feature.inputs == (feature.output_name,) else f" of {', '.join(feature.inputs)}"
        table.add_row(feature.output_name, f"{type(feature).__name__}{others}", *cells)
    return table


def _word(value: Any, *, quoted: bool = True) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return _list_in_words(value)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str):
        return "missing" if value is None else str(value)
    text = repr(value) if quoted else value
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _list_in_words(values: Sequence[Any]) -> str:
    if values and isinstance(values[0], list | tuple):
        return f"{len(values)} x {_list_in_words(values[0])}"
    more = f", ... ({len(values):,})" if len(values) > _ITEMS else ""
    return f"[{', '.join(map(_word, values[:_ITEMS]))}{more}]"


def _json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    raise TypeError(f"{type(value).__name__} is not JSON serializable")
