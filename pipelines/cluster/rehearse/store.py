"""Store of artifacts and executions under a rehearsal's root, in one JSON file.

The store replaces ML Metadata, which resolvers and importers query, and the cluster's cache. Each step replaces the
file atomically, so that the next rehearsal can reuse the finished steps of a killed one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.pipelines.cluster.job import parameters
from infeed.pipelines.cluster.job.compiled import Task
from infeed.pipelines.cluster.rehearse.executor_io import Artifact, TaskIO, View, fill, inputs_view
from infeed.pipelines.cluster.rehearse.launch import StepLock

_FORMAT = 1
_COMPARISON = re.compile(r"""\s*([\w.]+)\s*=\s*(?:"([^"]*)"|([\w.+-]+))\s*""")

Test = Callable[[Artifact], bool]


@dataclass(frozen=True)
class Execution:
    """A successful step."""

    pipeline: str
    run: str  # id of the rehearsal
    node: str
    fingerprint: str  # digest of everything that determines the outputs
    seconds: float
    artifacts: Mapping[str, Sequence[str]] = field(default_factory=dict)  # names by output key
    parameters: Mapping[str, Any] = field(default_factory=dict)  # values by output key


@contextlib.contextmanager
def open_store(root: Path) -> Iterator[Store]:
    """Open or create the store of `root`, and lock it for this process and its steps.

    The package `filelock` does not fit: child processes do not inherit its lock, and it truncates the file, which holds
    the ids of the steps. Raises InfeedError if another rehearsal holds the lock, or another version wrote the file.
    """
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            steps = lock.read()
            end = f"end its steps (kill -- {steps}), " if steps else ""
            what, do = "another rehearsal is running there", f"wait for it, {end}or use another --root"
            raise InfeedError(f"{what}, or a step of a killed rehearsal", where=str(root), do=do) from error
        yield Store(root / "rehearsals.json", StepLock(lock))


class Store:
    """Artifacts and executions, oldest first. `lock` excludes other rehearsals. Threads may share a store."""

    def __init__(self, path: Path, lock: StepLock) -> None:
        self._path, self.lock = path, lock
        self._mutex = threading.Lock()
        self._artifacts: dict[str, Artifact] = {}
        self._pipelines: dict[str, str] = {}  # by artifact
        self._executions: list[Execution] = []
        if path.exists():
            content = json.loads(path.read_text(encoding="utf-8"))
            if content.get("format") != _FORMAT:
                do = "use another --root, or remove the file"
                raise InfeedError("written by another version of tfx-infeed", where=str(path), do=do)
            for entry in content["artifacts"]:
                artifact = Artifact(**{name: value for name, value in entry.items() if name != "pipeline"})
                self._artifacts[artifact.name] = artifact
                self._pipelines[artifact.name] = entry["pipeline"]
            self._executions = [Execution(**entry) for entry in content["executions"]]

    def record(self, execution: Execution, artifacts: Sequence[Artifact]) -> None:
        """Add a finished step and its artifacts."""
        with self._mutex, files.open_output(str(self._path)) as file:
            for artifact in artifacts:
                self._pipelines[artifact.name] = execution.pipeline
                self._artifacts[artifact.name] = artifact
            self._executions.append(execution)
            known = [{**one.to_json(), "pipeline": self._pipelines[one.name]} for one in self._artifacts.values()]
            executions = [dataclasses.asdict(one) for one in self._executions]
            content = {"format": _FORMAT, "artifacts": known, "executions": executions}
            file.write(json.dumps(content, indent=1).encode())

    def cached(self, pipeline: str, fingerprint: str) -> Execution | None:
        """Return the newest execution with that fingerprint whose outputs still exist."""
        for execution in reversed(self._executions):
            if (execution.pipeline, execution.fingerprint) == (pipeline, fingerprint):
                names = (name for names in execution.artifacts.values() for name in names)
                if all(self._artifacts[name].is_there for name in names):
                    return execution
        return None

    def newest(self, pipeline: str) -> Iterator[Artifact]:
        """Yield the artifacts of a pipeline, the newest first."""
        names = list(self._artifacts)  # other threads add artifacts
        return (self._artifacts[name] for name in reversed(names) if self._pipelines[name] == pipeline)

    def artifact(self, name: str) -> Artifact:
        return self._artifacts[name]

    def number(self, name: str) -> int:
        """Return the id of an artifact: its position in the store, from 1."""
        return list(self._artifacts).index(name) + 1


