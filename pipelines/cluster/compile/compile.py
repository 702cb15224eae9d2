"""Compiles the pipeline of a config, with the cluster's paths and services."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from infeed.components.engine.beam_runner import container_options
from infeed.components.example_gen.formats import find_files
from infeed.components.kubeflow import disk
from infeed.pipelines.cluster.compile.checks import check_accelerators, check_config, check_machine_spec
from infeed.pipelines.cluster.compile.kubeflow import CompileOptions, compile_kubeflow, runtime_parameters
from infeed.pipelines.config import PipelineConfig, resumable
from infeed.pipelines.deploy.options import cluster_runner


def compile_config(config: PipelineConfig, options: CompileOptions) -> str:
    """Write the pipeline of `config` to `options.output` and return that path. Raises as `check_config` does."""
    check_config(config, options.target, options.schema, options.folder)
    if options.target == "vertex":
        check_accelerators(config.deploy)
        check_machine_spec(config.deploy)
    there = on_cluster(config)
    vertex = there.deploy.on(options.target)
    from infeed.pipelines.pipeline import create_pipeline, latest_blessed, latest_model, pushed_model  # takes seconds

    parameters = runtime_parameters(config)
    # Kubeflow's backend rejects a pipeline with a resolver: "resolver executors not implemented".
    baseline, start = (latest_blessed, latest_model) if options.target == "vertex" else (None, pushed_model)
    pipeline = create_pipeline(there, baseline=baseline, parameters=parameters, on_vertex=vertex, start=start)
    assert there.deploy.image, "check_target requires an image"
    data, folder = Path(config.data), options.folder
    # The image must not hold the data, which may lie in the project's folder.
    is_inside = folder is not None and data.is_relative_to(folder) and data.exists()
    exclude = (*options.exclude, *([data.name] if is_inside else []))
    options = dataclasses.replace(options, classes=config.matrix_classes, exclude=exclude)
    return compile_kubeflow(pipeline, options, image=there.deploy.image, deploy=there.deploy, parameters=parameters)


def local_places(config: PipelineConfig) -> str:
    """Return a warning about paths of this machine that a cluster cannot read, or an empty string."""
    here = {
        name: path
        for name, path in (("data", config.place), ("root", config.root))
        if path and "://" not in path and not getattr(config.deploy, name)
    }
    places = " and ".join(f"{name} is {path}" for name, path in here.items())
    settings = " and ".join(f"deploy.{name}" for name in here)
    return f"{places} on this machine, where a cluster cannot read it: set {settings}" if here else ""


def data_bytes(config: PipelineConfig) -> int:
    """Return the size of a config's data in bytes. With spans, count only the spans to read."""
    if config.span_data:
        return sum(file.size for file in find_files(config.data, config.source))
    return disk.bytes_of(config.place) if config.place else 0


def on_cluster(config: PipelineConfig) -> PipelineConfig:
    """Return `config` with the paths of the cluster, and a name that Vertex AI accepts.

    Its Beam options are for steps that run Beam in their own container. `compile_kubeflow` adds a cluster's runner.
    """
    root = config.deploy.root or config.root
    there = resumable(dataclasses.replace(config, name=cluster_name(config.name), root=root))
    assert config.deploy.image, "check_target requires an image"
    is_named = cluster_runner(config.deploy.beam_pipeline_args)
    options = () if is_named else container_options(config.beam_pipeline_args, config.deploy.image)
    return dataclasses.replace(there, beam_pipeline_args=options)


def cluster_name(name: str) -> str:
    """Return the name in lower-case letters, digits and dashes, starting with a letter, as Vertex AI requires.

    Vertex AI appends the time to make a run id of at most 128 characters.
    """
    there = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:100].rstrip("-") or "pipeline"
    return there if there[0].isalpha() else f"p-{there}"
