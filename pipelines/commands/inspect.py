"""`infeed inspect`: show the manifest and the first records of a dataset, or of any TFRecord files."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from infeed.components.base.units import counted, one_line, size
from infeed.components.dataset.decode import Example
from infeed.components.dataset.manifest import Manifest
from infeed.components.dataset.reading import first_examples, open_dataset
from infeed.components.example_gen.formats import no_dataset
from infeed.pipelines.console.exit_codes import Command
from infeed.pipelines.console.paths import InputPath, OutputFile
from infeed.pipelines.console.terminal import Terminal, echo, in_lines
from infeed.pipelines.local.contact_sheet import draw_sheet, picture_of

_SHOWN = 60  # maximum characters of a value
_IMAGES = 32  # images on the contact sheet
_COLUMNS = 200  # maximum columns shown of a wide table


@click.command(
    name="inspect", cls=Command, examples=("infeed inspect data", "infeed inspect data --split eval --examples 5")
)
@click.argument("dataset", type=InputPath(), metavar="OUTPUT")
@click.option("--split", "chosen", metavar="NAME", help="Split whose examples to show.  [default: the first]")
@click.option(
    "--examples",
    "count",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help="Number of examples to show.",
    metavar="N",
)
@click.option(
    "--sheet",
    type=OutputFile(),
    default="contact-sheet.png",
    show_default=True,
    help="Write a contact sheet of images to this PNG file.",
    metavar="FILE",
)
@click.option("--json", "as_json", is_flag=True, help="Print the manifest and the examples as JSON.")
def command(dataset: str, chosen: str | None, count: int, sheet: str, as_json: bool) -> None:
    """Show the splits, schema and first examples of a dataset. For images, write a contact sheet.

    OUTPUT is a dataset of `infeed ingest`, an Examples artifact, a folder of TFRecord files, or one TFRecord file. The
    command checks the sizes of all shards, and the checksums of shown shards.
    """
    opened = open_dataset(dataset)
    if opened is None:
        raise no_dataset(dataset)
    root, manifest = opened
    name = chosen or next(iter(manifest.splits))
    found = first_examples(root, manifest, name, max(count, 1))
    if any(map(picture_of, found)):
        found = first_examples(root, manifest, name, max(count, _IMAGES))
    images = draw_sheet(found, sheet)
    if as_json:
        examples = [
            {name: list(map(_json_value, feature.values)) for name, feature in example.features.items()}
            for example in found[:count]
        ]
        shown = {"manifest": dataclasses.asdict(manifest), "examples": examples}
        echo(json.dumps({**shown, "sheet": sheet if images else None}))
        return
    console = Terminal(highlight=False, markup=False)  # names may contain brackets
    for part in (_about(dataset, manifest), _splits(manifest), *_schema(manifest)):
        console.print(part)
    for number, example in enumerate(found[:count]):
        console.print(_example(f"{name}, example {number}", example))
    if images:
        console.print(f"{images} images of {name}: {sheet}", soft_wrap=True)


def _about(root: str, manifest: Manifest) -> Text:
    source = manifest.source
    lines = [
        ("dataset", root),
        ("source", f"{source.kind}, {counted(source.files, 'file')}, {size(source.bytes)}"),
        ("rows read", f"{manifest.rows_read:,}"),
    ]
    if manifest.filtered:
        lines.append(("filtered out", f"{manifest.filtered:,}"))
    if manifest.rejected.rows:
        lines.append(("rejected", f"{manifest.rejected.rows:,}, listed in {manifest.rejected.file}"))
    if manifest.balanced.repeated or manifest.balanced.dropped:
        lines.append(("balanced", f"{manifest.balanced.repeated:,} repeated, {manifest.balanced.dropped:,} dropped"))
    lines += [("warning", warning) for warning in manifest.warnings]
    return in_lines(lines, width=14)


def _splits(manifest: Manifest) -> Table:
    table = Table("split", box=None, header_style="bold", pad_edge=False)
    for name in ("records", "shards", "size", "smallest", "largest"):
        table.add_column(name, justify="right")
    table.add_column("reason for the number")
    for name, split in manifest.splits.items():
        sizes = [shard.bytes for shard in split.shards]
        extremes = (size(min(sizes)), size(max(sizes))) if sizes else ("", "")
        row = (f"{split.records:,}", str(len(split.shards)), size(split.bytes), *extremes, split.reason)
        table.add_row(name, *row)
    return table


def _schema(manifest: Manifest) -> list[RenderableType]:
    if not manifest.schema:
        return []
    table = Table("column", "type", "shape", box=None, header_style="bold", pad_edge=False)
    table.add_column("nulls", justify="right")
    for column in manifest.schema[:_COLUMNS]:
        shape = "any length" if column.shape is None else str(list(column.shape))
        table.add_row(one_line(column.name), column.type, shape, f"{column.nulls:,}")
    return [table, *map(Text, _more(len(manifest.schema)))]


def _more(columns: int) -> list[str]:
    return [f"and {columns - _COLUMNS:,} more: --json shows all"] if columns > _COLUMNS else []


def _example(title: str, example: Example) -> Table:
    table = Table(title, "type", "value", box=None, header_style="bold", pad_edge=False)
    picture = picture_of(example)
    for name, feature in itertools.islice(example.features.items(), _COLUMNS):
        text = ", ".join(map(_word, feature.values[:_SHOWN]))
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(feature.values)} values)"
        table.add_row(one_line(name), feature.type or "", shown)
    for more in _more(len(example.features)):
        table.add_row(more, "", "")
    for name, steps in example.steps.items():
        table.add_row(one_line(name), steps[0].type or "" if steps else "", counted(len(steps), "step"))
    if picture is not None:
        known = f"{picture.format} {picture.width} x {picture.height} {picture.mode}"
        table.add_row("", "", known if picture.format else "an image that cannot be read")
    return table


def _word(value: Any) -> str:
    if not isinstance(value, bytes):
        return f"{value:.9g}" if isinstance(value, float) else str(value)
    try:
        return repr(value.decode()) if len(value) <= _SHOWN else f"{value[:20]!r}... {len(value):,} bytes"
    except UnicodeDecodeError:
        return f"{value[:12]!r}... {len(value):,} bytes"


def _json_value(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"bytes": len(value)}
