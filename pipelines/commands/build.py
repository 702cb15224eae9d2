"""`infeed build`: build the container image of a project."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from infeed.components.base.errors import InfeedError
from infeed.pipelines.console.exit_codes import Command, interruptible
from infeed.pipelines.console.paths import InputPath
from infeed.pipelines.console.terminal import Terminal, command_line, in_lines
from infeed.pipelines.image.build import BASE, BuiltImage, ImageOptions, OnStep, build_image, remember
from infeed.pipelines.image.context import Accelerator
from infeed.pipelines.project.config_file import TEMPLATES, read_project


@click.command(
    name="build",
    cls=Command,
    examples=(
        "infeed build taxi/config.yaml --tag registry.example/taxi:1 --push",
        "infeed build taxi/config.yaml --accelerator gpu",
    ),
)
@click.argument("project", default="image", type=InputPath(), metavar=f"[{'|'.join(TEMPLATES)}|CONFIG.YAML]")
@click.option("--tag", help="Name and tag of the image.  [default: deploy.image of the config]", metavar="NAME")
@click.option(
    "--base", default=BASE, show_default=True, help="Base image; must provide the Python of Debian 13.", metavar="IMAGE"
)
@click.option(
    "--accelerator",
    type=click.Choice(get_args(Accelerator)),
    default="none",
    show_default=True,
    help="Accelerator to support; gpu adds the CUDA libraries.",
)
@click.option(
    "--exclude", multiple=True, help="Exclude project files that match PATTERN. May be repeated.", metavar="PATTERN"
)
@click.option("--push", is_flag=True, help="Push the image to the registry in its name.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else.")
def command(project: str, tag: str | None, as_json: bool, **given: Any) -> None:
    """Build the container image in which a compiled pipeline runs.

    The image contains TFX, the installed version of this package, and the files of the project. The build uses docker,
    podman or buildah.
    """
    console = Terminal(highlight=False)
    read = read_project(project)
    deploy = read.settings.deploy
    name = tag or deploy.image
    if not name:
        do = "give --tag registry.example/taxi:1, or set deploy.image in the config"
        raise InfeedError("the image has no name", do=do)
    if "@" in name:
        what = f"{name!r} names an image by its digest, which is known only once the image is built"
        raise InfeedError(what, do="name the new image by a tag: --tag registry.example/taxi:1")
    given["exclude"] = (*given["exclude"], *deploy.exclude)
    in_image = deploy.project == "image"
    options = ImageOptions(name, runner=deploy.beam.runner, with_project=in_image, **given)
    log = Path("runs", read.name, "logs", "build.log")
    with interruptible("the next build reuses the finished build steps"), _steps(console, silent=as_json) as on_step:
        built = build_image(None if read.package else read.folder, options, log, on_step)
    remember(built, read.name)
    if as_json:
        console.out(json.dumps(dataclasses.asdict(built)))
    else:
        console.print(_summary(built, project, read.name, log), soft_wrap=True)


@contextlib.contextmanager
def _steps(console: Console, *, silent: bool) -> Iterator[OnStep]:
    """Show the current step on a terminal, or print one line per step elsewhere."""
    if silent:
        yield lambda step: None
    elif not console.is_interactive:
        yield lambda step: console.out(step[:100])
    else:
        words = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
        with Progress(SpinnerColumn(), TimeElapsedColumn(), words, console=console, transient=True) as progress:
            task = progress.add_task("preparing")
            yield lambda step: progress.update(task, description=step)


def _summary(built: BuiltImage, project: str, name: str, log: Path) -> Text:
    lines = [
        ("built", f"{built.tag}, {built.size}, with {built.engine} in {built.seconds:.0f} s"),
        ("base", built.base),
    ]
    if "@" not in built.base:
        lines.append(
            ("", f"{built.engine} knows no digest of the base: another build may get another base by that name")
        )
    if "@" in built.image:
        lines.append(("image", built.image))
    elif built.pushed:
        lines.append(("image", f"{built.engine} does not tell its digest: a job names the tag, which may move"))
    else:
        lines.append(("image", "no digest before a registry has it: a job names the tag; --push finds the digest"))
    lines.append(("log", str(log)))
    if not built.pushed:
        lines.append(("push with", command_line("push", built.tag, program=built.engine)))
    lines.append(("next", command_line("compile", project, "--image", built.image, "--output", f"{name}.json")))
    return in_lines(lines, width=12)
