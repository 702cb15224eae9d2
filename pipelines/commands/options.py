"""Arguments and options that several commands share: what a pipeline is made of, and how a source is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import click

from infeed.components.errors import InfeedError
from infeed.components.trainer.options import STRATEGIES
from infeed.pipelines.project.config_file import TEMPLATES


def project_options(command: Any) -> Any:
    """Adds them to a command, which gets `project`, and the fields of `Overrides` by name."""
    options: list[Any] = [
        click.argument("project", default="image", metavar=f"[{'|'.join(TEMPLATES)}|CONFIG.YAML]"),
        click.option(
            "--data", help="Pictures in class folders, or a table: CSV, JSON Lines, Parquet or Avro.", metavar="PATH"
        ),
        source_options,
        click.option("--label", help="Label column (tables only).  [asked for on a terminal]", metavar="COLUMN"),
        click.option(
            "--task", type=click.Choice(["classification", "regression"]), help="By default the label decides."
        ),
        click.option(
            "--keep",
            multiple=True,
            help="Learn from this column even if it gives the label away. Repeat for several columns.",
            metavar="COLUMN",
        ),
        click.option(
            "--strict", is_flag=True, default=None, help="Stop if a column that is not kept gives the label away."
        ),
        click.option(
            "--on-bad-row", type=click.Choice(["fail", "reject"]), help="Set bad rows aside.  [default: fail]"
        ),
        click.option("--bad-row-limit", type=click.IntRange(min=0), help="Most of them.  [default: 1000]"),
        click.option("--root", help="Folder for everything that is written.  [default: runs/NAME]", metavar="DIR"),
        click.option("--epochs", type=click.IntRange(min=1), help="Most epochs to train."),
        click.option("--batch-size", type=click.IntRange(min=1), help="Records in a global batch."),
        click.option("--strategy", help=f"Distribution strategy: {', '.join(STRATEGIES)}.", metavar="NAME"),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options to a command, which gets them as the dict `source_options`."""

    @click.option("--delimiter", help="Between the cells of a CSV: ';', 'tab'.  [default: ,]", metavar="SIGN")
    @click.option(
        "--set",
        "settings",
        multiple=True,
        help='Option of the format, as JSON or text: encoding=latin-1, \'nulls=["", "NA"]\'.',
        metavar="NAME=VALUE",
    )
    @wraps(command)
    def with_source_options(*, delimiter: str | None, settings: tuple[str, ...], **given: Any) -> Any:
        options = dict(map(_setting, settings)) | ({} if delimiter is None else {"delimiter": delimiter})
        return command(source_options=options, **given)

    return with_source_options


def as_flags(options: Mapping[str, Any]) -> list[str]:
    """The options as words of a command line, not quoted."""
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
