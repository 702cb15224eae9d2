"""What a rehearsal remembers under its root: artifacts and executions, in one file of JSON.

It stands in for ML Metadata and the cache of the cluster. The file is replaced whole after each step, so that a
rehearsal that is killed leaves the steps before it to the next one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from infeed.components.dataset import files
from infeed.components.errors import InfeedError

_FORMAT = 1
_TITLE = re.compile(r"^title:\s*(.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Artifact:
    """A RuntimeArtifact: what a step wrote or an importer named.

    Attributes:
      name: unique in the store; metadata of other artifacts, such as a blessing's, may hold it.
      type: ArtifactTypeSchema: `{"schemaTitle": ...}` or `{"instanceSchema": YAML}`.
      uri: its folder or file.
    """

    name: str
    type: Mapping[str, Any]
    uri: str
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """`tfx.Model`, `system.Dataset`."""
        title = _TITLE.search(self.type.get("instanceSchema", ""))
        return title[1] if title else str(self.type.get("schemaTitle", ""))

    @property
    def is_there(self) -> bool:
        """Whether nobody has removed it; of buckets that is taken for granted."""
        return "://" in self.uri or os.path.exists(self.uri)

    def to_json(self) -> dict[str, Any]:
        """As an ExecutorInput holds it."""
        return {"name": self.name, "type": dict(self.type), "uri": self.uri, "metadata": dict(self.metadata)}


@dataclass(frozen=True)
class Execution:
    """A step that succeeded.

    Attributes:
      run: identifier of its rehearsal.
      fingerprint: of everything that decides about its outputs.
      artifacts: names by output key.
      parameters: values by output key.
    """

    pipeline: str
    run: str
    node: str
    fingerprint: str
    seconds: float
    artifacts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)


@contextlib.contextmanager
def open_store(root: Path) -> Iterator[Store]:
    """The store of `root`, made where there is none, for this process and the steps that it starts.

    A step holds the lock too, and goes on where its rehearsal is killed: it would write between the next one's files.

    Raises:
      InfeedError: another rehearsal has it, or the file is of another version.
    """
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            step = lock.read()
            end = f"end its step (kill -- -{step}), " if step else ""
            what, do = "another rehearsal is running there", f"wait for it, {end}or give another --root"
            raise InfeedError(f"{what}, or a step of one that was killed", where=str(root), do=do) from error
        yield Store(root / "rehearsals.json", lock)


class Store:
    """Artifacts and executions, oldest first; `lock` is the file by which it is kept from other rehearsals."""

    def __init__(self, path: Path, lock: IO[str]) -> None:
        self._path, self.lock = path, lock
        self._artifacts: dict[str, Artifact] = {}
        self._pipelines: dict[str, str] = {}  # of each artifact
        self._executions: list[Execution] = []
        if path.exists():
            self._load(json.loads(path.read_text(encoding="utf-8")))

    def record(self, execution: Execution, artifacts: Sequence[Artifact]) -> None:
        """Adds a finished step and what it made."""
        for artifact in artifacts:
            self._artifacts[artifact.name] = artifact
            self._pipelines[artifact.name] = execution.pipeline
        self._executions.append(execution)
        with files.open_output(str(self._path)) as file:
            file.write(json.dumps(self._to_json(), indent=1).encode())

    def cached(self, pipeline: str, fingerprint: str) -> Execution | None:
        """The newest execution of that fingerprint whose outputs are still there."""
        for execution in reversed(self._executions):
            if (execution.pipeline, execution.fingerprint) == (pipeline, fingerprint) and self._is_whole(execution):
                return execution
        return None

    def newest(self, pipeline: str) -> Iterator[Artifact]:
        """Artifacts of that pipeline's rehearsals, the newest first."""
        return (self._artifacts[name] for name in reversed(self._artifacts) if self._pipelines[name] == pipeline)

    def artifact(self, name: str) -> Artifact:
        return self._artifacts[name]

    def _is_whole(self, execution: Execution) -> bool:
        names = (name for names in execution.artifacts.values() for name in names)
        return all(self._artifacts[name].is_there for name in names)

    def _load(self, content: Mapping[str, Any]) -> None:
        if content.get("format") != _FORMAT:
            do = "give another --root, or remove the file"
            raise InfeedError("written by another version of tfx-infeed", where=str(self._path), do=do)
        for entry in content["artifacts"]:
            artifact = Artifact(**{name: value for name, value in entry.items() if name != "pipeline"})
            self._artifacts[artifact.name] = artifact
            self._pipelines[artifact.name] = entry["pipeline"]
        self._executions = [Execution(**entry) for entry in content["executions"]]

    def _to_json(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "artifacts": [
                {**artifact.to_json(), "pipeline": self._pipelines[artifact.name]}
                for artifact in self._artifacts.values()
            ],
            "executions": [dataclasses.asdict(execution) for execution in self._executions],
        }
