"""`infeed compile`: compile a project into a job file for a cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast, get_args

import click
from rich.console import Console

from infeed.components.base.errors import InfeedError
from infeed.pipelines.cluster.compile.checks import check_backend, version_of
from infeed.pipelines.cluster.compile.compile import compile_config, data_bytes, local_places
from infeed.pipelines.cluster.compile.kubeflow import CompileOptions, beam_options
from infeed.pipelines.cluster.compile.native import compile_native
from infeed.pipelines.cluster.compile.runner import KubeflowRunner, load_pipeline, read_deploy
from infeed.pipelines.cluster.job.compiled import CompiledJob, Schema, Target, archive_beside, leaves
from infeed.pipelines.cluster.job.disks import tight_disks
from infeed.pipelines.commands.asking import decided
from infeed.pipelines.commands.options import project_options
from infeed.pipelines.console.exit_codes import Command
from infeed.pipelines.console.paths import InputPath, OutputFile
from infeed.pipelines.console.terminal import quiet, show_facts
from infeed.pipelines.project.config_file import read_project

NATIVE = "kfp"


@click.command(
    name="compile",
    cls=Command,
    examples=(
        "infeed compile taxi/config.yaml --output taxi.yaml",
        "infeed compile taxi/config.yaml --target vertex --output taxi.json",
        "infeed compile my_pipeline.py:create_pipeline --image IMAGE --root s3://bucket/taxi --output taxi.yaml",
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
    help="Platform to run on. kfp is Kubeflow with steps that need neither TFX nor ML Metadata.",
)
@click.option("--image", help="Container image of every step.  [default: deploy.image of the config]", metavar="IMAGE")
@click.option(
    "--config",
    "deploy_file",
    type=InputPath(),
    help="YAML file with the section deploy, for a pipeline that a function returns.",
    metavar="FILE",
)
@click.option(
    "--schema",
    type=click.Choice(get_args(Schema)),
    default="2.1",
    show_default=True,
    help="Schema version of the pipeline spec.",
)
@click.option(
    "--kfp", help="Version of Kubeflow Pipelines on the cluster, to check the settings against.", metavar="VERSION"
)
def command(
    project: str,
    output: str,
    target: str,
    image: str | None,
    deploy_file: str | None,
    schema: str,
    kfp: str | None,
    **overrides: Any,
) -> None:
    """Compile a project for Kubeflow Pipelines (v2) or Vertex AI, or a TFX pipeline that FILE.py:FUNCTION returns.

    The deploy section of the config sets the image, resources and storage locations of the steps. A JSON file contains
    a whole job. A YAML file contains the pipeline spec, and Kubernetes settings in a second document.
    """
    if _names_function(project):
        module = Path(project.rpartition(":")[0])
        runner = KubeflowRunner(
            output,
            image,
            overrides.pop("root"),
            read_deploy(deploy_file),
            cast(Target, target),
            cast(Schema, schema),
            str(module.resolve().parent) if module.suffix == ".py" else None,
            kfp,
        )
        _compile_function(project, runner, overrides)
        return
    if deploy_file:
        do = "set deploy in the config of the project"
        raise InfeedError("--config is for a pipeline that a function returns", where="--config", do=do)
    read = read_project(project)
    platform = "kubeflow" if target == NATIVE else target
    config = decided(read, overrides)
    dropped = check_backend(config.deploy, version_of(kfp)) if kfp else ""
    given = Path(project).name if Path(project).is_file() else "config.yaml"
    options = CompileOptions(output, cast(Target, platform), cast(Schema, schema), str(read.folder), (given,))
    image = image or config.deploy.image
    config = dataclasses.replace(config, deploy=dataclasses.replace(config.deploy, image=image))
    with quiet(Path(config.logs) / "compile.log") as console:
        added = beam_options(config.deploy, image, config.root) if image else []
        beam = [("" if number else "beam", option) for number, option in enumerate(added)]
        is_tag = image is not None and "@" not in image
        tag = [("image", f"{image}: a tag, which may move before the cluster looks it up")] if is_tag else []
        # Shown before the compilation, which imports TFX for seconds.
        show_facts(console, [*config.notes, *tag, *beam])
        (compile_native if target == NATIVE else compile_config)(config, options)
        job = _show_written(console, output, target)
        if job.project_archive:
            users = ", ".join(task.node for task in leaves(job.tasks) if task.project_archive)
            console.print(
                f"wrote {archive_beside(output)}: the project's files, for {users}; infeed submit uploads it to "
                f"{job.project_archive}",
                highlight=False,
                soft_wrap=True,
            )
        tight = tight_disks(job, lambda: data_bytes(config))
        _warn(console, filter(None, (local_places(config), tight, dropped)))


def _names_function(project: str) -> bool:
    """Return whether the argument is a function, such as `my_pipeline.py:create_pipeline`, and not a file."""
    module, _, function = project.rpartition(":")
    return bool(module) and function.isidentifier() and not Path(project).exists()


def _compile_function(function: str, runner: KubeflowRunner, overrides: Mapping[str, Any]) -> None:
    flat = {**overrides, **overrides["train"], **overrides["ingest"], "train": None, "ingest": None}
    if given := [name for name, value in flat.items() if value not in (None, (), {}, False)]:
        do = "leave it out: the function defines the whole pipeline"
        raise InfeedError(f"{given[0]} is a setting of a project", where=f"--{given[0]}", do=do)
    if runner.target not in get_args(Target):
        do = "use --target kubeflow"
        raise InfeedError("a TFX pipeline cannot be compiled without TFX", where="--target", do=do)
    log = Path("runs", Path(function.rpartition(":")[0]).stem, "logs", "compile.log")
    with quiet(log) as console:
        pipeline = load_pipeline(function)
        warnings = runner.warnings(pipeline)
        runner.run(pipeline)
        _show_written(console, runner.output, runner.target)
        _warn(console, warnings)


def _show_written(console: Console, output: str, target: str) -> CompiledJob:
    job = CompiledJob.read(output)
    what = f"wrote {output}: pipeline {job.name!r} for {target}, {len(job.tasks)} tasks"
    given = f", parameters {', '.join(job.parameters)}" if job.parameters else ""
    console.print(f"{what}{given}", highlight=False, soft_wrap=True)
    return job


def _warn(console: Console, warnings: Iterable[str]) -> None:
    for warning in warnings:
        console.print(f"warning: {warning}", style="yellow", highlight=False, soft_wrap=True)
