"""Where a job is to run in the end: what that platform leaves out, and what its steps would start elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from infeed.components.errors import InfeedError
from infeed.pipelines.rehearse.dag import Task
from infeed.pipelines.rehearse.vertex_training import EXECUTORS, trains_elsewhere

Platform = Literal["kubeflow", "vertex"]

# What a command line names when its step hands the work to a service: such a step costs money wherever it runs.
_SERVICES = {
    "tfx.extensions.google_cloud_ai_platform.": "Vertex AI",
    "google_cloud_pipeline_components.": "Google Cloud",
    "--runner=DataflowRunner": "Dataflow",
    "DataflowRunner": "Dataflow",  # after `--runner` as a word of its own
}


def check_platform(tasks: Iterable[Task], platform: Platform) -> None:
    """Raises InfeedError if the platform would refuse the job, or if a step of it would start something elsewhere."""
    for task in tasks:
        assert task.executor is not None, "a dag executes nothing itself"
        if "resolver" in task.executor and platform == "kubeflow":
            raise InfeedError(
                f"Kubeflow's backend runs no resolvers, and refuses the job for {task.node}",
                do="compile it with --target kubeflow, which leaves them out, or rehearse it for Vertex AI",
            )
        for service in _services(task):
            raise InfeedError(
                f"{task.node} would hand its work to {service}, which is not rehearsed here",
                do="compile without it, such as deploy.vertex's endpoint and dataflow, and rehearse that",
            )


def _services(task: Task) -> Iterator[str]:
    container = (task.executor or {}).get("container", {})
    words = [*container.get("command", ()), *container.get("args", ())]
    if trains_elsewhere(words):
        words = [word for word in words if not word.startswith(EXECUTORS)]  # they have a stand-in
    yield from (service for sign, service in _SERVICES.items() if any(word.startswith(sign) for word in words))
