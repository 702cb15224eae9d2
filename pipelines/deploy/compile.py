"""From a config to the file that a cluster runs: the same pipeline, with the cluster's paths and services."""

from __future__ import annotations

import dataclasses
import os
import re

from infeed.pipelines.config import PipelineConfig, resumable
from infeed.pipelines.deploy import vertex
from infeed.pipelines.deploy.kubeflow import check_output, compile_kubeflow
from infeed.pipelines.deploy.machines import check_strategy, machines
from infeed.pipelines.deploy.references import check_references
from infeed.pipelines.deploy.targets import Schema, Target, check_target, vertex_accelerators


def compile_config(
    config: PipelineConfig,
    output: str,
    *,
    target: Target = "kubeflow",
    schema: Schema = "2.1",
    folder: str | None = None,
) -> str:
    """Writes the pipeline of `config` to `output` and returns that path.

    Args:
      config: with `deploy.image`.
      output: *.json or *.yaml, see `compile_kubeflow`.
      target: what runs it.
      schema: of the PipelineSpec.
      folder: of the project, whose files are in the image.

    Raises:
      InfeedError: there is no image, or the target cannot do what the config asks for.
    """
    check_output(output)
    check_config(config, target=target, schema=schema, folder=folder)
    if target == "vertex":
        vertex.check_accelerators(vertex_accelerators(config.deploy))
    there = on_cluster(config, target)
    from infeed.pipelines.baseline import latest_blessed
    from infeed.pipelines.deploy.runtime_parameters import runtime_parameters
    from infeed.pipelines.pipeline import create_pipeline

    parameters = runtime_parameters(config)
    pipeline = create_pipeline(
        there,
        # Kubeflow's backend refuses a pipeline with a resolver: "resolver executors not implemented".
        baseline=latest_blessed if target == "vertex" else None,
        parameters=parameters,
        on_vertex=there.deploy.vertex if target == "vertex" else None,
    )
    assert there.deploy.image, "check_target has asked for one"
    return compile_kubeflow(
        pipeline,
        output,
        image=there.deploy.image,
        target=target,
        schema=schema,
        deploy=there.deploy,
        parameters=parameters,
        folder=folder,
    )


def check_config(
    config: PipelineConfig, *, target: Target = "kubeflow", schema: Schema = "2.1", folder: str | None = None
) -> None:
    """Raises InfeedError for what would fail on the cluster, and takes no time; see `compile_config`."""
    deploy = dataclasses.replace(config.deploy, root=config.deploy.root or config.root)
    check_target(deploy, target, schema)
    check_strategy(config.train, machines(deploy, target))
    if folder:
        check_references(config.train.user_functions, folder)


def places_here(config: PipelineConfig) -> str:
    """What the compiled pipeline looks for on this machine, in words; a cluster does not have it. Empty for nothing."""
    here = {
        name: path
        for name, path in (("data", config.data), ("root", config.root))
        if "://" not in path and not getattr(config.deploy, name)
    }
    places = " and ".join(f"{name} is {path}" for name, path in here.items())
    settings = " and ".join(f"deploy.{name}" for name in here)
    return f"{places} on this machine, which a cluster does not see: set {settings}" if here else ""


def on_cluster(config: PipelineConfig, target: Target) -> PipelineConfig:
    """`config` with the places of the cluster, and a name that it takes."""
    root = config.deploy.root or config.root
    there = resumable(dataclasses.replace(config, name=cluster_name(config.name), root=root))
    on_vertex = config.deploy.vertex if target == "vertex" else None
    if not (on_vertex and on_vertex.dataflow):
        return there
    assert config.deploy.image, "check_target has asked for one"
    temp = on_vertex.temp or os.path.join(root, "tmp")
    args = vertex.dataflow_args(on_vertex, on_vertex.dataflow, temp=temp, image=config.deploy.image)
    return dataclasses.replace(there, beam_pipeline_args=(*there.beam_pipeline_args, *args))


def cluster_name(name: str) -> str:
    """The name in lower case letters, digits and dashes, a letter first, which is all that Vertex AI takes.

    It makes a run's id of it, of at most 128 characters, by adding the time.
    """
    there = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:100].rstrip("-") or "pipeline"
    return there if there[0].isalpha() else f"p-{there}"
