"""Training in one process: a rehearsal trains in the step itself, even if the job would start machines or a service."""

from __future__ import annotations

from collections.abc import Sequence

from infeed.pipelines.cluster.job.compiled import JOB, STEP

NOTE = "trained as one process"
"""Remark in the report of a step that would start machines."""
ENTRY_POINT = "tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor"
_HERE = {  # executor that starts a custom job of Vertex AI -> executor that the machines of the job run
    "infeed.components.trainer.vertex_executor.VertexExecutor": "infeed.components.trainer.executor.TrainerExecutor",
    "tfx.extensions.google_cloud_ai_platform.trainer.executor.GenericExecutor": (
        "tfx.components.trainer.executor.GenericExecutor"
    ),
}


def in_one_process(words: Sequence[str]) -> list[str]:
    """Return the command line of a step, changed so that the step trains by itself and starts no machines."""
    found = [*words]
    if STEP[-1] in found and JOB in found:
        place = found.index(JOB)
        del found[place : place + 2]  # with its value
    if {ENTRY_POINT, STEP[-1]}.isdisjoint(found):
        return found
    return [_HERE.get(word, word) for word in found]
