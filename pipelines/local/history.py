"""Runs of a root, read from ML Metadata, and the lock that allows one run at a time.

A run is a context of the type `pipeline_run`. Its executions have the states and times of the nodes, and its artifacts
the scores and the data.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.base.locks import alone, is_held
from infeed.components.dataset.reading import open_dataset
from infeed.components.evaluation.model_report.scores import Scores
from infeed.pipelines.local.outcome import Outputs, node_names, open_store, outputs_of
from infeed.pipelines.local.scores import stored_scores

_LOCK, _METADATA = ".lock", "metadata.sqlite"


@dataclass(frozen=True)
class PastRun:
    """One run of a root."""

    run_id: str  # local time of the start, in ISO format: the name of the run in ML Metadata
    status: str  # "pushed", "not blessed", "NODE failed", "running", or "stopped" before its end
    seconds: float  # from the start of the first node to the end of the last one
    nodes: Mapping[str, str]  # state of each node in ML Metadata, in order of execution, such as "complete" or "cached"
    rows: Mapping[str, int] = field(default_factory=dict)  # rows by split
    scores: Scores | None = None  # None if no model was evaluated, or its evaluation has been removed
    wait_fraction: float | None = None  # share of training time spent waiting for input, 0 to 1

    def as_json(self) -> dict[str, Any]:
        return schema.to_plain(self)


@contextlib.contextmanager
def only_process(root: str) -> Iterator[None]:
    """Create and lock the root, because two runs in one root would mix their checkpoints and metadata."""
    try:
        Path(root).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        do = "use another --root, or change the permissions"
        raise InfeedError(f"cannot write to the folder: {error.strerror}", where=f"root {root}", do=do) from error
    do = "wait for that run, stop it, or give another --root"
    with alone(Path(root, _LOCK), doing="another run uses this folder", where=f"root {root}", do=do):
        yield


def find_roots(given: str | None) -> list[str]:
    """Return the given root, or all roots below `runs/`, sorted. Raises InfeedError if there is none."""
    found = [given] if given else [str(file.parent) for file in sorted(Path("runs").glob(f"*/{_METADATA}"))]
    if not found or not Path(found[0], _METADATA).exists():
        raise InfeedError("no run was made here", where=given or "runs/", do="name the root of a run with --root DIR")
    return found


def read_runs(root: str) -> list[PastRun]:
    """Return the runs of a root, newest first."""
    store = open_store(str(Path(root, _METADATA)))
    names, is_running = node_names(store), is_held(Path(root, _LOCK))
    contexts = sorted(store.get_contexts_by_type("pipeline_run"), key=lambda one: int(one.id), reverse=True)
    return [_read(store, context, names, is_running=is_running and context is contexts[0]) for context in contexts]


def _read(store: Any, context: Any, names: Mapping[int, str], *, is_running: bool) -> PastRun:
    from ml_metadata.proto.metadata_store_pb2 import Execution

    executions = sorted(store.get_executions_by_context(context.id), key=lambda one: int(one.id))
    nodes = {names[one.id]: Execution.State.Name(one.last_known_state).lower() for one in executions}
    outputs = outputs_of(store, {one.id: names[one.id] for one in executions})
    times = [time for one in executions for time in (one.create_time_since_epoch, one.last_update_time_since_epoch)]
    report = outputs.get(("InputReport", "report"))
    evaluation = outputs.get(("Evaluator", "evaluation"))
    return PastRun(
        run_id=context.name,
        status="running" if is_running else _status(nodes, outputs),
        seconds=(max(times) - min(times)) / 1000 if times else 0.0,
        nodes=nodes,
        rows=_rows(outputs),
        scores=stored_scores(evaluation.uri) if evaluation else None,
        wait_fraction=report.properties.get("wait_fraction") if report else None,
    )


def _status(nodes: Mapping[str, str], outputs: Outputs) -> str:
    if failed := next((name for name, state in nodes.items() if state == "failed"), None):
        return f"{failed} failed"
    if ("InputReport", "report") not in outputs:  # the last node
        return "stopped"
    return "pushed" if outputs["Evaluator", "blessing"].properties.get("blessed") else "not blessed"


def _rows(outputs: Outputs) -> dict[str, int]:
    folder = next((found.uri for (_, key), found in outputs.items() if key == "examples"), None)
    opened = open_dataset(folder) if folder else None
    return {name: split.records for name, split in opened[1].splits.items()} if opened else {}
