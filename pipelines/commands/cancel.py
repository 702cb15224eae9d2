"""`infeed cancel`: stop a run on Kubeflow Pipelines or Vertex AI."""

from __future__ import annotations

import os
from typing import Any

import click

from infeed.pipelines.commands.submit import platform_function, platform_options
from infeed.pipelines.console.exit_codes import Command
from infeed.pipelines.console.terminal import quiet


@click.command(
    name="cancel",
    cls=Command,
    examples=(
        "infeed cancel 3f1b0c4e --host http://localhost:8888",
        "infeed cancel taxi-20261124-3f1b0c --project my-project --region us-central1",
    ),
)
@click.argument("run", metavar="RUN")
@platform_options
def command(run: str, **given: Any) -> None:
    """Stop RUN, the id in the output of `infeed submit --json` and at the end of a run's URL."""
    cancel = platform_function("cancel", **given)
    with quiet(os.devnull) as console:
        cancel(run)
        console.print(f"cancelled {run}", highlight=False, soft_wrap=True)
