"""The tasks of a run, as Vertex AI lists them, as steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from urllib.parse import quote

from google.cloud.aiplatform_v1.types import PipelineTaskDetail

from infeed.pipelines.local.nodes import NodeState
from infeed.pipelines.submit.run import Step
from infeed.pipelines.submit.vertex_logs import log_filter

_STATES = {
    "STATE_UNSPECIFIED": NodeState.WAITING,
    "PENDING": NodeState.WAITING,
    "SUCCEEDED": NodeState.DONE,
    "FAILED": NodeState.FAILED,
    "CANCELLED": NodeState.SKIPPED,
    "SKIPPED": NodeState.CACHED,  # "due to cache hit", says the API
    "NOT_TRIGGERED": NodeState.SKIPPED,
}


def gather(names: Sequence[str], tasks: Iterable[PipelineTaskDetail], project: str) -> tuple[Step, ...]:
    """A step for each of `names`."""
    found = {task.task_name: task for task in tasks}
    return tuple(_step(found[name], project) if name in found else Step(name) for name in names)


def _step(task: PipelineTaskDetail, project: str) -> Step:
    jobs = _custom_jobs(task)
    query = quote(log_filter(jobs[-1]), safe="") if jobs else ""
    return Step(
        task.task_name,
        _STATES.get(task.state.name, NodeState.RUNNING),
        _seconds(task),
        error=task.error.message or None,
        jobs=jobs,
        log=f"https://console.cloud.google.com/logs/query;query={query}?project={project}" if jobs else None,
    )


def _custom_jobs(task: PipelineTaskDetail) -> tuple[str, ...]:
    """What executes the task, earlier attempts first, or what looks into the cache for it; none before there is one."""
    container, custom = task.executor_detail.container_detail, task.executor_detail.custom_job_detail
    jobs = [*container.failed_main_jobs, container.main_job, *custom.failed_jobs, custom.job]
    return tuple(dict.fromkeys(job for job in jobs if job)) or tuple(filter(None, [container.pre_caching_check_job]))


def _seconds(task: PipelineTaskDetail) -> float:
    if not task.start_time:
        return 0.0
    ended = task.end_time or datetime.now(timezone.utc)
    return float((ended - task.start_time).total_seconds())
