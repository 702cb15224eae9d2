"""Arguments and options that several commands share: projects, source formats and ingest settings."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, get_origin

import click
from click.shell_completion import CompletionItem

from infeed.components.base.annotations import Placeholder, bare, choices_of, help_of, hints_of, notes_of, range_of
from infeed.components.base.errors import InfeedError
from infeed.components.trainer.options import OVERRIDES, kind_of_option
from infeed.pipelines.console.paths import InputPath, OutputFolder
from infeed.pipelines.project.config_file import TEMPLATES, Settings
from infeed.pipelines.project.ingest_settings import HELP, NAMES, IngestSettings

_Command = Callable[..., Any]
_MOST_SHOWN = 1 << 62  # larger bounds only mark the limits of int64


def flag(kind: Any, name: str, help: str = "", *, default: bool = True) -> Callable[[_Command], _Command]:
    """Return the click option of a dataclass's option. If unset, its value is None, or empty for lists.

    It shows the first sentence of `help` (default: the option's text in the dataclass docstring), and optionally the
    `default`.
    """
    hint = hints_of(kind)[name]
    text = (help or help_of(kind).get(name, "")).partition(". ")[0].rstrip(".").replace("`", "")
    given: dict[str, Any] = {"help": f"{text[:1].upper()}{text[1:]}."}
    value = next(f.default for f in dataclasses.fields(kind) if f.name == name)
    hidden = (None, "", dataclasses.MISSING)
    shown = [one for one in (value if isinstance(value, tuple) else [value]) if one not in hidden and one is not False]
    if default and shown:
        given["help"] += f"  [default: {', '.join(map(str, shown))}]"
    word = next((note.word for note in notes_of(hint) if isinstance(note, Placeholder)), None)
    bounds = range_of(hint)
    if bare(hint) is bool:
        given |= {"is_flag": True, "default": None}
    elif choices := choices_of(hint):
        given |= {"type": click.Choice(choices), "metavar": word}
    elif bounds:
        most = bounds.most if bounds.most < _MOST_SHOWN else None
        given |= {"type": click.IntRange(bounds.least, most), "metavar": word or "N"}
    else:
        given |= {"type": str, "metavar": word}
    if get_origin(bare(hint)) is tuple and "," not in (word or ""):
        given["multiple"] = True
        given["help"] += "  [repeatable]"
    return click.option(f"--{name.replace('_', '-')}", name, **given)


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
            help="Training data: images in class folders, or a table (CSV, JSON Lines, Parquet, Arrow, Avro or "
            "TFRecord).",
            metavar="PATH",
        ),
        source_options,
        click.option(
            "--label",
            multiple=True,
            help="Label column (tables only).  [repeatable; asked for on a terminal]",
            metavar="COLUMN",
        ),
        *(flag(Settings, name) for name in ("task", "keep", "strict", "resize")),
        click.option(
            "--root", type=OutputFolder(), help="Folder for all outputs.  [default: runs/NAME]", metavar="DIR"
        ),
        click.option(
            "--seed",
            type=click.IntRange(min=0),
            help="Seed of splits, shuffles and training. Another seed divides the rows differently.  [default: 0]",
            metavar="N",
        ),
        training_options,
        ingest_options,
    ]
    for option in reversed(options):
        command = option(command)
    return command


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the format options to a command, which receives the dict `source_options`."""

    @click.option(
        "--delimiter", help="Field delimiter of CSV files, for example ';' or 'tab'.  [default: ,]", metavar="DELIMITER"
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


def training_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the training options in `OVERRIDES` to a command, which receives those that are set as the dict `train`."""
    flags = [flag(kind_of_option(name), name, default=False) for name in OVERRIDES]
    return _collected(command, "train", OVERRIDES, flags)


def ingest_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `IngestSettings` to a command, which receives those that are set as the dict `ingest`."""
    flags = [flag(IngestSettings, name, HELP[name]) for name in NAMES]
    return _collected(command, "ingest", NAMES, flags)


def _collected(command: Callable[..., Any], into: str, names: Iterable[str], flags: list[Any]) -> Callable[..., Any]:
    """Add flags to a command, which receives those that are set as one dict."""

    @wraps(command)
    def with_flags(**given: Any) -> Any:
        said = {name: given.pop(name) for name in names}
        return command(**{into: {name: value for name, value in said.items() if value not in (None, ())}}, **given)

    decorated: Callable[..., Any] = with_flags
    for option in reversed(flags):
        decorated = option(decorated)
    return decorated


def as_flags(options: Mapping[str, Any]) -> list[str]:
    """Return format options as unquoted arguments of a command line."""
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