# Resolvers and importers return artifacts of the store, and start no process.
#
# TFX compiles `LatestBlessedModelStrategy` to two resolvers, for the newest blessing and for its model, and
# `LatestArtifactStrategy` to one. Each queries ML Metadata with comparisons joined by AND.


def resolve(task: Task, inputs: TaskIO, store: Store, pipeline: str, job: Mapping[str, Any]) -> TaskIO:
    """Return the newest artifacts of the pipeline that match each filter of a resolver."""
    assert task.executor is not None
    view = {**job, "inputs": inputs_view(inputs)}
    found: dict[str, list[Artifact]] = {}
    for key, query in task.executor["resolver"].get("outputArtifactQueries", {}).items():
        if any(not artifacts for artifacts in inputs.artifacts.values()):
            found[key] = []  # an upstream resolver found nothing
            continue
        tests, text = [], fill(query["filter"], view)
        for comparison in text.split(" AND "):
            if not (parts := _COMPARISON.fullmatch(comparison)):
                do = "use comparisons with = joined by AND, as TFX's resolvers do"
                raise InfeedError(f"cannot read the filter {comparison!r}", where=text, do=do)
            tests.append(_test(parts[1], parts[3] if parts[2] is None else parts[2]))
        passing = [artifact for artifact in store.newest(pipeline) if all(test(artifact) for test in tests)]
        found[key] = passing[: int(query.get("limit", 1))]
    return TaskIO(artifacts=found)


def import_artifact(
    task: Task, inputs: TaskIO, store: Store, pipeline: str, job: Mapping[str, Any], name: str
) -> TaskIO:
    """Return the artifact of an importer, and reuse an earlier import unless `reimport` is set."""
    assert task.executor is not None
    importer = task.executor["importer"]
    view = {**job, "inputs": inputs_view(inputs)}
    metadata = _fill_all(importer.get("metadata", {}), view)
    source = importer["artifactUri"]
    given = source.get("runtimeParameter")
    uri = inputs.parameters.get(given) if given else parameters.constant(source)
    artifact = Artifact(name, importer["typeSchema"], fill(str(uri), view), metadata)
    if not importer.get("reimport"):
        same = (a for a in store.newest(pipeline) if (a.type, a.uri) == (artifact.type, artifact.uri))
        artifact = next((a for a in same if a.metadata == metadata), artifact)
    [key] = task.outputs("artifacts")
    return TaskIO(artifacts={key: [artifact]})


def _fill_all(value: Any, view: View) -> Any:
    if isinstance(value, dict):
        return {_fill_all(key, view): _fill_all(item, view) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill_all(item, view) for item in value]
    return fill(value, view) if isinstance(value, str) else value


def _test(field: str, wanted: str) -> Test:
    if field == "state":
        return lambda artifact: wanted == ("LIVE" if artifact.is_there else "DELETED")
    if field == "schema_title":
        return lambda artifact: artifact.title == wanted
    if field == "name":
        return lambda artifact: artifact.name == wanted
    _, key, kind = f"{field}..".split(".")[:3]
    if not field.startswith("metadata.") or kind not in ("number_value", "string_value", "bool_value"):
        raise InfeedError(f"cannot filter by {field!r}", do="filter by schema_title, state, name or metadata")
    return lambda artifact: _is(artifact.metadata.get(key), wanted, kind)


def _is(value: Any, wanted: str, kind: str) -> bool:
    if kind == "number_value":
        return isinstance(value, (int, float)) and value == float(wanted)
    return value is not None and parameters.as_text(value) == wanted
