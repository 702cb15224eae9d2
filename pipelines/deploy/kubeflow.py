"""Writes a TFX pipeline as the file that Kubeflow Pipelines v2 and Vertex AI run, by TFX's own compiler."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import yaml

from infeed.components.errors import InfeedError
from infeed.pipelines.deploy.node_settings import apply_settings
from infeed.pipelines.deploy.options import Deploy
from infeed.pipelines.deploy.platform_spec import platform_spec
from infeed.pipelines.deploy.references import relative_references
from infeed.pipelines.deploy.targets import Schema, Target
from infeed.pipelines.deploy.vertex import pipeline_job

if TYPE_CHECKING:
    from tfx.orchestration.data_types import RuntimeParameter
    from tfx.orchestration.pipeline import Pipeline


def compile_kubeflow(
    pipeline: Pipeline,
    output: str,
    *,
    image: str,
    target: Target = "kubeflow",
    schema: Schema = "2.1",
    deploy: Deploy | None = None,
    parameters: Mapping[str, RuntimeParameter] | None = None,
    folder: str | None = None,
) -> str:
    """Writes the specification of `pipeline` to `output` and returns that path.

    Args:
      pipeline: made for this call: component objects can be compiled once only.
      output: `*.json` gets a PipelineJob, `*.yaml` the PipelineSpec and, where there is one, the platform spec.
      image: container image with this package and TFX, in which every step runs.
      target: what runs it. Kubeflow runs no drivers of ExampleGens, and no resolvers.
      schema: of the PipelineSpec. Kubeflow reads 2.1; Vertex AI reads both.
      deploy: resources, retries, caching and places of the nodes.
      parameters: the runtime parameters that `pipeline` was made with.
      folder: of the project: functions of its files are written relative to it, as the image has them.

    Raises:
      InfeedError: kfp is not installed, `output` ends in neither, `deploy` names a node that does not exist, or says
        what `output` has no place for: JSON none for a platform spec, YAML none for accounts, keys and labels.
    """
    check_output(output)
    job = _compile(pipeline, image, schema, parameters or {})
    spec = job["pipelineSpec"]
    apply_settings(spec, deploy or Deploy(), drivers_run=target == "vertex")
    spec["defaultPipelineRoot"] = pipeline.pipeline_info.pipeline_root
    platform = platform_spec(spec, deploy or Deploy())
    around = pipeline_job(deploy.vertex) if target == "vertex" and deploy and deploy.vertex else {}
    text = _text(relative_references(job, folder) if folder else job, platform, around, output)
    Path(output).parent.mkdir(parents=True, exist_ok=True)
    Path(output).write_text(text, encoding="utf-8")
    return output


def check_output(output: str) -> None:
    """Raises InfeedError unless the file's ending names a format; needs no TFX."""
    if Path(output).suffix not in {".json", ".yaml", ".yml"}:
        raise InfeedError(f"cannot tell the format of {output!r}", do="name the output *.json or *.yaml")


def _compile(
    pipeline: Pipeline, image: str, schema: Schema, parameters: Mapping[str, RuntimeParameter]
) -> dict[str, Any]:
    """The PipelineJob; its defaults stand in the spec, and in runtimeConfig, where alone readers of schema 2.0 look."""
    runner = _runner()
    config = runner.KubeflowV2DagRunnerConfig(default_image=image, use_pipeline_spec_2_1=schema == "2.1")
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    job: dict[str, Any] = runner.KubeflowV2DagRunner(config).run(pipeline, parameter_values=defaults, write_out=False)
    declared = job["pipelineSpec"]["root"].get("inputDefinitions", {}).get("parameters", {})
    for name, definition in declared.items():
        definition["defaultValue"] = defaults[name]
    return job


def _text(job: Mapping[str, Any], platform: Mapping[str, Any] | None, around: Mapping[str, Any], output: str) -> str:
    """`around` is what a PipelineJob says beside its spec."""
    if Path(output).suffix != ".json":
        if around:
            raise InfeedError(
                f"YAML holds a pipeline alone, and has no place for {', '.join(around)} of a run",
                where=output,
                do="Name the output *.json.",
            )
        documents = [job["pipelineSpec"], *([platform] if platform else [])]
        return yaml.safe_dump_all(documents, sort_keys=True, width=120)
    if platform:
        raise InfeedError(
            "JSON has no place for node selectors and tolerations",
            where=output,
            do="Name the output *.yaml, where they are a second document.",
        )
    labels = {**job["labels"], **around.get("labels", {})}
    return json.dumps({**job, **around, "labels": labels}, sort_keys=True, indent=1) + "\n"


def _runner() -> ModuleType:
    try:
        from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner
    except ImportError as error:
        raise InfeedError(
            f"cannot compile for Kubeflow: {error}",
            do="install kfp beside TFX; pip install tfx-infeed brings the version that fits",
        ) from error
    return kubeflow_v2_dag_runner  # type: ignore[no-any-return]
