"""Arguments and options that several commands share: projects, source formats and ingest settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, get_args

import click
from click.shell_completion import CompletionItem

from infeed.components.errors import InfeedError
from infeed.components.trainer.options import STRATEGIES
from infeed.components.transform.kinds.image import Resize
from infeed.pipelines.console.paths import InputFolder, InputPath, OutputFolder
from infeed.pipelines.project.config_file import TEMPLATES
from infeed.pipelines.project.ingest_settings import NAMES


def _templates_or_path(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    names = [CompletionItem(name) for name in TEMPLATES if name.startswith(incomplete)]
    return names or param.type.shell_complete(ctx, param, incomplete)


def project_options(command: Any) -> Any:
    """Add the project options to a command, which receives `project` and the fields of `Overrides` by name."""
    options: list[Any] = [
        click.argument(
            "project",
            default="image",
            type=InputPath(),
            metavar=f"[{'|'.join(TEMPLATES)}|CONFIG.YAML]",
            shell_complete=_templates_or_path,
        ),
        click.option(
            "--data",
            type=InputPath(),
            help="Data to learn from: pictures in class folders, or a table (CSV, JSON Lines, Parquet or Avro).",
            metavar="PATH",
        ),
        source_options,
        click.option(
            "--label",
            multiple=True,
            callback=_single,
            help="Label column (tables only).  [asked for on a terminal]",
            metavar="COLUMN",
        ),
        click.option(
            "--task",
            type=click.Choice(["classification", "regression"]),
            help="Kind of prediction.  [default: by the label column]",
        ),
        click.option(
            "--keep",
            multiple=True,
            help="Learn from this column even if it gives the label away. May be repeated.",
            metavar="COLUMN",
        ),
        click.option(
            "--strict",
            is_flag=True,
            default=None,
            help="Stop if a column gives the label away, or if other splits repeat rows of train.",
        ),
        click.option(
            "--resize",
            type=click.Choice(get_args(Resize)),
            help="Resize method for pictures: stretch ignores the aspect ratio, fit pads with black, "
            "crop cuts off the margins.  [default: stretch]",
        ),
        click.option(
            "--root",
            type=OutputFolder(),
            help="Folder for all outputs.  [default: runs/NAME]",
            metavar="DIR",
        ),
        click.option("--epochs", type=click.IntRange(min=1), help="Maximum number of epochs."),
        click.option("--batch-size", type=click.IntRange(min=1), help="Number of examples in a global batch."),
        click.option("--strategy", help=f"Distribution strategy: {', '.join(STRATEGIES)}.", metavar="NAME"),
        ingest_options,
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _single(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> str | None:
    """Return the value of an option that may be given once: click itself silently takes the last of several."""
    if len(values) > 1:
        do = "a model learns one column: run once per label, and exclude the other labels with --columns"
        raise click.BadParameter(f"given {len(values)} times: {', '.join(values)}; {do}", context, parameter)
    return values[0] if values else None


root_option = click.option(
    "--root", type=InputFolder(), help="Root of the runs.  [default: the only folder in runs/]", metavar="DIR"
)


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the format options to a command, which receives the dict `source_options`."""

    @click.option(
        "--delimiter",
        help="Field delimiter of CSV files, for example ';' or 'tab'.  [default: ,]",
        metavar="DELIMITER",
    )
    @click.option(
        "--set",
        "settings",
        multiple=True,
        help='Option of the format, as JSON or text, for example encoding=latin-1 or \'nulls=["", "NA"]\'. '
        "May be repeated.",
        metavar="NAME=VALUE",
    )
    @wraps(command)
    def with_source_options(*, delimiter: str | None, settings: tuple[str, ...], **given: Any) -> Any:
        options = dict(map(_setting, settings)) | ({} if delimiter is None else {"delimiter": delimiter})
        return command(source_options=options, **given)

    return with_source_options


