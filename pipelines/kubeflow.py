"""Compiles a pipeline for Kubeflow Pipelines v2 and Vertex AI, by TFX's own compiler."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from infeed.components.errors import InfeedError

if TYPE_CHECKING:
    from tfx.orchestration.pipeline import Pipeline


def compile_kubeflow(pipeline: Pipeline, output: str, *, image: str, display_name: str | None = None) -> str:
    """Writes the specification of `pipeline` to `output` and returns that path.

    Args:
      pipeline: made for this call: component objects can be compiled once only.
      output: `*.json` gets a PipelineJob, `*.yaml` the PipelineSpec alone that `kfp` clients submit.
      image: container image with this package and TFX, in which every step runs.
      display_name: shown by the user interface; the pipeline's name by default.

    Raises:
      InfeedError: kfp is not installed, or `output` ends in neither.
    """
    check_output(output)
    path = Path(output)
    runner = _runner()
    config = runner.KubeflowV2DagRunnerConfig(
        display_name=display_name,
        default_image=image,
        use_pipeline_spec_2_1=True,  # the one that Kubeflow's own backend reads; Vertex reads both
    )
    runner.KubeflowV2DagRunner(config, output_dir=str(path.parent), output_filename=path.name).run(pipeline)
    return output


def check_output(output: str) -> None:
    """Raises InfeedError unless the file's ending names a format; needs no TFX."""
    if Path(output).suffix not in {".json", ".yaml", ".yml"}:
        raise InfeedError(f"cannot tell the format of {output!r}", do="name the output *.json or *.yaml")


def _runner() -> ModuleType:
    try:
        from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner
    except ImportError as error:
        raise InfeedError(
            f"cannot compile for Kubeflow: {error}",
            do="install kfp beside TFX; pip install tfx-infeed brings the version that fits",
        ) from error
    return kubeflow_v2_dag_runner  # type: ignore[no-any-return]
