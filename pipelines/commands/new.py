"""`infeed new`."""

from __future__ import annotations

import os

import click

from infeed.pipelines.commands.exits import errors
from infeed.pipelines.commands.words import command
from infeed.pipelines.new import create_project
from infeed.pipelines.project import TEMPLATES


@click.command()
@click.argument("template", metavar=f"{{{'|'.join(TEMPLATES)}}}")
@click.argument("folder", metavar="FOLDER")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def new(template: str, folder: str, debug: bool) -> None:
    """Start a project of your own in FOLDER from a template."""
    with errors(as_json=False, debug=debug):
        for path in create_project(template, folder):
            click.echo(f"wrote {path}")
        click.echo(f"next: {command()} run {os.path.join(folder, 'config.yaml')}")
