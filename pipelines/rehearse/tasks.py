"""Which tasks of a job can be rehearsed: no loops, no executors that the target rejects, no work on a paid service."""

from __future__ import annotations

from infeed.components.errors import InfeedError
from infeed.pipelines.job.compiled import Target, Task, leaves, walk
from infeed.pipelines.rehearse.custom_job import EXECUTORS, starts_custom_job

# Prefixes of arguments of steps that start work on a service, which costs money.
_SERVICES = {
    "tfx.extensions.google_cloud_ai_platform.": "Vertex AI",
    "google_cloud_pipeline_components.": "Google Cloud",
    "--runner=DataflowRunner": "Dataflow",
    "DataflowRunner": "Dataflow",  # as a separate argument after `--runner`
}


def check_tasks(tasks: tuple[Task, ...], target: Target) -> None:
    """Raise InfeedError if the target would reject the job, or a task cannot be rehearsed."""
    for task in walk(tasks):
        if task.is_loop:
            do = "rehearse a job without loops"
            raise InfeedError("a loop over items cannot be rehearsed", where=_where(task), do=do)
    for task in leaves(tasks):
        _check_executor(task, target)
        container = task.container or {}
        words = [*container.get("command", ()), *container.get("args", ())]
        if starts_custom_job(words):
            words = [word for word in words if not word.startswith(EXECUTORS)]  # custom_job.py emulates them
        for sign, service in _SERVICES.items():
            if any(word.startswith(sign) for word in words):
                do = "compile without the service, for example without deploy.vertex.endpoint and deploy.beam.dataflow"
                what = f"{task.node} would start work on {service}, which a rehearsal does not support"
                raise InfeedError(what, do=do)


def _check_executor(task: Task, target: Target) -> None:
    executor = task.executor or {}
    if not executor.keys() & {"container", "importer", "resolver"}:
        kind = next(iter(executor), "nothing")
        do = "compile the job for Kubeflow, which runs the step in a container"
        raise InfeedError(f"executor {kind!r} cannot be rehearsed", where=_where(task), do=do)
    if "resolver" in executor and target == "kubeflow":
        do = "compile the job with --target kubeflow, which omits resolvers, or rehearse it for Vertex AI"
        raise InfeedError(f"Kubeflow's backend runs no resolvers, and rejects the job because of {task.node}", do=do)


def _where(task: Task) -> str:
    return f"task {'/'.join(task.path)}"
