"""`infeed build`: build the container image of a project."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import click

from infeed.components.base.errors import InfeedError
from infeed.pipelines.cluster.image.build import BASE, ImageOptions, build_image, check_has_jax
from infeed.pipelines.console.exit_codes import Command, interruptible
from infeed.pipelines.console.paths import InputPath
from infeed.pipelines.console.terminal import Terminal, command_line, in_lines
from infeed.pipelines.deploy.options import cluster_runner
from infeed.pipelines.project.config_file import TEMPLATES, read_project


@click.command(
    name="build",
    cls=Command,
    examples=(
        "infeed build taxi/config.yaml --tag registry.example/taxi:1 --push",
        "infeed build taxi --tag registry.example/taxi:1",
    ),
)
@click.argument("project", default="image", type=InputPath(), metavar=f"[{'|'.join(TEMPLATES)}|CONFIG.YAML]")
@click.option("--tag", help="Name and tag of the image.  [default: deploy.image of the config]", metavar="NAME")
@click.option(
    "--base", default=BASE, show_default=True, help="Base image; must provide the Python of Debian 13.", metavar="IMAGE"
)
@click.option(
    "--exclude", multiple=True, help="Exclude project files that match PATTERN. May be repeated.", metavar="PATTERN"
)
@click.option("--push", is_flag=True, help="Push the image to the registry in its name.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else.")
def command(project: str, tag: str | None, as_json: bool, **given: Any) -> None:
    """Build the container image in which a compiled pipeline runs.

    The image contains TFX, the installed version of this package, and the files of the project. The build runs docker,
    podman or buildah on the project's Dockerfile.
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
    if read.settings.train.get("backend") == "jax" and not read.package:
        check_has_jax(Path(read.folder))
    given["exclude"] = (*given["exclude"], *deploy.exclude)
    runner = cluster_runner(deploy.beam_pipeline_args)
    options = ImageOptions(name, runner=runner, with_project=deploy.project == "image", **given)
    log = Path("runs", read.name, "logs", "build.log")
    shown = console.is_interactive and not as_json
    waiting = console.status(f"building {name}; log: {log}") if shown else contextlib.nullcontext()
    with interruptible("the next build reuses the finished build steps"), waiting:
        engine = build_image(None if read.package else read.folder, options, log)
    if as_json:
        console.out(json.dumps({"tag": name, "engine": engine.name, "pushed": options.push, "log": str(log)}))
        return
    lines = [("built", f"{name}, with {engine.name}"), ("log", str(log))]
    if not options.push:
        lines.append(("push with", command_line("push", name, program=engine.name)))
    lines.append(("next", command_line("compile", project, "--image", name, "--output", f"{read.name}.json")))
    console.print(in_lines(lines, width=12), soft_wrap=True)
