"""`infeed statistics`: show the column statistics of a dataset, or compare two datasets or splits."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence

import click
from rich.table import Table

from infeed.components.base import machine
from infeed.components.base.annotations import help_of
from infeed.components.base.errors import InfeedError
from infeed.components.base.units import counted
from infeed.components.dataset import files, names
from infeed.components.dataset.reading import flat_splits, has_split_folders, manifest_of, split_names
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.dataset.statistics.table_statistics import statistics_of
from infeed.components.engine.choice import ChosenMap
from infeed.components.example_gen.formats import no_dataset
from infeed.components.statistics.comparison import ComparisonOptions, compare
from infeed.pipelines.console.exit_codes import EXIT_FAILED, Command
from infeed.pipelines.console.nodes import show_step
from infeed.pipelines.console.paths import InputPath, OutputFile
from infeed.pipelines.console.terminal import Terminal, echo
from infeed.pipelines.local.statistics.figures import Figures, about, changes_table, columns_table, verdict
from infeed.pipelines.local.statistics.page import comparison_page, split_page

_WIDE = 200  # width if stdout is not a terminal


def _limits(command: Callable[..., None]) -> Callable[..., None]:
    """Add the limits of `ComparisonOptions` to a command, which receives them by name."""
    for option in reversed(dataclasses.fields(ComparisonOptions)):
        text = help_of(ComparisonOptions).get(option.name, "")
        add = click.option(
            f"--{option.name.replace('_', '-')}",
            default=option.default,
            show_default=True,
            help=f"{text[:1].upper()}{text[1:]}",
            metavar="SHARE",
        )
        command = add(command)
    return command


@click.command(
    name="statistics",
    cls=Command,
    examples=(
        "infeed statistics data --html columns.html",
        "infeed statistics data --splits train eval",
        "infeed statistics today --compare yesterday --l-infinity 0.02",
    ),
)
@click.argument("dataset", type=InputPath(), metavar="DATASET")
@click.option("--split", metavar="NAME", help="Split to show or compare.  [default: train, or the first]")
@click.option("--compare", "earlier", type=InputPath(), metavar="OTHER", help="Compare with this earlier dataset.")
@click.option("--splits", nargs=2, metavar="A B", help="Compare two splits of DATASET.")
@_limits
@click.option("--html", type=OutputFile(), metavar="FILE", help="Also write an HTML page with histograms.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def command(
    dataset: str,
    split: str | None,
    earlier: str | None,
    splits: tuple[str, str] | None,
    html: str | None,
    as_json: bool,
    **allowed: float,
) -> None:
    """Show statistics of the columns of DATASET, or compare DATASET with another dataset or split.

    DATASET is a dataset of `infeed ingest`, an Examples artifact, a folder of TFRecord files, or one TFRecord file. The
    exit code of a
    comparison is 1 if a column is new, lost, or of another type, or if its values, missing rows, list lengths or words
    differ beyond their limits.
    """
    if splits and (earlier or split):
        what = "--splits is set together with --compare or --split"
        raise InfeedError(what, where="infeed statistics", do="use only one of them")
    if not (splits or earlier):
        _show(dataset, _chosen(dataset, split), html, as_json)
        return
    options = ComparisonOptions(**allowed)
    if splits:
        pairs = [(name, dataset, name) for name in splits]
    else:
        name = _chosen(dataset, split)
        # Of a single file, the only split is compared, whatever its name.
        known_splits = _splits(str(earlier))
        other = split or (known_splits[0] if len(known_splits) == 1 else name)
        pairs = [(f"{where}, {of}", where, of) for where, of in ((str(earlier), other), (dataset, name))]
    if pairs[0] == pairs[1]:
        raise InfeedError("both sides are the same", where=pairs[0][0], do="use two different datasets or splits")
    found = _columns([(where, name) for _, where, name in pairs], as_json)
    sides = {title: columns for (title, _, _), columns in zip(pairs, found, strict=True)}
    before, after = sides
    changes = compare(sides[before], sides[after], options)
    if html:
        files.write_bytes(html, comparison_page(dataset, sides, changes).encode())
    if as_json:
        known = [about(change) for change in changes]
        echo(json.dumps({"before": before, "after": after, "columns": known, "html": html}))
    else:
        console = Terminal(highlight=False, markup=False)
        console.print(f"{before} -> {after}: {verdict(changes)}", soft_wrap=True)
        _print(console, changes_table(changes), html)
    sys.exit(EXIT_FAILED if any(change.problem for change in changes) else 0)


def _show(dataset: str, split: str, html: str | None, as_json: bool) -> None:
    [columns] = _columns([(dataset, split)], as_json)
    columns = _in_order_of_table(dataset, columns)
    if html:
        files.write_bytes(html, split_page(dataset, split, columns).encode())
    figures = [Figures.of(column) for column in columns.values()]
    if as_json:
        known = {one.name: dataclasses.asdict(one) for one in figures}
        echo(json.dumps({"dataset": dataset, "split": split, "columns": known, "html": html}))
        return
    console = Terminal(highlight=False, markup=False)  # names may contain brackets
    rows = figures[0].rows if figures else 0
    console.print(f"{dataset}, {split}: {counted(rows, 'row')}, {counted(len(figures), 'column')}", soft_wrap=True)
    width = console.width if console.is_terminal else None
    _print(console, columns_table("column", figures, width), html)
    if any(one.type == "bytes" for one in figures):
        console.print("For columns of bytes, min, mean and max are lengths.", soft_wrap=True)


def _in_order_of_table(dataset: str, columns: Mapping[str, ColumnStatistics]) -> dict[str, ColumnStatistics]:
    """Return the columns in schema order. Without a schema, sort by name, with numbers in names as numbers."""
    has_manifest = files.exists(files.join(dataset, names.MANIFEST))
    schema = manifest_of(dataset).schema if has_manifest else ()
    written = {column.name: number for number, column in enumerate(schema)}

    def place(name: str) -> tuple[int, list[tuple[int, str]]]:
        parts = [(int(part), "") if part.isdecimal() else (0, part.casefold()) for part in re.split(r"(\d+)", name)]
        return written.get(name, len(written)), parts

    return {name: columns[name] for name in sorted(columns, key=place)}


def _columns(splits: Sequence[tuple[str, str]], as_json: bool) -> list[dict[str, ColumnStatistics]]:
    """Return the columns of some splits, as (dataset, split). A terminal shows the progress of long reads."""
    for dataset, _ in splits:
        _splits(dataset)
    console, read = Terminal(stderr=True), ChosenMap("reads", machine.STATISTICS_BYTES)
    with show_step(console, "StatisticsGen", transient=True, silent=as_json or not console.is_interactive):
        return [statistics_of(dataset, split, map_fn=read) for dataset, split in splits]


def _print(console: Terminal, table: Table, html: str | None) -> None:
    """Print the table. Unless a terminal limits the width, it fits all names."""
    if not console.is_terminal:
        console.width = _WIDE
    console.print(table)
    if html:
        console.print(f"histograms: {html}", soft_wrap=True)


def _chosen(dataset: str, split: str | None) -> str:
    """Return the given split, or else train, or the first split."""
    splits = _splits(dataset)
    return split or ("train" if "train" in splits else splits[0])


def _splits(dataset: str) -> list[str]:
    """Return the splits of a dataset. Raise InfeedError if the path does not exist, or is no dataset."""
    if not files.exists(dataset):
        raise InfeedError("no such file or folder", where=dataset, do="check the path")
    if has_split_folders(dataset):
        return split_names(dataset)
    if not (flat := list(flat_splits(dataset))):
        raise no_dataset(dataset)
    return flat
