"""Training as a Vertex AI custom job: the step starts the job and waits; each of its machines runs our executor.

Importing this file imports Vertex AI's client library, which takes seconds and is installed only where somebody wants
it. So the component imports it for a `custom_job` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfx.dsl.components.base import executor_spec
from tfx.extensions.google_cloud_ai_platform import constants
from tfx.extensions.google_cloud_ai_platform.trainer.executor import TRAINING_ARGS_KEY, GenericExecutor

from infeed.components.errors import InfeedError
from infeed.components.trainer.executor import TrainerExecutor

_NEEDED = ("display_name", "job_spec", "project", "region")


class VertexExecutor(GenericExecutor):
    """TFX's, which has `tfx.scripts.run_executor` run this package's executor on every machine of the job."""

    def _GetExecutorClass(self) -> type[TrainerExecutor]:  # noqa: N802 - TFX's name
        return TrainerExecutor


def spec_of(custom_job: Mapping[str, Any], given: Any) -> executor_spec.ExecutorClassSpec:
    """What runs a Trainer with a `custom_job`.

    Args:
      given: the Trainer's own custom_executor_spec.

    Raises:
      InfeedError: there is one, or the job lacks a part.
    """
    if given:
        raise InfeedError(
            "custom_job and custom_executor_spec both say what runs the training",
            where="Trainer",
            do="give one of them",
        )
    for name in _NEEDED:
        if name not in custom_job:
            raise InfeedError(f"custom_job has no {name}", where="Trainer", do=f"give {', '.join(_NEEDED)}")
    return executor_spec.ExecutorClassSpec(VertexExecutor)


def custom_config(custom_job: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of `custom_config` by which TFX's executor learns of the job.

    Args:
      custom_job: `display_name`, `job_spec` and `project` by the names of the CustomJob proto, which TFX hands
        on as they are, and `region`, which TFX wants beside them.
    """
    return {
        constants.ENABLE_VERTEX_KEY: True,
        constants.VERTEX_REGION_KEY: custom_job["region"],
        TRAINING_ARGS_KEY: {name: value for name, value in custom_job.items() if name != "region"},
    }
