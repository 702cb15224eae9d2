"""`infeed schema`: write the JSON schema of config.yaml."""

from __future__ import annotations

import click

from infeed.components.dataset import files
from infeed.pipelines.console.exit_codes import Command
from infeed.pipelines.console.paths import OutputFile
from infeed.pipelines.console.terminal import echo
from infeed.pipelines.project.config_schema import config_schema


@click.command(name="schema", cls=Command, examples=("infeed schema", "infeed schema taxi/config.schema.json"))
@click.argument("output", type=OutputFile(), required=False)
def command(output: str | None) -> None:
    """Write the JSON schema of config.yaml to OUTPUT, or print it. Editors use it to complete and check the file.

    `infeed new` writes the schema next to config.yaml.
    """
    if output:
        files.write_bytes(output, config_schema().encode())
    else:
        echo(config_schema())
