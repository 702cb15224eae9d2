"""The command `infeed`."""

from __future__ import annotations

import click

from infeed.pipelines.commands.build import build
from infeed.pipelines.commands.compile import compile_
from infeed.pipelines.commands.doctor import doctor
from infeed.pipelines.commands.ingest import ingest
from infeed.pipelines.commands.inspect import inspect
from infeed.pipelines.commands.new import new
from infeed.pipelines.commands.predict import predict
from infeed.pipelines.commands.rehearse import rehearse_
from infeed.pipelines.commands.run import run
from infeed.pipelines.commands.submit import submit


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="tfx-infeed")
def main() -> None:
    """TFX components that keep accelerators fed."""


for command in (run, new, predict, ingest, inspect, compile_, build, rehearse_, submit, doctor):
    main.add_command(command)
