"""Disks of a compiled job's steps against the size of its data, before Kubeflow's launcher copies the Examples."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from infeed.components.dataset import files
from infeed.components.errors import InfeedError
from infeed.components.kubeflow import direct, disk
from infeed.components.units import size
from infeed.pipelines.job.compiled import CompiledJob, Task, leaves
from infeed.pipelines.job.parameters import constant

DATA = "{{$.inputs.parameters['data']}}"
"""Placeholder of the folder of the data in the arguments of a step without TFX."""


def tight_disks(job: CompiledJob, needed: Callable[[], int]) -> str:
    """Return a warning about nodes that download Examples and have less disk than the data takes, or an empty string.

    The Examples take about as much as the data. Their size is known only when the job runs: see `disk.check_inputs`.

    Args:
      job: compiled job.
      needed: returns the size of the data in bytes. Called only if a node has a limit.
    """
    limits = {task.name: limit for task in _readers(job) if (limit := disk.limit_of(task.variables)) is not None}
    if not limits:
        return ""
    try:
        data = needed()
    except (InfeedError, OSError) as error:
        return f"cannot compare the size of the data with ephemeral_storage: {error}"
    tight = ", ".join(f"{name} ({size(limit)})" for name, limit in limits.items() if limit < data)
    return tight and (
        f"the data takes {size(data)}, and Kubeflow's launcher copies the Examples to the disk of each step; "
        f"ephemeral_storage is too small for {tight}: raise it, or set deploy.reading: direct"
    )


def _readers(job: CompiledJob) -> Iterator[Task]:
    for task in leaves(job.tasks):
        given = str(task.component.get("inputDefinitions", {}).get("artifacts", {}))
        if ("tfx.Examples" in given or "system.Dataset" in given) and direct.VARIABLE not in task.variables:
            yield task


def input_bytes(job: CompiledJob, folder: str) -> int:
    """Return the size of the files below `folder` that a job reads. Of an input with spans, all spans count."""
    patterns = next(filter(None, map(_patterns, leaves(job.tasks))), [""])
    if not any(patterns):
        return disk.bytes_of(folder)
    return sum(file.size for pattern in patterns for file in files.glob(folder, pattern))


def _patterns(task: Task) -> list[str]:
    """Return the patterns of the files that a task reads; an empty pattern is the whole folder."""
    given = task.spec.get("inputs", {}).get("parameters", {}).get("input_config", {})
    if text := constant(given.get("runtimeValue", {})):  # of an ExampleGen
        return [split["pattern"] for split in json.loads(text).get("splits", ())]
    words = map(str, (task.container or {}).get("args", ()))
    return [word.removeprefix(DATA).lstrip("/") for word in words if word.startswith(DATA)]
