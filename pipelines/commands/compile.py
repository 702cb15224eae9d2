"""`infeed compile`: from a project to the file that a cluster runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast, get_args

import click

from infeed.pipelines.commands.asking import decided
from infeed.pipelines.commands.options import project_options
from infeed.pipelines.compile.compile import compile_config, local_places
from infeed.pipelines.compile.kubeflow import CompileOptions
from infeed.pipelines.console.exit_codes import Command
from infeed.pipelines.console.paths import OutputFile
from infeed.pipelines.console.terminal import quiet, show_facts
from infeed.pipelines.image.record import last_built
from infeed.pipelines.job.compiled import CompiledJob, Schema, Target
from infeed.pipelines.project.config_file import read_project


@click.command(name="compile", cls=Command)
@project_options
@click.option("--output", required=True, type=OutputFile(), help="File to write: *.json or *.yaml.", metavar="FILE")
@click.option("--target", type=click.Choice(get_args(Target)), default="kubeflow", show_default=True)
@click.option("--image", help="Container image of every step.  [default: deploy.image]", metavar="IMAGE")
@click.option(
    "--schema", type=click.Choice(get_args(Schema)), default="2.1", show_default=True, help="Of the pipeline spec."
)
def command(project: str, output: str, target: str, image: str | None, schema: str, **overrides: Any) -> None:
    """Compile the same pipeline for Kubeflow Pipelines (v2) or Vertex AI.

    What the steps get there (image, machines, places) is said under deploy in the config. JSON holds a whole job; YAML
    holds the pipeline, and settings of Kubernetes in a second document.

    \b
    infeed compile taxi/config.yaml --output taxi.yaml
    infeed compile taxi/config.yaml --target vertex --output taxi.json
    """
    read = read_project(project)
    options = CompileOptions(output, cast(Target, target), cast(Schema, schema), str(read.folder))
    config = decided(read, overrides)
    by_digest, facts = _by_digest(image or config.deploy.image, read.name)
    config = dataclasses.replace(config, deploy=dataclasses.replace(config.deploy, image=by_digest))
    with quiet(Path(config.logs) / "compile.log") as console:
        show_facts(console, [*config.notes, *facts])
        compile_config(config, options)
        job = CompiledJob.read(output)
        console.print(
            f"wrote {output}: pipeline {job.name!r} for {target}, {len(job.tasks)} tasks, "
            f"parameters {', '.join(job.parameters)}",
            highlight=False,
            soft_wrap=True,
        )
        if here := local_places(config):
            console.print(f"warning: {here}", style="yellow", highlight=False, soft_wrap=True)


def _by_digest(image: str | None, project: str) -> tuple[str | None, list[tuple[str, str]]]:
    """The image that the job names, and what there is to say of it."""
    if image is None or "@" in image:
        return image, []
    if built := last_built(image, project):
        return built.image, [("image", f"{built.image}, which infeed build pushed as {image}"), ("base", built.base)]
    return image, [("image", f"{image}: a tag, which may move before the cluster looks it up; build with --push")]
