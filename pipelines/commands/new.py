"""`infeed new`: create a project from a template."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import click

from infeed.components.base.errors import InfeedError
from infeed.pipelines.console.exit_codes import Command
from infeed.pipelines.console.paths import InputPath, OutputFolder
from infeed.pipelines.console.terminal import command_line, echo
from infeed.pipelines.project.config_file import TEMPLATES
from infeed.pipelines.project.config_schema import COMMENT, FILE, config_schema
from infeed.pipelines.project.sources import source_of

_FILES = ("README.md", "config.yaml", "features.py", "model.py")


def create_project(
    template: str, folder: str, data: str | None = None, label: Sequence[str] = (), drop: Sequence[str] = ()
) -> list[Path]:
    """Copy the files of a template into a new or empty folder. Return their paths.

    Args:
      data: data of the project. Defaults to the example data of the template.
      label: label columns, for a table of your own.
      drop: columns of the table to exclude.

    Raises:
      InfeedError: the template does not exist, has no such setting, the folder is not empty, or a value is not UTF-8.
    """
    if template not in TEMPLATES:
        raise InfeedError(f"there is no template {template!r}", do=f"use one of {', '.join(TEMPLATES)}")
    images = template == "image"
    if images and (label or drop):
        do = "leave it out: the class folders are the labels"
        raise InfeedError("images have no columns", where="--label" if label else "--drop", do=do)
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InfeedError("the path exists and is not an empty folder", where=folder, do="use a new or empty folder")
    for value in (data, *label, *drop):
        _check_text(value or "")
    # All texts are made before the folder, so that an error leaves nothing behind.
    source = resources.files(f"infeed.templates.{template}")
    texts = {name: (source / name).read_text(encoding="utf-8") for name in _FILES}
    config = _with_settings(texts["config.yaml"], data, label, drop, images)
    texts |= {"config.yaml": COMMENT + config, FILE: config_schema()}
    target.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (target / name).write_text(text, encoding="utf-8")
    return [target / name for name in texts]


def _check_text(value: str) -> None:
    """Raise InfeedError if config.yaml, which is UTF-8, cannot hold the value."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InfeedError("the name is not UTF-8 text", where=value, do="rename it to UTF-8") from error


def _with_settings(config: str, data: str | None, label: Sequence[str], drop: Sequence[str], images: bool) -> str:
    """Return the text of a config with other settings. The label of a table's template belongs to its example data."""
    given = {"data": data, "label": [*label] if len(label) > 1 else "".join(label)}
    if data and not images:
        given["source"] = source_of(data, "csv")
    lines = []
    for line in config.splitlines():
        name = line.partition(":")[0]
        if value := given.get(name):
            lines.append(f"{name}: {value if name == 'source' else json.dumps(value, ensure_ascii=False)}")
        elif images or not (data and name == "label"):
            lines.append(line)
    if drop:
        lines.append(f"ingest: {{drop: {json.dumps(list(drop), ensure_ascii=False)}}}")
    return "\n".join([*lines, ""])


@click.command(
    name="new",
    cls=Command,
    examples=(
        "infeed new tabular taxi",
        "infeed new tabular taxi --data trips.csv --label tip --drop trip_id",
        "infeed new tabular homes --data homes.jsonl --label price --label sold",
    ),
)
@click.argument("template", metavar=f"{{{'|'.join(TEMPLATES)}}}")
@click.argument("folder", type=OutputFolder(), metavar="FOLDER")
@click.option("--data", type=InputPath(), help="Training data.  [default: the template's example data]", metavar="PATH")
@click.option("--label", multiple=True, help="Label column (tables only).  [repeatable]", metavar="COLUMN")
@click.option("--drop", multiple=True, help="Column to exclude (tables only).  [repeatable]", metavar="COLUMN")
def command(template: str, folder: str, data: str | None, label: tuple[str, ...], drop: tuple[str, ...]) -> None:
    """Create a project in FOLDER from a template.

    config.yaml sets the data and the training options. Edit features.py and model.py to change the features and the
    model. README.md explains all three files. With config.schema.json, editors complete and check config.yaml.
    """
    for path in create_project(template, folder, data, label, drop):
        echo(f"wrote {path}")
    echo(f"next: {command_line('run', os.path.join(folder, 'config.yaml'))}")
