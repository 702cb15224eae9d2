"""History of the runs of a root: a file for each run, written at its start and again at its end.

The number of a run is the name of its file. A file that still has no end belongs to a run in progress, or to a run that
was stopped. TFX and ML Metadata are not needed to read the history.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.base.locks import alone, is_held
from infeed.components.dataset.reading import open_dataset
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.console.nodes import NodeReport, NodeState, RunReport
from infeed.pipelines.local.outcome import RunOutcome, latest_outputs, settings_of, write_json

_log = logging.getLogger(__name__)
_FOLDER, _LOCK = "history", ".lock"
_DIGITS = 12  # of the fingerprint


@dataclass(frozen=True)
class PastRun:
    """One run of a root."""

    number: int  # number of the run in its root, from 1
    run_id: str  # local time of the start, in ISO format; also the name of the run in ML Metadata
    config: Mapping[str, Any]  # settings of the run by name, except settings inferred from the data
    ended: bool = False  # whether the run came to its end, successful or not
    seconds: float = 0.0  # duration of the run
    nodes: tuple[NodeReport, ...] = ()  # nodes in order of execution
    outcome: RunOutcome | None = None  # outcome of a successful run
    rows: Mapping[str, int] = field(default_factory=dict)  # rows by split
    fingerprint: str = ""  # digest of the records of all splits; empty if ingest did not finish

    @property
    def status(self) -> str:
        """Status in one or two words. A run without an end counts as stopped: see `is_running`."""
        if not self.ended:
            return "stopped"
        if self.outcome:
            return "pushed" if self.outcome.blessed else "not blessed"
        return next((f"{node.name} failed" for node in self.nodes if node.state is NodeState.FAILED), "failed")

    def as_json(self) -> dict[str, Any]:
        return {**schema.to_plain(self), "status": self.status}


@contextlib.contextmanager
def only_process(root: str) -> Iterator[None]:
    """Lock the root: two runs in one root would mix their checkpoints and metadata."""
    do = "wait for that run, stop it, or give another --root"
    with alone(Path(root, _LOCK), doing="another run uses this folder", where=f"root {root}", do=do):
        yield


def is_running(root: str) -> bool:
    """Whether a process holds the lock on the root."""
    return is_held(Path(root, _LOCK))


def begin(config: PipelineConfig) -> PastRun:
    """Write the entry of a run that starts now. The caller holds the lock on the root."""
    number = max((int(path.stem) for path in _files(config.root)), default=0) + 1
    run = PastRun(number, datetime.now().isoformat(), settings_of(config))
    _write(run, config.root)
    return run


def finish(run: PastRun, config: PipelineConfig, report: RunReport, outcome: RunOutcome | None) -> None:
    """Complete the entry of a run with its nodes, its data and its outcome."""
    rows, fingerprint = _data(config, report)
    ended = dataclasses.replace(
        run, ended=True, seconds=report.seconds, nodes=report.nodes, outcome=outcome, rows=rows, fingerprint=fingerprint
    )
    _write(ended, config.root)


def read_runs(root: str) -> list[PastRun]:
    """Return the runs of a root, newest first. Entries of another version are skipped with a warning."""
    runs = filter(None, map(_read, _files(root)))
    return sorted(runs, key=lambda run: run.number, reverse=True)


def forget(run: PastRun, root: str) -> None:
    """Remove the entry of a run."""
    _path(run, root).unlink(missing_ok=True)


def find_root(given: str | None) -> str:
    """Return the given root, or the only one below `runs/`. Raises InfeedError if there is none, or several."""
    first, *others = found = find_roots(given)
    if others:
        raise InfeedError(f"runs/ has {len(found)} roots", where="--root", do=f"name one of {', '.join(found)}")
    return first


def find_roots(given: str | None) -> list[str]:
    """Return the given root, or all below `runs/`, sorted. Raises InfeedError if there is none."""
    found = [given] if given else [str(folder) for folder in sorted(Path("runs").glob("*")) if _is_root(folder)]
    if not found or not _is_root(Path(found[0])):
        raise InfeedError("no run was made here", where=given or "runs/", do="name the root of a run with --root DIR")
    return found


def _is_root(folder: Path) -> bool:
    return (folder / "metadata.sqlite").exists() or (folder / _FOLDER).is_dir()


def _files(root: str) -> Iterator[Path]:
    return (path for path in Path(root, _FOLDER).glob("*.json") if path.stem.isdigit())


def _read(path: Path) -> PastRun | None:
    try:
        return schema.read_json(PastRun, path.read_bytes())
    except ValueError as error:
        _log.warning("%s: skipped, because another version of infeed wrote it: %s", path, error)
        return None


def _path(run: PastRun, root: str) -> Path:
    return Path(root, _FOLDER, f"{run.number:04}.json")


def _write(run: PastRun, root: str) -> None:
    path = _path(run, root)
    path.parent.mkdir(exist_ok=True)
    write_json(run, path)


def _data(config: PipelineConfig, report: RunReport) -> tuple[dict[str, int], str]:
    """Return rows by split, and a digest of all records; nothing if ingest failed."""
    ingested = {node.name for node in report.nodes if node.state in (NodeState.DONE, NodeState.CACHED)}
    outputs = latest_outputs(config).items()
    folder = next((found.uri for (node, key), found in outputs if key == "examples" and node in ingested), None)
    opened = open_dataset(folder) if folder else None
    if opened is None:
        return {}, ""
    splits = opened[1].splits
    checksums = [f"{name} {shard.records} {shard.crc32c}" for name in sorted(splits) for shard in splits[name].shards]
    return (
        {name: split.records for name, split in splits.items()},
        hashlib.sha256("\n".join(checksums).encode()).hexdigest()[:_DIGITS],
    )
