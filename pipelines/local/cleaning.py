"""Removal of the outputs of old runs from a root.

What stays is decided in ML Metadata: the inputs and outputs of kept executions. An execution is kept if a kept run
contains it, if it is the latest successful one of its node, which the cache would use, or if the latest blessed or
pushed model depends on it. Artifacts are marked as deleted before their folders are removed, so no later run uses them,
and a killed cleaning is completed by the next one.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infeed.pipelines.local.history import PastRun, forget, read_runs
from infeed.pipelines.local.outcome import keeping_last_run, open_store

_METADATA = "metadata.sqlite"
# NODE/OUTPUT/EXECUTION, relative to the folder of artifacts. Roots may have moved since a run, so only this counts.
_PLACE = re.compile(r"([^/]+/[^/]+/\d+)(?:/\d+)?/?$")
_MARKS = {"ModelBlessing": "blessed", "PushedModel": "pushed"}  # property of an artifact that is 1 for a good model


@dataclass(frozen=True)
class Cleaning:
    """What to remove from a root."""

    root: str  # root of the runs
    places: tuple[str, ...]  # folders of outputs, each NODE/OUTPUT/EXECUTION
    bytes: int  # size of their files
    runs: tuple[PastRun, ...]  # runs whose entries in the history are removed


def plan_cleaning(root: str, keep: int) -> Cleaning:
    """Decide what to remove, so that the newest `keep` runs, the cache, and the latest good model stay complete."""
    found = sorted(_places(root))
    if not Path(root, _METADATA).exists():
        return Cleaning(root, (), 0, ())
    store = open_store(str(Path(root, _METADATA)))
    runs = sorted(store.get_contexts_by_type("pipeline_run"), key=lambda run: run.id, reverse=True)
    executions = {run.name: {one.id for one in store.get_executions_by_context(run.id)} for run in runs}
    good = set(_of_good_models(store))
    makers = _makers(store, [artifact.id for artifact in _artifacts(store, good)])
    kept = good.union(*(executions[run.name] for run in runs[:keep]), _latest(store), makers)
    needed = {place for artifact in _artifacts(store, kept) if (place := _place(artifact))}
    places = tuple(place for place in found if place not in needed)
    remembered = {run.name for run in runs if run in runs[:keep] or executions[run.name] & good}
    old = tuple(run for run in read_runs(root) if run.run_id not in remembered)
    folders = (os.path.join(root, "artifacts", place) for place in places)
    files = (os.path.join(parent, name) for folder in folders for parent, _, names in os.walk(folder) for name in names)
    return Cleaning(root, places, sum(os.lstat(file).st_size for file in files), old)


def clean(cleaning: Cleaning) -> None:
    """Remove what was planned. The caller has held the lock on the root since before the planning."""
    if cleaning.places:
        from ml_metadata.proto.metadata_store_pb2 import Artifact

        metadata, places = str(Path(cleaning.root, _METADATA)), set(cleaning.places)
        with keeping_last_run(cleaning.root, metadata):
            store = open_store(metadata)
            gone = [artifact for artifact in store.get_artifacts() if _place(artifact) in places]
            for artifact in gone:
                artifact.state = Artifact.DELETED
            store.put_artifacts(gone)
    for place in cleaning.places:
        shutil.rmtree(os.path.join(cleaning.root, "artifacts", place))
    for run in cleaning.runs:
        forget(run, cleaning.root)


def _latest(store: Any) -> Iterator[int]:
    """Yield the latest successful execution of each node."""
    from ml_metadata.proto.metadata_store_pb2 import Execution

    for node in store.get_contexts_by_type("node"):
        executions = store.get_executions_by_context(node.id)
        succeeded = [e.id for e in executions if e.last_known_state in (Execution.COMPLETE, Execution.CACHED)]
        yield from succeeded and [max(succeeded)]


def _of_good_models(store: Any) -> Iterator[int]:
    """Yield the executions that blessed the latest blessed model and pushed the latest pushed model."""
    for type_name, mark in _MARKS.items():
        good = [a.id for a in store.get_artifacts_by_type(type_name) if a.custom_properties[mark].int_value]
        yield from _makers(store, good and [max(good)])


def _makers(store: Any, artifacts: list[int]) -> Iterator[int]:
    """Yield the executions that made artifacts, or took them from the cache."""
    from ml_metadata.proto.metadata_store_pb2 import Event

    events = store.get_events_by_artifact_ids(artifacts) if artifacts else ()
    return (event.execution_id for event in events if event.type == Event.OUTPUT)


def _artifacts(store: Any, executions: Iterable[int]) -> list[Any]:
    """Return the inputs and outputs of executions."""
    numbers = list(executions)
    events = store.get_events_by_execution_ids(numbers) if numbers else ()
    found: list[Any] = store.get_artifacts_by_id(list({event.artifact_id for event in events})) if events else []
    return found


def _place(artifact: Any) -> str:
    found = _PLACE.search(artifact.uri)
    return found[1] if found else ""


def _places(root: str) -> Iterator[str]:
    """Yield the folders of outputs, also those that a killed run left."""
    artifacts = Path(root, "artifacts")
    for folder in artifacts.glob("*/*/*"):
        node, output, execution = folder.relative_to(artifacts).parts
        if execution.isdigit() and not output.startswith(".") and folder.is_dir() and not folder.is_symlink():
            yield f"{node}/{output}/{execution}"
