"""Training as a Vertex AI custom job. The pipeline node starts the job and waits; every machine runs our executor.

This module imports the optional Vertex AI client library, which takes seconds. The component therefore imports the
module only for a `custom_job`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfx.dsl.components.base import executor_spec
from tfx.extensions.google_cloud_ai_platform import constants
from tfx.extensions.google_cloud_ai_platform.trainer.executor import TRAINING_ARGS_KEY, GenericExecutor

from infeed.components.base.errors import InfeedError
from infeed.components.trainer.executor import TrainerExecutor

_NEEDED = ("display_name", "job_spec", "project", "region")


class VertexExecutor(GenericExecutor):
    """TFX's Vertex AI executor that runs `TrainerExecutor` on every machine of the job."""

    def _GetExecutorClass(self) -> type[TrainerExecutor]:  # noqa: N802 - TFX's name
        return TrainerExecutor


def spec_of(custom_job: Mapping[str, Any], given: Any) -> executor_spec.ExecutorClassSpec:
    """Return the executor spec of a Trainer with a `custom_job`.

    Raise InfeedError if a `custom_executor_spec` is also set, or a required key of the job is missing.
    """
    if given:
        do = "use only one of them"
        raise InfeedError("custom_job and custom_executor_spec are both set", where="Trainer", do=do)
    for name in _NEEDED:
        if name not in custom_job:
            raise InfeedError(f"custom_job has no {name}", where="Trainer", do=f"give {', '.join(_NEEDED)}")
    return executor_spec.ExecutorClassSpec(VertexExecutor)


def custom_config(custom_job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `custom_config` entries that describe the job to TFX's executor, which takes `region` separately."""
    return {
        constants.ENABLE_VERTEX_KEY: True,
        constants.VERTEX_REGION_KEY: custom_job["region"],
        TRAINING_ARGS_KEY: {name: value for name, value in custom_job.items() if name != "region"},
    }
