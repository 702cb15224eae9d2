"""A step that trains in a custom job of Vertex AI, with this machine in the place of Vertex AI.

`python -m` of this module takes the place of TFX's own entry point, and goes on with it: everything up to the request
that Vertex AI's client would send, and from its answer on, is TFX's.
"""

from __future__ import annotations

import runpy
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from infeed.components.errors import InfeedError
from infeed.pipelines.rehearse.custom_job import machines, run_machines

ENTRY_POINT = "tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor"
EXECUTORS = ("infeed.components.trainer.vertex_executor.", "tfx.extensions.google_cloud_ai_platform.trainer.")


def trains_elsewhere(words: Sequence[str]) -> bool:
    """Whether the command line is that of a Trainer that would start a custom job."""
    return ENTRY_POINT in words and any(word.startswith(EXECUTORS) for word in words)


def trained_here(words: Sequence[str]) -> list[str]:
    """The same command line with this machine in the place of Vertex AI."""
    return [__name__ if word == ENTRY_POINT else word for word in words]


class JobService:
    """What TFX calls of `aiplatform_v1.JobServiceClient`; a job has ended when the call that creates it returns."""

    def __init__(self, client_options: Mapping[str, Any]) -> None:
        del client_options  # where Vertex AI would be
        self._jobs: dict[str, Any] = {}

    def create_custom_job(self, parent: str, custom_job: Mapping[str, Any]) -> Any:
        """Raises ValueError or TypeError for what is no CustomJob, as the real client does."""
        from google.cloud.aiplatform_v1.types import CustomJob, JobState

        CustomJob(custom_job)
        failure = run_machines(machines(custom_job["job_spec"]))
        state = JobState.JOB_STATE_FAILED if failure else JobState.JOB_STATE_SUCCEEDED
        name = f"{parent}/customJobs/{len(self._jobs) + 1}"
        self._jobs[name] = CustomJob(name=name, state=state, error={"message": failure} if failure else None)
        return self._jobs[name]

    def get_custom_job(self, name: str, retry: Any) -> Any:
        del retry
        return self._jobs[name]


def _no_ai_platform() -> None:
    raise InfeedError(
        "the Trainer would start a job of AI Platform, the service before Vertex AI",
        do="train on Vertex AI: ai_platform_enable_vertex in its custom_config",
    )


def main() -> None:
    """Runs TFX's entry point with the arguments of this process."""
    from tfx.extensions.google_cloud_ai_platform import training_clients

    training_clients.gapic = SimpleNamespace(JobServiceClient=JobService)
    training_clients.CAIPJobClient = _no_ai_platform
    runpy.run_module(ENTRY_POINT, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
