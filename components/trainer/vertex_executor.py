"""Training as a Vertex AI custom job: the step starts the job and waits; each of its machines runs our executor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfx.extensions.google_cloud_ai_platform import constants
from tfx.extensions.google_cloud_ai_platform.trainer.executor import TRAINING_ARGS_KEY, GenericExecutor

from infeed.components.trainer.executor import Executor


class VertexExecutor(GenericExecutor):
    """TFX's, which has `tfx.scripts.run_executor` run this package's executor on every machine of the job."""

    def _GetExecutorClass(self) -> type[Executor]:  # noqa: N802 - TFX's name
        return Executor


def custom_config(custom_job: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of `custom_config` by which TFX's executor learns of the job."""
    return {
        constants.ENABLE_VERTEX_KEY: True,
        constants.VERTEX_REGION_KEY: custom_job["region"],
        TRAINING_ARGS_KEY: {name: value for name, value in custom_job.items() if name != "region"},
    }
