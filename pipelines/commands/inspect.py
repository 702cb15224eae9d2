"""`infeed inspect`: what a dataset holds, from its manifest and its first records; anyone's TFRecords will do."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

import click
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from infeed.components.dataset import files, records
from infeed.components.dataset.decode import Example, Feature, decode_example
from infeed.components.dataset.manifest import Manifest, Split, manifest_of
from infeed.components.errors import InfeedError
from infeed.pipelines.commands.exits import errors
from infeed.pipelines.contact_sheet import draw_sheet, picture_of

_SHOWN = 60  # characters of a value
_PICTURES = 32


@click.command()
@click.argument("dataset", metavar="OUTPUT")
@click.option("--split", "chosen", metavar="NAME", help="Whose examples to show.  [default: the first]")
@click.option("--examples", "count", type=click.IntRange(min=0), default=2, show_default=True)
@click.option("--sheet", default="contact-sheet.png", show_default=True, help="Where pictures go.", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest and the examples as JSON.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def inspect(dataset: str, chosen: str | None, count: int, sheet: str, as_json: bool, debug: bool) -> None:
    """Show what the dataset at OUTPUT holds; for pictures, write a contact sheet."""
    with errors(as_json, debug):
        manifest = manifest_of(dataset)
        name = chosen or next(iter(manifest.splits))
        found = _first_examples(dataset, manifest, name, max(count, _PICTURES))
        pictures = draw_sheet(found, sheet)
        if as_json:
            examples = [_as_json(example) for example in found[:count]]
            result = {
                "manifest": dataclasses.asdict(manifest),
                "examples": examples,
                "sheet": sheet if pictures else None,
            }
            click.echo(json.dumps(result))
            return
        console = Console(highlight=False, markup=False)  # names may hold brackets
        for part in (_about(dataset, manifest), _splits(manifest), *_schema(manifest)):
            console.print(part)
        for number, example in enumerate(found[:count]):
            console.print(_example(f"{name}, example {number}", example))
        if pictures:
            console.print(f"{pictures} pictures of {name}: {sheet}", soft_wrap=True)


def _first_examples(root: str, manifest: Manifest, split: str, count: int) -> list[Example]:
    if split not in manifest.splits:
        raise InfeedError(f"no split {split!r}", where=root, do=f"choose one of {', '.join(manifest.splits)}")
    shards = (files.join(root, shard.file) for shard in manifest.splits[split].shards)
    first = itertools.islice(itertools.chain.from_iterable(map(records.read_records, shards)), count)
    try:
        return [decode_example(record) for record in first]
    except ValueError:
        return []  # other records than examples are counted, not shown


def _about(root: str, manifest: Manifest) -> Text:
    source = manifest.source
    lines = [
        ("dataset", root),
        ("source", f"{source.kind}, {source.files} files, {decimal(source.bytes)}"),
        ("rows read", f"{manifest.rows_read:,}"),
    ]
    if manifest.filtered:
        lines.append(("filtered out", f"{manifest.filtered:,}"))
    if manifest.rejected.rows:
        lines.append(("rejected", f"{manifest.rejected.rows:,}, listed in {manifest.rejected.file}"))
    if manifest.balanced.repeated or manifest.balanced.dropped:
        lines.append(("balanced", f"{manifest.balanced.repeated:,} repeated, {manifest.balanced.dropped:,} dropped"))
    lines += [("warning", warning) for warning in manifest.warnings]
    return Text("\n").join(Text(f"{name:<13} {value}") for name, value in lines)


def _splits(manifest: Manifest) -> Table:
    table = Table("split", box=None, header_style="bold", pad_edge=False)
    for name in ("records", "shards", "size", "smallest", "largest"):
        table.add_column(name, justify="right")
    table.add_column("why so many")
    for name, split in manifest.splits.items():
        sizes = _sizes(split)
        row = (f"{split.records:,}", str(len(split.shards)), decimal(split.bytes), *sizes, split.reason)
        table.add_row(name, *row)
    return table


def _sizes(split: Split) -> tuple[str, str]:
    sizes = [shard.bytes for shard in split.shards]
    return (decimal(min(sizes)), decimal(max(sizes))) if sizes else ("", "")


def _schema(manifest: Manifest) -> list[Table]:
    if not manifest.schema:
        return []
    table = Table("column", "type", "shape", box=None, header_style="bold", pad_edge=False)
    table.add_column("nulls", justify="right")
    for column in manifest.schema:
        shape = "any length" if column.shape is None else str(list(column.shape))
        table.add_row(column.name, column.type, shape, f"{column.nulls:,}")
    return [table]


def _example(title: str, example: Example) -> Table:
    table = Table(title, "type", "value", box=None, header_style="bold", pad_edge=False)
    picture = picture_of(example)
    for name, feature in example.features.items():
        table.add_row(name, feature.type or "", _words(feature))
    for name, steps in example.steps.items():
        table.add_row(name, steps[0].type or "" if steps else "", f"{len(steps)} steps")
    if picture is not None:
        table.add_row("", "", f"{picture.format} {picture.width} x {picture.height} {picture.mode}")
    return table


def _words(feature: Feature) -> str:
    text = ", ".join(_word(value) for value in feature.values[:_SHOWN])
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(feature.values)} values)"


def _word(value: Any) -> str:
    if not isinstance(value, bytes):
        return f"{value:.9g}" if isinstance(value, float) else str(value)
    try:
        return repr(value.decode()) if len(value) <= _SHOWN else f"{value[:20]!r}... {len(value):,} bytes"
    except UnicodeDecodeError:
        return f"{value[:12]!r}... {len(value):,} bytes"


def _as_json(example: Example) -> dict[str, list[Any]]:
    return {name: [_json_value(value) for value in feature.values] for name, feature in example.features.items()}


def _json_value(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"bytes": len(value)}
