"""The command `infeed compile`: from a project to the file that a cluster runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, get_args

import click

from infeed.pipelines.commands.exits import errors
from infeed.pipelines.commands.project_options import project_options
from infeed.pipelines.deploy.compile import check_config, compile_config, places_here
from infeed.pipelines.deploy.compiled import CompiledJob
from infeed.pipelines.deploy.kubeflow import check_output
from infeed.pipelines.deploy.targets import Schema, Target
from infeed.pipelines.local.logs import quiet
from infeed.pipelines.project import read_project
from infeed.pipelines.resolve import Overrides, resolve


@click.command(name="compile")
@project_options
@click.option("--output", required=True, help="File to write: *.json or *.yaml.", metavar="FILE")
@click.option("--target", type=click.Choice(get_args(Target)), default="kubeflow", show_default=True)
@click.option("--image", help="Container image of every step.  [default: deploy.image]", metavar="IMAGE")
@click.option(
    "--schema", type=click.Choice(get_args(Schema)), default="2.1", show_default=True, help="Of the pipeline spec."
)
def compile_(
    project: str, output: str, target: str, image: str | None, schema: str, debug: bool, **overrides: Any
) -> None:
    """Compile the same pipeline for Kubeflow Pipelines (v2) or Vertex AI."""
    with errors(as_json=False, debug=debug):
        check_output(output)
        read = read_project(project)
        config = resolve(read, Overrides(**overrides))
        deploy = dataclasses.replace(config.deploy, image=image or config.deploy.image)
        config = dataclasses.replace(config, deploy=deploy)
        how: dict[str, Any] = {"target": target, "schema": schema, "folder": str(read.folder)}
        check_config(config, **how)
        with quiet(Path(config.logs) / "compile.log") as console:
            compile_config(config, output, **how)
            job = CompiledJob.read(output)
            nodes, parameters = len(job.spec["root"]["dag"]["tasks"]), ", ".join(job.parameters)
            console.print(
                f"wrote {output}: pipeline {job.name!r} for {target}, {nodes} tasks, parameters {parameters}",
                highlight=False,
                soft_wrap=True,
            )
            if here := places_here(config):
                console.print(f"warning: {here}", style="yellow", highlight=False, soft_wrap=True)
