"""Check before a run that the disks of steps can hold the Examples that Kubeflow's launcher downloads."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.base.units import size
from infeed.components.dataset import files
from infeed.components.dataset.options import Spans
from infeed.components.kubeflow import disk
from infeed.components.kubeflow.message import is_packed, unpack
from infeed.pipelines.cluster.job.compiled import CompiledJob, Task, leaves
from infeed.pipelines.cluster.job.parameters import constant

DATA = "{{$.inputs.parameters['data']}}"
"""Placeholder for the data's folder in the arguments of a step without TFX."""


def tight_disks(job: CompiledJob, needed: Callable[[], int]) -> str:
    """Return a warning about nodes whose disk is smaller than the Examples that they download. Empty if all fit.

    The Examples take about as much as the data. Their size is known only when the job runs: see `disk.check_inputs`.
    `needed` returns the size of the data in bytes. It is called only if a node has a limit.
    """
    readers = []
    for task in leaves(job.tasks):
        given = str(task.component.get("inputDefinitions", {}).get("artifacts", {}))
        reads = "tfx.Examples" in given or "system.Dataset" in given
        if (
            reads
            and disk.READING_VARIABLE not in task.variables
            and (limit := disk.limit_of(task.variables)) is not None
        ):
            readers.append((task, limit))
    if not readers:
        return ""
    try:
        data = needed()
    except (InfeedError, OSError) as error:
        return f"cannot compare the size of the data with ephemeral_storage: {error}"
    tight = [(task, limit) for task, limit in readers if limit < data]
    nodes = ", ".join(f"{task.name} ({size(limit)})" for task, limit in tight)
    return nodes and (
        f"the data takes {size(data)}, and Kubeflow's launcher copies the Examples to the disk of each step; "
        f"ephemeral_storage is too small for {nodes}: {disk.remedy(direct=tight[0][0].could_read_directly)}"
    )


def input_bytes(job: CompiledJob, folder: str) -> int:
    """Return the size in bytes of the files below `folder` that a job reads. With spans, count only the spans to read.

    Raises InfeedError if there is no span.
    """
    tasks = list(leaves(job.tasks))
    if spans := next(filter(None, map(_spans, tasks)), None):
        patterns = [*spans.window(folder).values()]
    else:
        patterns = next(filter(None, map(_patterns, tasks)), [""])
    if not any(patterns):
        return disk.bytes_of(folder)
    return sum(file.size for pattern in patterns for file in files.glob(folder, pattern))


def _patterns(task: Task) -> list[str]:
    """Return the patterns of the files that a task reads; an empty pattern is the whole folder."""
    if text := _parameter(task, "input_config"):  # of an ExampleGen
        return [split["pattern"] for split in json.loads(text).get("splits", ())]
    words = map(str, (task.container or {}).get("args", ()))
    return [word.removeprefix(DATA).lstrip("/") for word in words if word.startswith(DATA)]


def _spans(task: Task) -> Spans | None:
    """Return the spans that a task reads, if its input has any."""
    options: dict[str, Any] = {}
    if '\\"spans\\":' in (text := _parameter(task, "custom_config")):  # of an ExampleGen: JSON in JSON
        options = json.loads(json.loads(text)["custom_config"]["value"])["options"]
    for word in filter(is_packed, (task.container or {}).get("args", ())):  # of a step without TFX
        options = json.loads(unpack(word)).get("ingest", {})
    return schema.read(Spans, options["spans"], "spans") if options.get("spans") else None


def _parameter(task: Task, name: str) -> str:
    """Return the constant value of a task's text parameter. Empty if there is none."""
    given = task.spec.get("inputs", {}).get("parameters", {}).get(name, {})
    return str(unpack(constant(given.get("runtimeValue", {})) or ""))
