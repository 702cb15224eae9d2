"""`infeed new`: create a project from a template."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

import click

from infeed.components.base.errors import InfeedError
from infeed.pipelines.console.exit_codes import Command
from infeed.pipelines.console.paths import OutputFolder
from infeed.pipelines.console.terminal import command_line, echo
from infeed.pipelines.project.config_file import TEMPLATES
from infeed.pipelines.project.config_schema import COMMENT, FILE, config_schema

_FILES = ("README.md", "config.yaml", "features.py", "model.py")


def create_project(template: str, folder: str) -> list[Path]:
    """Copy the files of a template into a new or empty folder. Return their paths.

    Raises InfeedError if the template does not exist, or the folder is not empty.
    """
    if template not in TEMPLATES:
        raise InfeedError(f"there is no template {template!r}", do=f"use one of {', '.join(TEMPLATES)}")
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InfeedError("the path exists and is not an empty folder", where=folder, do="use a new or empty folder")
    target.mkdir(parents=True, exist_ok=True)
    source = resources.files(f"infeed.templates.{template}")
    texts = {name: (source / name).read_text(encoding="utf-8") for name in _FILES}
    texts |= {"config.yaml": COMMENT + texts["config.yaml"], FILE: config_schema()}
    for name, text in texts.items():
        (target / name).write_text(text, encoding="utf-8")
    return [target / name for name in texts]


@click.command(name="new", cls=Command, examples=("infeed new tabular taxi", "infeed new image flowers"))
@click.argument("template", metavar=f"{{{'|'.join(TEMPLATES)}}}")
@click.argument("folder", type=OutputFolder(), metavar="FOLDER")
def command(template: str, folder: str) -> None:
    """Create a project in FOLDER from a template.

    config.yaml sets the data and the training options. Edit features.py and model.py to change the features and the
    model. README.md explains all three files. With config.schema.json, editors complete and check config.yaml.
    """
    for path in create_project(template, folder):
        echo(f"wrote {path}")
    echo(f"next: {command_line('run', os.path.join(folder, 'config.yaml'))}")