_INGEST = [
    click.option(
        "--split",
        multiple=True,
        metavar="NAME[=SHARE]",
        help="Split and its share.  [default: train=2, eval=1; in a pipeline train, eval and test that fit the rows]",
    ),
    click.option("--split-by", multiple=True, metavar="COLUMN", help="Keep rows that agree in this column together."),
    click.option("--split-salt", metavar="TEXT", help="Text that changes which rows fall into which split."),
    click.option("--split-label", metavar="COLUMN", help="Stratify the splits by this column."),
    click.option("--split-time", metavar="COLUMN", help="Split by the time in this column; needs --cut."),
    click.option("--cut", multiple=True, metavar="TIME", help="Time at which the next split begins."),
    click.option("--split-name", metavar="COLUMN", help="Column that names the split of each row."),
    click.option("--columns", metavar="A,B,...", help="Write only these columns."),
    click.option(
        "--filter", metavar="EXPRESSION", help='Keep the rows that satisfy this expression, for example "fare > 0".'
    ),
    click.option(
        "--required", multiple=True, metavar="COLUMN", help="Treat rows without a value in this column as bad rows."
    ),
    click.option("--balance", metavar="COLUMN", help="Balance the classes of this column."),
    click.option(
        "--balance-by",
        type=click.Choice(["over", "under"]),
        help="Balance by repeating rows (over) or dropping rows (under).  [default: over]",
    ),
    click.option("--balance-split", multiple=True, metavar="NAME", help="Split to balance.  [default: train]"),
    click.option("--shards", type=click.IntRange(min=1), help="Number of shards of each split.  [default: by size]"),
    click.option(
        "--target-shard-mb", type=click.IntRange(min=1), help="Approximate size of a shard in megabytes of records."
    ),
    click.option(
        "--compression", type=click.Choice(["gzip", "none"]), help="Compression of the shards.  [default: gzip]"
    ),
    click.option("--level", type=click.IntRange(0, 9), help="Compression level of gzip.  [default: 1]"),
    click.option("--shuffle-seed", type=click.IntRange(min=0), help="Seed of the shuffle of each split.  [default: 0]"),
    click.option("--no-shuffle", is_flag=True, default=None, help="Keep the order of the input."),
    click.option(
        "--on-bad-row",
        type=click.Choice(["fail", "reject"]),
        help="Stop at the first bad row, or reject bad rows into a file.  [default: fail]",
    ),
    click.option(
        "--bad-row-limit",
        type=click.IntRange(min=0),
        help="Stop after rejecting more than this many rows.  [default: 1000]",
    ),
    click.option(
        "--max-row-mb",
        type=click.IntRange(min=1),
        help="Reject rows that decode to more megabytes than this.  [default: 256]",
    ),
    click.option(
        "--allow-outside",
        is_flag=True,
        default=None,
        help="Allow links and picture lists to name files outside the data folder.",
    ),
    click.option(
        "--compat", type=click.Choice(["none", "tfx"]), help="Write empty cells as TFX does.  [default: none]"
    ),
    click.option("--no-statistics", is_flag=True, default=None, help="Skip the column statistics."),
]


def ingest_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `IngestSettings` to a command, which receives the given ones as the dict `ingest`."""

    @wraps(command)
    def with_ingest_options(**given: Any) -> Any:
        said = {name: given.pop(name) for name in NAMES}
        return command(ingest={name: value for name, value in said.items() if value not in (None, ())}, **given)

    decorated: Callable[..., Any] = with_ingest_options
    for option in reversed(_INGEST):
        decorated = option(decorated)
    return decorated


def as_flags(options: Mapping[str, Any]) -> list[str]:
    """Return format options as arguments of a command line, not quoted."""
    shown = {name: "tab" if value == "\t" else value for name, value in options.items()}
    values = {name: value if isinstance(value, str) else json.dumps(value) for name, value in shown.items()}
    flags = [
        ["--delimiter", value] if name == "delimiter" else ["--set", f"{name}={value}"]
        for name, value in values.items()
    ]
    return [word for words in flags for word in words]


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InfeedError(f"no value in {text!r}", where="--set", do="write NAME=VALUE, such as encoding=latin-1")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
