"""Training that the job starts on several machines or on a service, which a rehearsal runs as one process: its step."""

from __future__ import annotations

from collections.abc import Sequence

from infeed.pipelines.job.compiled import JOB, STEP

NOTE = "trained as one process"
"""Remark in the report of such a step."""
ENTRY_POINT = "tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor"
_HERE = {  # executors that start a custom job of Vertex AI, and those that the machines of the job run
    "infeed.components.trainer.vertex_executor.VertexExecutor": "infeed.components.trainer.executor.TrainerExecutor",
    "tfx.extensions.google_cloud_ai_platform.trainer.executor.GenericExecutor": (
        "tfx.components.trainer.executor.GenericExecutor"
    ),
}


def in_one_process(words: Sequence[str]) -> list[str]:
    """Return the command line of a step without what starts machines: the step then trains by itself."""
    found = [*words]
    if STEP[-1] in found and JOB in found:
        place = found.index(JOB)
        del found[place : place + 2]  # with its value
    if {ENTRY_POINT, STEP[-1]}.isdisjoint(found):
        return found
    return [_HERE.get(word, word) for word in found]
