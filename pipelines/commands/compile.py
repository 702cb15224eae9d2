"""`infeed compile`: compile a project into a job file for a cluster."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast, get_args

import click

from infeed.pipelines.commands.asking import decided
from infeed.pipelines.commands.options import project_options
from infeed.pipelines.compile.backends import check_backend, version_of
from infeed.pipelines.compile.compile import compile_config, data_bytes, local_places, missing_package
from infeed.pipelines.compile.kubeflow import CompileOptions, beam_flags
from infeed.pipelines.compile.native import compile_native
from infeed.pipelines.console.exit_codes import Command
from infeed.pipelines.console.paths import OutputFile
from infeed.pipelines.console.terminal import quiet, show_facts
from infeed.pipelines.image.build import last_built
from infeed.pipelines.job.compiled import CompiledJob, Schema, Target, leaves
from infeed.pipelines.job.disks import tight_disks
from infeed.pipelines.job.project import archive_beside
from infeed.pipelines.project.config_file import read_project

NATIVE = "kfp"


@click.command(
    name="compile",
    cls=Command,
    examples=(
        "infeed compile taxi/config.yaml --output taxi.yaml",
        "infeed compile taxi/config.yaml --target vertex --output taxi.json",
    ),
)
@project_options
@click.option(
    "--output",
    required=True,
    type=OutputFile(),
    help="Write the compiled job to this file: *.json or *.yaml.",
    metavar="FILE",
)
@click.option(
    "--target",
    type=click.Choice([*get_args(Target), NATIVE]),
    default="kubeflow",
    show_default=True,
    help="Platform to run on; kfp means Kubeflow with steps that need neither TFX nor ML Metadata.",
)
@click.option("--image", help="Container image of every step.  [default: deploy.image of the config]", metavar="IMAGE")
@click.option(
    "--schema",
    type=click.Choice(get_args(Schema)),
    default="2.1",
    show_default=True,
    help="Schema version of the pipeline spec.",
)
@click.option(
    "--kfp", help="Version of Kubeflow Pipelines on the cluster, to check the settings for.", metavar="VERSION"
)
def command(
    project: str, output: str, target: str, image: str | None, schema: str, kfp: str | None, **overrides: Any
) -> None:
    """Compile a project for Kubeflow Pipelines (v2) or Vertex AI.

    The deploy section of the config sets the image, resources and storage locations of the steps. A JSON file contains
    a whole job. A YAML file contains the pipeline spec, and Kubernetes settings in a second document.
    """
    read = read_project(project)
    platform = "kubeflow" if target == NATIVE else target
    config = decided(read, overrides)
    dropped = check_backend(config.deploy, version_of(kfp)) if kfp else ""
    given = Path(project).name if Path(project).is_file() else "config.yaml"
    options = CompileOptions(output, cast(Target, platform), cast(Schema, schema), str(read.folder), (given,))
    by_digest, facts = _by_digest(image or config.deploy.image, read.name)
    config = dataclasses.replace(config, deploy=dataclasses.replace(config.deploy, image=by_digest))
    with quiet(Path(config.logs) / "compile.log") as console:
        flags = beam_flags(config.deploy, options.target, by_digest, config.root) if by_digest else []
        beam = [("" if number else "beam", f"{option}  # {why}") for number, (option, why) in enumerate(flags)]
        show_facts(console, [*config.notes, *facts, *beam])
        (compile_native if target == NATIVE else compile_config)(config, options)
        job = CompiledJob.read(output)
        console.print(
            f"wrote {output}: pipeline {job.name!r} for {target}, {len(job.tasks)} tasks, "
            f"parameters {', '.join(job.parameters)}",
            highlight=False,
            soft_wrap=True,
        )
        if job.project_archive:
            users = ", ".join(task.node for task in leaves(job.tasks) if task.project_archive)
            console.print(
                f"wrote {archive_beside(output)}: the project's files, for {users}; infeed submit uploads it to "
                f"{job.project_archive}",
                highlight=False,
                soft_wrap=True,
            )
        tight = tight_disks(job, lambda: data_bytes(config))
        for warning in filter(None, (local_places(config), tight, missing_package(config, read.folder), dropped)):
            console.print(f"warning: {warning}", style="yellow", highlight=False, soft_wrap=True)


def _by_digest(image: str | None, project: str) -> tuple[str | None, list[tuple[str, str]]]:
    """Return the image of the job, by digest if the digest is known, and the facts to print about the image."""
    if image is None or "@" in image:
        return image, []
    if built := last_built(image, project):
        return built.image, [("image", f"{built.image}, which infeed build pushed as {image}"), ("base", built.base)]
    return image, [("image", f"{image}: a tag, which may move before the cluster looks it up; build with --push")]
