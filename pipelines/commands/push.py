"""`infeed push`: copy a blessed model to a serving folder, without TFX."""

from __future__ import annotations

import json
import sys

import click

from infeed.pipelines.console.exit_codes import EXIT_NOT_BLESSED, Command
from infeed.pipelines.console.paths import InputPath, OutputFolder
from infeed.pipelines.console.terminal import echo
from infeed.pipelines.steps.folders import is_blessed, push


@click.command(
    name="push",
    cls=Command,
    examples=(
        "infeed push model serving --evaluation evaluation",
        "infeed push model s3://bucket/taxi/serving --evaluation evaluation",
    ),
)
@click.argument("model", type=InputPath())
@click.argument("serving", type=OutputFolder())
@click.option(
    "--evaluation", type=InputPath(), help="Push the model only if this evaluation blesses it.", metavar="DIR"
)
@click.option("--allow-unblessed", is_flag=True, help="Exit with 0 even if the model is not blessed and not pushed.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else.")
def command(model: str, serving: str, evaluation: str | None, allow_unblessed: bool, as_json: bool) -> None:
    """Copy MODEL to a new version below the folder SERVING, local or on an object store, without TFX.

    TensorFlow Serving watches such a folder. If the model is not blessed, nothing is pushed, and the exit code is 3.
    """
    blessed = not evaluation or is_blessed(evaluation)
    pushed = push(model, serving) if blessed else None
    if as_json:
        echo(json.dumps({"pushed": pushed}))
    else:
        echo(f"pushed to {pushed}" if pushed else "the model is not blessed, so nothing was pushed")
    sys.exit(0 if blessed or allow_unblessed else EXIT_NOT_BLESSED)
